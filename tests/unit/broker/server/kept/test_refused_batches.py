"""Several batches of a producer are in flight when a broker becomes leader, and the broker must not accept a batch
before an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.producers import sequenced
from tests.support.served import FOLLOWER, LEADER, Client, Served, produce

from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.server.kept import refused_batches as module
from oncelog_broker.server.kept.refused_batches import REMEMBERED_SECONDS, Destination, RefusedBatches
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

PRODUCER = ProducerIdAndEpoch(7, 3)
WHERE = Destination("orders", bytes(16), 0)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def served(tmp_path: Path, clock: ManualClock) -> Iterator[Served]:
    made = Served(tmp_path, clock=clock)
    yield made
    made.leave()


async def sent(client: Client, *sequences: int) -> list[tuple[int, int]]:
    """Send batches of one record each; return (error code, base offset) of each."""
    before = len(client.answers())
    client.send(*[produce(bytes(sequenced(PRODUCER.producer_id, sequence)), acks=1) for sequence in sequences])
    return [outcome(response) for _, response in (await client.answered(before + len(sequences)))[before:]]


def outcome(response: Any) -> tuple[int, int]:
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


async def test_s8_a_batch_refused_by_a_new_leader_must_come_before_all_others(served: Served) -> None:
    """The previous leader had replicated batch 0 but not acknowledged it. If batch 2 got OUT_OF_ORDER_SEQUENCE_NUMBER,
    librdkafka would send batch 0 again in a new producer epoch.
    """
    client, (partition,) = Client(served), served.partitions
    partition.append(memoryview(sequenced(PRODUCER.producer_id, 0)), required_acks=1)
    partition.leader = FOLLOWER
    assert await sent(client, 0, 1) == [(NOT_LEADER, -1), (NOT_LEADER, -1)]
    partition.leader = LEADER
    assert await sent(client, 2, 3) == [(NOT_LEADER, -1), (NOT_LEADER, -1)]
    assert await sent(client, 0, 1, 2, 3) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert await sent(client, 5) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)], "nothing is refused any more"


async def test_the_first_batch_of_a_producer_is_not_overtaken(served: Served) -> None:
    """An unknown producer may begin with any sequence number. If batch 1 were accepted, batch 0 would be out of order
    for ever.
    """
    client, (partition,) = Client(served), served.partitions
    partition.leader = FOLLOWER
    assert await sent(client, 0) == [(NOT_LEADER, -1)]
    partition.leader = LEADER
    assert await sent(client, 1) == [(NOT_LEADER, -1)]
    assert await sent(client, 0, 1) == [(0, 0), (0, 1)]


async def test_the_first_batch_is_not_overtaken_for_a_producer_known_only_by_a_marker(served: Served) -> None:
    """The marker belongs to a transaction that has no records in this partition."""
    client, (partition,) = Client(served), served.partitions
    marker = EndTransactionMarker(ControlType.ABORT, 0)
    partition.append_marker(marker, producer_id=PRODUCER.producer_id, producer_epoch=0)
    partition.leader = FOLLOWER
    assert await sent(client, 0) == [(NOT_LEADER, -1)]
    partition.leader = LEADER
    assert await sent(client, 1) == [(NOT_LEADER, -1)]
    assert await sent(client, 0, 1) == [(0, 1), (0, 2)]


async def test_a_lost_batch_is_reported_as_lost_in_the_end(served: Served, clock: ManualClock) -> None:
    client, (partition,) = Client(served), served.partitions
    partition.append(memoryview(sequenced(PRODUCER.producer_id, 0)), required_acks=1)
    partition.leader = FOLLOWER
    assert await sent(client, 1) == [(NOT_LEADER, -1)]
    partition.leader = LEADER
    assert await sent(client, 2) == [(NOT_LEADER, -1)]
    clock.advance_ms(int(REMEMBERED_SECONDS * 1000) + 1)
    assert await sent(client, 2) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def test_the_first_refused_batch_of_the_newest_epoch_counts() -> None:
    refused, older, newer = RefusedBatches(), ProducerIdAndEpoch(7, 2), ProducerIdAndEpoch(7, 4)
    refused.note(WHERE, PRODUCER, 5, NOT_LEADER, 0.0)
    refused.note(WHERE, PRODUCER, 9, ErrorCode.NOT_ENOUGH_REPLICAS, 1.0)
    refused.note(WHERE, older, 1, NOT_LEADER, 1.0)
    assert [refused.reason(WHERE, PRODUCER, sequence, 2.0) for sequence in (4, 5, 6)] == [None, None, NOT_LEADER]
    assert refused.reason(WHERE, newer, 6, 2.0) is None
    assert refused.reason(Destination("orders", bytes(16), 1), PRODUCER, 6, 2.0) is None
    refused.note(WHERE, newer, 0, NOT_LEADER, 3.0)
    assert refused.reason(WHERE, newer, 1, 4.0) is NOT_LEADER
    assert refused.reason(WHERE, PRODUCER, 6, 4.0) is None


def test_a_bounded_number_of_refused_batches_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REFUSED", 2)
    refused = RefusedBatches()
    for producer_id in range(3):
        refused.note(WHERE, ProducerIdAndEpoch(producer_id, 0), 0, NOT_LEADER, 0.0)
    assert len(refused.lowest) == 2
    assert refused.reason(WHERE, ProducerIdAndEpoch(0, 0), 1, 0.0) is None


def test_no_refused_batch_of_an_illegal_topic_name_is_remembered() -> None:
    """A client may send topic names of 32 KB, and ten thousand of them would take 300 MB."""
    refused = RefusedBatches()
    refused.note(Destination("x" * 250, bytes(16), 0), PRODUCER, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0.0)
    assert not refused.lowest


def test_settled_refusals_are_forgotten_while_others_continue() -> None:
    """While the broker remembers any refused batch, it checks each batch; refusals that no longer matter must therefore
    be removed.
    """
    refused = RefusedBatches()
    for producer_id in range(3):
        refused.note(WHERE, ProducerIdAndEpoch(producer_id, 0), 0, NOT_LEADER, float(producer_id))
    for _ in range(3):
        refused.forget(WHERE, 9, REMEMBERED_SECONDS + 1.5)
    assert len(refused.lowest) == 1
