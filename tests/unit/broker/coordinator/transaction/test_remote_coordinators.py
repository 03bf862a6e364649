"""Verifications by a transaction coordinator on another broker are batched into one request, and each gets its own
result. No verification is
added to a request that is already sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.memory_peers import Fate, MemoryPeers

from oncelog_broker.coordinator.transaction import remote_coordinators as module
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog_protocol.producer_id import ProducerIdAndEpoch

NONE, NOT_ATTEMPTED = ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED
LOST = ErrorCode.COORDINATOR_NOT_AVAILABLE
BROKER = 2
P = [TopicPartition("t", index) for index in range(6)]
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


class Coordinator:
    """Responds NONE for each partition, unless `codes` has another error code."""

    def __init__(self) -> None:
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.error_code = 0

    def __call__(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if self.error_code:
            return AddPartitionsToTxnResponse(error_code=self.error_code)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[self._result(asked) for asked in request.transactions]
        )

    def _result(self, asked: Any) -> Any:
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=self.codes.get(TopicPartition(topic.name, index), NONE),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return Result(transactional_id=asked.transactional_id, topic_results=topics)


class Asking:
    def __init__(self) -> None:
        self.peers, self.tasks, self.coordinator = MemoryPeers(), Tasks(), Coordinator()
        self.peers.handlers[BROKER] = self.coordinator
        self.remote = RemoteCoordinators(self.peers, self.tasks)

    def ask(self, *partitions: TopicPartition, name: str = "txn", epoch: int = 0, registers: bool = False) -> Any:
        return self.remote.ask(BROKER, name, ProducerIdAndEpoch(7, epoch), partitions, registers=registers)

    def shapes(self) -> list[list[tuple[str, bool, list[int]]]]:
        """Return the (transactional id, verify only, partitions) of each request."""
        return [
            [(asked.transactional_id, asked.verify_only, asked.topics[0].partitions) for asked in request.transactions]
            for _, request in self.peers.sent
        ]


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    made = Asking()
    async with asyncio.timeout(30):
        yield made
    await made.tasks.close()


async def test_questions_of_one_loop_turn_share_a_request(asking: Asking) -> None:
    answers = [asking.ask(P[0]), asking.ask(P[1]), asking.ask(P[2], name="other"), asking.ask(P[0])]
    assert await asyncio.gather(*answers) == [NONE] * 4
    assert asking.shapes() == [[("txn", True, [0, 1]), ("other", True, [2])]]


async def test_each_question_gets_the_answer_of_its_own_partitions(asking: Asking) -> None:
    asking.coordinator.codes[P[1]] = ErrorCode.TRANSACTION_ABORTABLE
    first, second, both = asking.ask(P[0]), asking.ask(P[1]), asking.ask(P[0], P[1])
    assert (await first, await second) == (NONE, ErrorCode.TRANSACTION_ABORTABLE)
    assert await both is ErrorCode.TRANSACTION_ABORTABLE


async def test_a_question_refused_because_of_another_partition_is_repeated(asking: Asking) -> None:
    """A request that registers partitions adds all of its partitions or none."""
    asking.coordinator.codes = {P[0]: NOT_ATTEMPTED, P[1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    first, second = asking.ask(P[0], registers=True), asking.ask(P[1], registers=True)
    assert (await first, await second) == (LOST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert LOST.retriable


async def test_e3_no_request_joins_a_question_already_sent(asking: Asking) -> None:
    asking.peers.fates = [Fate.HELD]
    first = asking.ask(P[0])
    await asking.peers.sent_to(BROKER, 1)
    later = [asking.ask(P[0]), asking.ask(P[1])]
    await asyncio.sleep(0)
    assert len(asking.peers.sent) == 1, "one request at a time"
    asking.peers.let_go()
    assert await asyncio.gather(first, *later) == [NONE] * 3
    assert asking.shapes() == [[("txn", True, [0])], [("txn", True, [0, 1])]]


async def test_a_transactional_id_is_in_a_request_once(asking: Asking) -> None:
    """Results are matched by transactional id, so one request never has the same id twice: entries with another epoch,
    and registrations, wait for the next request.
    """
    answers = [asking.ask(P[0]), asking.ask(P[1], epoch=1), asking.ask(P[2], registers=True)]
    assert await asyncio.gather(*answers) == [NONE] * 3
    assert asking.shapes() == [[("txn", True, [0])], [("txn", True, [1])], [("txn", False, [2])]]


async def test_a_request_has_a_bounded_size(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS", 2)
    answers = [asking.ask(P[0], P[1], P[2]), asking.ask(P[3], name="b"), asking.ask(P[4], name="c")]
    assert await asyncio.gather(*answers) == [NONE] * 3
    assert [len(request) for request in asking.shapes()] == [1, 2]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.ANSWER_LOST])
async def test_a_lost_answer_is_an_unknown_result(asking: Asking, fate: Fate) -> None:
    asking.peers.fates = [fate]
    assert await asking.ask(P[0]) is LOST
    assert await asking.ask(P[0]) is NONE, "asked again, by the producer who comes again"


async def test_a_coordinator_that_refuses_this_broker_is_reported(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    asking.coordinator.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await asking.ask(P[0]) is LOST
    assert "coordinator refuses to answer" in caplog.text


async def test_no_question_is_sent_for_a_disconnected_client(asking: Asking) -> None:
    asking.peers.fates = [Fate.HELD]
    first = asking.ask(P[0])
    await asking.peers.sent_to(BROKER, 1)
    asking.ask(P[1], name="gone").cancel()
    asking.peers.let_go()
    assert await first is NONE
    assert await asking.ask(P[2], name="last") is NONE
    assert asking.shapes() == [[("txn", True, [0])], [("last", True, [2])]]


async def test_s85_an_undecodable_answer_leaves_no_question_open(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifications in this request get a result, and so do the verifications that wait for the next request."""

    def unreadable(response: AddPartitionsToTxnResponse) -> Any:
        monkeypatch.undo()
        raise ValueError("thrown by an answer")

    monkeypatch.setattr(module, "codes_of", unreadable)
    first = asking.ask(P[0])
    await asyncio.sleep(0)
    second = asking.ask(P[1])
    async with asyncio.timeout(30):
        assert await first is LOST
        assert await second is NONE


async def test_s93_an_unexpected_error_answers_every_waiting_verification(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = asking.peers.send

    async def broken(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(asking.peers, "send", send)
        raise ValueError("a defect")

    monkeypatch.setattr(asking.peers, "send", broken)
    first, other = asking.ask(P[0]), asking.ask(P[1], name="other")
    assert (await first, await other) == (LOST, LOST)
    assert await asking.ask(P[0]) is NONE, "the next one is asked"
