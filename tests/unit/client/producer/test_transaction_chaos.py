"""Whichever requests of a transaction fail, and in whichever way, consumers see either all of the transaction's records
or none (E1, E2, S38).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, Step
from tests.support.transactional_producers import (
    GROUP,
    started,
)

from oncelog.cluster import TopicPartition
from oncelog.errors import (
    AbortableError,
)
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# --- random faults


class Chaos:
    """A third of the requests fail; a request without a response may be handled late, even in a later transaction."""

    REFUSED = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | TxnOffsetCommitRequest | ProduceRequest

    def __init__(self, coordinator: FakeCoordinator, seed: int) -> None:
        self.coordinator = coordinator
        self.rng = random.Random(seed)
        self.late: list[tuple[Any, int]] = []
        for kind in coordinator.broker.handlers:
            coordinator.broker.handlers[kind] = self.handle

    async def handle(self, request: Any) -> Any:
        coordinator, rng = self.coordinator, self.rng
        if self.late and rng.random() < 0.3:
            coordinator.answer(*self.late.pop(rng.randrange(len(self.late))))
        outcome = rng.choice(["fine"] * 8 + ["lost", "dropped", "passes", "abortable"])
        step: Any = Step.PASS
        if outcome in ("lost", "dropped"):
            if isinstance(request, self.REFUSED | EndTxnRequest):
                self.late.append((request, coordinator.broker.version))
            step = Step.LOST if outcome == "lost" else Step.DROPPED
        elif outcome == "passes":
            step = rng.choice([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS])
        elif outcome == "abortable" and isinstance(request, self.REFUSED):
            step = ErrorCode.TRANSACTION_ABORTABLE
        coordinator.script[type(request)] = [step]
        return await coordinator._handle(request)


@pytest.mark.parametrize("seed", range(8))
async def test_e1_e2_s38_a_transaction_is_visible_as_a_whole_or_not_at_all(
    coordinator: FakeCoordinator, seed: int
) -> None:
    chaos = Chaos(coordinator, seed)
    coordinator.broker.topics["topic"] = 2
    expected: dict[tuple[str, int], list[bytes]] = {}
    offsets: dict[tuple[str, str, int], int] = {}
    async with started(coordinator, batch_size=100, retry_backoff_ms=0, retry_backoff_max_ms=1) as producer:
        for number in range(15):
            values = [b"%d.%d" % (number, index) for index in range(chaos.rng.randrange(6))]
            try:
                async with producer.transaction():
                    for index, value in enumerate(values):
                        await producer.send("topic", value, partition=index % 2)
                    if chaos.rng.random() < 0.5:
                        place = chaos.rng.randrange(3)
                        await producer.send_offsets({TopicPartition("in", place): number}, GROUP)
                    else:
                        place = -1
                    if chaos.rng.random() < 0.2:
                        raise ZeroDivisionError
            except (AbortableError, ZeroDivisionError):
                continue
            for index, value in enumerate(values):
                expected.setdefault(("topic", index % 2), []).append(value)
            if place >= 0:
                offsets["g", "in", place] = number
    assert coordinator.committed == expected
    assert coordinator.offsets == offsets
