"""Transactional appends whose coordinator responds late, never, or twice: if a marker arrives during the verification,
the leader refuses the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.producers import ABORT, COMMIT, sequenced
from tests.support.served import TOPIC, Client, Served, produce

from oncelog_broker.coordinator.transaction.refused_sequences import RefusedSequences
from oncelog_broker.coordinator.transaction.verification import ANSWER_SECONDS
from oncelog_broker.log.config import COMPACT
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.control import EndTransactionMarker

V1, V2 = 9, 12
"""Versions of Produce: V1 verifies that the partition is in the transaction, V2 adds the partition to it."""
PRODUCER_ID = 7


class Coordinator:
    """Responds to each verification when the test says so."""

    verifies = True
    registration_pause_seconds = 0.5
    registration_seconds = 3600.0

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Any]] = []
        self.refused_sequences = RefusedSequences()

    def elsewhere(self, transactional_id: str) -> int | None:
        return None

    def epoch_of(self, transactional_id: str) -> int:
        return 0

    def verify(self, transactional_id: str, asking: ProducerIdAndEpoch, partitions: Any) -> Any:
        return self._question()

    def add_partitions(self, transactional_id: str, asking: ProducerIdAndEpoch, partitions: Any, version: int) -> Any:
        return self._question()

    def _question(self) -> asyncio.Future[Any]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    def answer(self, number: int, code: ErrorCode, version: int) -> None:
        if not self.asked[number].done():
            self.asked[number].set_result(code if version == V2 else {"asked": code})


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def served(tmp_path: Path, coordinator: Coordinator) -> Iterator[Served]:
    made = Served(tmp_path, partitions=2)
    made.services.transactions = coordinator
    for partition in made.partitions:
        partition.lead(0, (1,))
    yield made
    made.leave()


def batch(sequence: int = 0, epoch: int = 0) -> bytes:
    return bytes(sequenced(PRODUCER_ID, sequence, epoch=epoch, transactional=True))


def write(sequence: int = 0, **options: Any) -> Any:
    return produce(batch(sequence), transactional_id="txn", **options)


def mark(served: Served, *, epoch: int = 0) -> None:
    marker = EndTransactionMarker(COMMIT, 0)
    served.partitions[0].append_marker(marker, producer_id=PRODUCER_ID, producer_epoch=epoch)


def codes(answers: list[tuple[int, Any]]) -> list[int]:
    return [response.responses[0].partition_responses[0].error_code for _, response in answers]


@pytest.mark.parametrize("version", [V1, V2])
async def test_the_records_are_walked_where_the_topic_became_compacted_meanwhile(
    served: Served, coordinator: Coordinator, version: int
) -> None:
    client, log = Client(served), served.partitions[0].log
    keyless = bytes(sequenced(PRODUCER_ID, 0, transactional=True, key=None))
    client.send(produce(keyless, transactional_id="txn"), version=version)
    log.update_config(replace(log.config, cleanup_policy=frozenset({COMPACT})))
    coordinator.answer(0, ErrorCode.NONE, version)
    assert codes(await client.answered(1)) == [ErrorCode.INVALID_RECORD]
    assert log.log_end_offset == 0


@pytest.mark.parametrize("version", [V1, V2])
async def test_the_append_waits_for_the_answer_and_holds_back_what_is_behind_it(
    served: Served, coordinator: Coordinator, version: int
) -> None:
    client, log = Client(served), served.partitions[0].log
    client.send(write(0), write(1), version=version)
    assert (len(coordinator.asked), log.log_end_offset) == (1, 0)
    coordinator.answer(0, ErrorCode.NONE, version)
    assert codes(await client.answered(2)) == [0, 0]
    assert (len(coordinator.asked), log.log_end_offset) == (1, 2), "the second finds the transaction open"
    assert len(served.partitions[0].guards) == 0


@pytest.mark.parametrize("version", [V1, V2])
async def test_e3_a_marker_between_question_and_append_does_not_let_the_append_in(
    served: Served, coordinator: Coordinator, version: int
) -> None:
    client, partition = Client(served), served.partitions[0]
    client.send(write(0), version=version)
    mark(served)
    coordinator.answer(0, ErrorCode.NONE, version)
    assert codes(await client.answered(1)) == [ErrorCode.INVALID_TXN_STATE]
    assert partition.log.log_end_offset == 1, "the marker alone"
    assert partition.last_stable_offset == 1, "nothing hangs"
    client.send(write(0), version=version)
    coordinator.answer(1, ErrorCode.NONE, version)
    assert codes(await client.answered(2))[1] == 0, "asked again, it may come in"


def pauses(served: Served) -> list[float]:
    """End all pauses before a repeated registration; return their lengths in seconds."""
    ended = [timer for timer in served.deadlines.set if timer[0] < ANSWER_SECONDS]
    for timer in ended:
        served.deadlines.set.remove(timer)
        timer[1]()
    return [seconds for seconds, _ in ended]


async def test_e59_a_registration_is_repeated_while_the_coordinator_completes_the_previous_transaction(
    served: Served, coordinator: Coordinator
) -> None:
    """The marker of the previous transaction has the epoch of the next one, and may come in one of the pauses."""
    client, log = Client(served), served.partitions[0].log
    client.send(write(0), version=V2)
    waited = []
    for number in range(3):
        assert len(coordinator.asked) == number + 1
        coordinator.answer(number, ErrorCode.CONCURRENT_TRANSACTIONS, V2)
        await asyncio.sleep(0)
        waited += pauses(served)
        await asyncio.sleep(0)
    marker = EndTransactionMarker(COMMIT, 0)
    served.partitions[0].append_marker(
        marker, producer_id=PRODUCER_ID, producer_epoch=0, transaction_version=TRANSACTIONS_V2
    )
    coordinator.answer(3, ErrorCode.NONE, V2)
    assert codes(await client.answered(1)) == [0], "the producer learns nothing of it"
    assert (waited, log.log_end_offset) == ([0.5, 1.0, 2.0], 2)


@pytest.mark.parametrize(("seconds", "version"), [(0.4, V2), (3600.0, V1)])
async def test_e59_the_producer_is_told_when_that_takes_too_long(
    served: Served, coordinator: Coordinator, seconds: float, version: int
) -> None:
    """Where the coordinator only verifies, the error is another: the producer sends AddPartitionsToTxn itself."""
    coordinator.registration_seconds = seconds
    client = Client(served)
    client.send(write(0), version=version)
    coordinator.answer(0, ErrorCode.CONCURRENT_TRANSACTIONS, version)
    expected = ErrorCode.CONCURRENT_TRANSACTIONS if version == V2 else ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes(await client.answered(1)) == [expected]
    assert (len(coordinator.asked), pauses(served)) == (1, [])


async def test_the_frame_stays_as_it_is_while_the_answer_is_late(served: Served, coordinator: Coordinator) -> None:
    client, log = Client(served), served.partitions[0].log
    client.send(write(0), version=V1)
    client.send(*[produce(b"x" * 500, index=1, acks=1) for _ in range(10)])
    coordinator.answer(0, ErrorCode.NONE, V1)
    await client.answered(1)
    assert bytes(log.reader.read(0, 1000, upper_bound=1, min_one_batch=True))[61:] == batch()[61:]


async def test_an_answer_that_never_comes_is_asked_for_again(served: Served, coordinator: Coordinator) -> None:
    client = Client(served)
    client.send(write(0), version=V1)
    served.deadlines.fire()
    assert codes(await client.answered(1)) == [ErrorCode.NOT_ENOUGH_REPLICAS], "which clients try again"
    client.send(write(0), version=V1)
    coordinator.answer(0, ErrorCode.NONE, V1)
    coordinator.answer(1, ErrorCode.NONE, V1)
    assert codes(await client.answered(2))[1] == 0
    assert served.partitions[0].log.log_end_offset == 1


@pytest.mark.parametrize("version", [V1, V2])
async def test_a_fenced_producer_undoes_nothing_of_its_successor(
    served: Served, coordinator: Coordinator, version: int
) -> None:
    """A fenced producer sends a batch with its old epoch while a batch of the newer producer is being verified. Only
    the newer producer has a transaction.
    """
    elder, younger, partition = Client(served), Client(served), served.partitions[0]
    younger.send(produce(batch(epoch=1), transactional_id="txn"), version=version)
    elder.send(write(0), version=version)
    assert len(partition.guards) == 2
    coordinator.answer(1, ErrorCode.PRODUCER_FENCED, version)
    coordinator.answer(0, ErrorCode.NONE, version)
    assert codes(await elder.answered(1)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert codes(await younger.answered(1)) == [0]
    assert (len(partition.guards), partition.log.log_end_offset) == (0, 1)


async def test_two_questions_about_one_producer_share_the_guard(served: Served, coordinator: Coordinator) -> None:
    """A retry arrives over another connection: one batch is appended, and the other is its duplicate."""
    first, second, partition = Client(served), Client(served), served.partitions[0]
    first.send(write(0), version=V1)
    second.send(write(0), version=V1)
    assert len(partition.guards) == 1
    for number in (1, 0):
        coordinator.answer(number, ErrorCode.NONE, V1)
    assert codes(await first.answered(1)) == codes(await second.answered(1)) == [0]
    assert (partition.log.log_end_offset, len(partition.guards)) == (1, 0)


async def test_a_client_that_goes_leaves_no_guard_and_no_record(served: Served, coordinator: Coordinator) -> None:
    client, partition = Client(served), served.partitions[0]
    client.send(write(0), version=V1)
    client.connection.connection_lost(None)
    for _ in range(20):
        await asyncio.sleep(0)
    coordinator.answer(0, ErrorCode.NONE, V1)
    assert (len(partition.guards), partition.log.log_end_offset) == (0, 0)


@pytest.mark.parametrize("version", [V1, V2])
async def test_a_late_refusal_by_the_coordinator_refuses_the_append(
    served: Served, coordinator: Coordinator, version: int
) -> None:
    client = Client(served)
    client.send(write(0), version=version)
    coordinator.answer(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING, version)
    assert codes(await client.answered(1)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert len(served.partitions[0].guards) == 0


async def test_a_leader_that_resigns_meanwhile_appends_nothing(served: Served, coordinator: Coordinator) -> None:
    client, partition = Client(served), served.partitions[0]
    client.send(write(0), version=V1)
    partition.resign()
    coordinator.answer(0, ErrorCode.NONE, V1)
    assert codes(await client.answered(1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partition.log.log_end_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_verified_batch_is_not_appended_behind_a_shut_gate(
    served: Served, coordinator: Coordinator, acks: int
) -> None:
    """This broker's metadata store session may have been lost. Another broker may then lead, and its log will lack the
    record.
    """
    client, log = Client(served), served.partitions[0].log
    client.send(write(0, acks=acks), version=V1)
    served.may_lead = False
    coordinator.answer(0, ErrorCode.NONE, V1)
    assert codes(await client.answered(1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert log.log_end_offset == 0
    served.may_lead = True
    client.send(write(0, acks=acks), version=V1)
    coordinator.answer(1, ErrorCode.NONE, V1)
    assert codes(await client.answered(2))[1] == 0, "the same session goes on, and nothing was torn down"


async def test_a_new_leader_epoch_makes_the_answer_worthless(served: Served, coordinator: Coordinator) -> None:
    client, partition = Client(served), served.partitions[0]
    client.send(write(0), version=V1)
    partition.lead(1, (1,))
    coordinator.answer(0, ErrorCode.NONE, V1)
    assert codes(await client.answered(1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "nothing is known, so it comes again"
    assert partition.log.log_end_offset == 0


async def test_under_v2_the_marker_of_the_previous_transaction_changes_nothing(
    served: Served, coordinator: Coordinator
) -> None:
    """The producer continues as soon as the coordinator has logged its decision.

    The marker of the previous transaction has the next transaction's epoch, and may arrive while the next transaction
    is being verified.
    """
    client, partition = Client(served), served.partitions[0]
    client.send(produce(batch(0, epoch=1), transactional_id="txn"), version=V2)
    end = EndTransactionMarker(COMMIT, 0)
    partition.append_marker(end, producer_id=PRODUCER_ID, producer_epoch=1, transaction_version=2)
    coordinator.answer(0, ErrorCode.NONE, V2)
    assert codes(await client.answered(1)) == [0]
    client.send(produce(batch(1, epoch=1), transactional_id="txn"), version=V2)
    assert codes(await client.answered(2))[1] == 0


async def test_e3_under_v2_the_marker_of_the_transaction_itself_keeps_the_record_out(
    served: Served, coordinator: Coordinator
) -> None:
    client, partition = Client(served), served.partitions[0]
    client.send(produce(batch(0, epoch=1), transactional_id="txn"), version=V2)
    end = EndTransactionMarker(COMMIT, 0)
    partition.append_marker(end, producer_id=PRODUCER_ID, producer_epoch=2, transaction_version=2)
    coordinator.answer(0, ErrorCode.NONE, V2)
    assert codes(await client.answered(1)) == [ErrorCode.INVALID_TXN_STATE]


async def test_an_abort_marker_of_another_producer_changes_nothing(served: Served, coordinator: Coordinator) -> None:
    client, partition = Client(served), served.partitions[0]
    client.send(write(0), version=V1)
    partition.append_marker(EndTransactionMarker(ABORT, 0), producer_id=8, producer_epoch=0)
    coordinator.answer(0, ErrorCode.NONE, V1)
    assert codes(await client.answered(1)) == [0]


class CountingCoordinator(Coordinator):
    """Responds for each partition of a verification, and counts verifications."""

    def __init__(self) -> None:
        super().__init__()
        self.about: list[list[Any]] = []

    def verify(self, transactional_id: str, asking: ProducerIdAndEpoch, partitions: Any) -> Any:
        self.about.append(list(partitions))
        return self._question()

    def usual_transactions(self, transactional_id: str) -> None:
        """Return None, so that each verification is a question."""

    def answer_each(self, number: int, *codes: ErrorCode) -> None:
        self.asked[number].set_result(dict(zip(self.about[number], codes, strict=True)))


def write_to_both(sequence: int) -> Any:
    data = ProduceRequest.TopicProduceData
    partitions = [data.PartitionProduceData(index=index, records=batch(sequence)) for index in (0, 1)]
    return ProduceRequest(
        transactional_id="txn", acks=1, timeout_ms=1000, topic_data=[data(name=TOPIC, partition_data=partitions)]
    )


def codes_of_both(response: Any) -> list[int]:
    return [answer.error_code for answer in response.responses[0].partition_responses]


async def test_all_partitions_of_a_produce_request_are_verified_with_one_question(served: Served) -> None:
    coordinator = served.services.transactions = CountingCoordinator()
    client, logs = Client(served), [partition.log for partition in served.partitions]
    client.send(write_to_both(0), version=V1)
    await asyncio.sleep(0)
    assert [len(about) for about in coordinator.about] == [2]
    assert [log.log_end_offset for log in logs] == [0, 0]
    coordinator.answer_each(0, ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    ((_, response),) = await client.answered(1)
    assert codes_of_both(response) == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE], "each has its own answer"
    assert [log.log_end_offset for log in logs] == [1, 0]
    client.send(write_to_both(1), version=V1)
    await asyncio.sleep(0)
    assert [len(about) for about in coordinator.about] == [2, 1], "the first one has the transaction open"
    coordinator.answer_each(1, ErrorCode.NONE)
    await client.answered(2)


@pytest.mark.parametrize("event", ["marker", "leader epoch"])
async def test_e3_an_event_between_question_and_append_repeats_the_question(served: Served, event: str) -> None:
    coordinator = served.services.transactions = CountingCoordinator()
    client, (first, second) = Client(served), served.partitions
    client.send(write_to_both(0), version=V1)
    await asyncio.sleep(0)
    if event == "marker":
        mark(served)
    else:
        first.lead(1, (1,))
    end = first.log.log_end_offset
    coordinator.answer_each(0, ErrorCode.NONE, ErrorCode.NONE)
    async with asyncio.timeout(10):
        while len(coordinator.about) < 2:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert [where.partition for where in coordinator.about[1]] == [0], "partition 1 saw nothing of it"
    assert (first.log.log_end_offset, second.log.log_end_offset) == (end, 1)
    coordinator.answer_each(1, ErrorCode.TRANSACTION_ABORTABLE)
    ((_, response),) = await client.answered(1)
    assert codes_of_both(response) == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
    assert first.log.log_end_offset == end


async def test_a_coordinator_that_never_answers_the_one_question_is_given_up(served: Served) -> None:
    served.services.transactions = CountingCoordinator()
    client = Client(served)
    client.send(write_to_both(0), version=V1)
    await asyncio.sleep(0)
    served.deadlines.fire()
    ((_, response),) = await client.answered(1)
    assert codes_of_both(response) == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2, "it helps to come again"
