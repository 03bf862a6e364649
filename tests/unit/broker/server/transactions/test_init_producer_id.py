"""InitProducerId gives ids to idempotent producers, and takes transactional ids over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked

from oncelog_broker.coordinator.transaction.machine import Granted
from oncelog_broker.metadata.membership.producer_ids import ProducerIdsExhausted
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.transactions import init_producer_id
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch

NONE = (-1, -1)


class Coordinator:
    def __init__(self, error: ErrorCode | None = None) -> None:
        self.error = error
        self.asked: list[tuple[Any, ...]] = []
        self.last_clients = SimpleNamespace(note=lambda *_: None)

    def init_producer_id(self, *of: Any, two_phase: bool, keeps_open: bool) -> Any:
        assert not two_phase
        assert not keeps_open
        self.asked.append(of)
        return Granted(ProducerIdAndEpoch(7, 1)) if self.error is None else KafkaError(self.error)


async def init(
    version: int = 5,
    *,
    transactional_id: str | None = "t",
    present: tuple[int, int] = NONE,
    refused: Any = (),
    coordinator: Coordinator | None = None,
    failure: Exception | None = None,
) -> tuple[int, int, int]:
    async def generate() -> int:
        if failure is not None:
            raise failure
        return 1000

    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=present[0],
        producer_epoch=present[1],
    )
    context = asked(
        ApiKey.INIT_PRODUCER_ID,
        version,
        refused=refused,
        transactions=coordinator or Coordinator(),
        producer_ids=SimpleNamespace(generate=generate),
    )
    answer = await answered(init_producer_id.handle, request, context)
    await context.services.tasks.close()
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def test_any_broker_gives_a_producer_id_without_transactional_id() -> None:
    assert await init(transactional_id=None) == (ErrorCode.NONE, 1000, 0)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ProducerIdsExhausted(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_missing_producer_id_block_is_a_retriable_error(failure: Exception, code: ErrorCode) -> None:
    assert await init(transactional_id=None, failure=failure) == (code, -1, -1)


async def test_either_of_two_rights_is_enough_for_idempotence() -> None:
    cluster, topic = rules.INIT_PRODUCER_ID, rules.INIT_FOR_ANY_TOPIC
    for refused in ({cluster}, {topic}):
        assert (await init(transactional_id=None, refused=refused))[0] == ErrorCode.NONE
    denied = await init(transactional_id=None, refused={cluster, topic})
    assert denied == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1)


@pytest.mark.parametrize(("present", "shown"), [(NONE, None), ((7, 0), ProducerIdAndEpoch(7, 0))])
async def test_the_coordinator_hears_who_the_producer_is(present: tuple[int, int], shown: Any) -> None:
    coordinator = Coordinator()
    assert await init(present=present, coordinator=coordinator) == (ErrorCode.NONE, 7, 1)
    assert coordinator.asked == [("t", 60_000, shown)]


@pytest.mark.parametrize(("transactional_id", "present"), [("", NONE), ("t", (7, -1)), ("t", (-1, 0)), (None, (7, -1))])
async def test_t21_id_and_epoch_come_together(transactional_id: str | None, present: tuple[int, int]) -> None:
    coordinator = Coordinator()
    refused = await init(transactional_id=transactional_id, present=present, coordinator=coordinator)
    assert refused == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert coordinator.asked == []


async def test_taking_over_a_transactional_id_needs_the_right() -> None:
    coordinator = Coordinator()
    refused = await init(refused={(rules.INIT_TRANSACTION, "t")}, coordinator=coordinator)
    assert refused == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
    assert coordinator.asked == []


@pytest.mark.parametrize(("version", "told"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
async def test_a_fenced_producer_gets_the_error_code_of_its_version(version: int, told: ErrorCode) -> None:
    assert (await init(version, coordinator=Coordinator(ErrorCode.PRODUCER_FENCED)))[0] == told
