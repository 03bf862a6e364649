"""Verification by a coordinator that may already have been replaced (E2, KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.memory_peers import MemoryPeers
from tests.support.producers import ABORT, sequenced
from tests.support.storage import open_log

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.transaction import coordinator as module
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.machine import Granted
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.coordinator.transaction.verification import check_in_transaction
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.control import EndTransactionMarker

PRODUCER = ProducerIdAndEpoch(100, 0)
WHERE = TopicPartition("t", 0)


class ProducerIds:
    async def generate(self) -> int:
        return PRODUCER.producer_id

    def note_known(self, producer_id: int) -> None:
        """Learn the producer ids of the loaded transactional ids."""


@pytest.fixture
async def coordinator(internal_topic: Any, monkeypatch: pytest.MonkeyPatch) -> TransactionCoordinator:
    """A transaction coordinator at which `PRODUCER` has an open transaction that writes to the partition `WHERE`."""
    monkeypatch.setattr(module, "TRANSACTION_STATE", "__consumer_offsets")
    made = TransactionCoordinator(
        BrokerConfig.of({}),
        internal_topic,
        SimpleNamespace(write=lambda decision: None, on_image=lambda: None),  # type: ignore[arg-type]
        RemoteCoordinators(MemoryPeers(), internal_topic.tasks),
        ProducerIds(),  # type: ignore[arg-type]
        internal_topic.host,
    )
    made.on_image(internal_topic.lead())
    given = made.init_producer_id("a", 1000, None)
    assert isinstance(given, asyncio.Future)
    assert await given == Granted(PRODUCER)
    assert made.add_partitions("a", PRODUCER, [WHERE], TRANSACTIONS_V1) is ErrorCode.NONE
    return made


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    made = Partition(WHERE.topic, bytes(16), WHERE.partition, open_log(tmp_path / "t-0"), broker_id=1)
    made.lead(0, (1,))
    yield made
    made.log.close()


def produce(coordinator: TransactionCoordinator, partition: Partition, deadlines: Any, sequence: int) -> Any:
    """Append a batch of `PRODUCER`; return None, or the error that prevented the append."""
    refused = check_in_transaction(coordinator, "a", PRODUCER, [partition], deadlines, registers=False)
    assert not isinstance(refused, asyncio.Future)
    if refused is None:
        batch = sequenced(PRODUCER.producer_id, sequence, transactional=True)
        partition.append(memoryview(batch), required_acks=-1)
    return refused


async def test_e2_a_former_coordinator_lets_no_late_batch_into_an_ended_transaction(
    coordinator: TransactionCoordinator, partition: Partition, internal_topic: Any
) -> None:
    """Neither this broker nor the partition's leader knows yet that another broker coordinates the transactional id.

    The new coordinator has ended the transaction, and the transaction's marker is written. Before transactions V2 the
    producer's next transaction has the same epoch.
    """
    assert produce(coordinator, partition, internal_topic, 0) is None
    later = internal_topic.epoch + 1
    partition.append_marker(EndTransactionMarker(ABORT, later), producer_id=PRODUCER.producer_id, producer_epoch=0)
    refused = produce(coordinator, partition, internal_topic, 1)
    assert partition.last_stable_offset == partition.high_watermark, "a transaction that nobody ends"
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.NOT_ENOUGH_REPLICAS, "it comes again, and the image will be newer then"


async def test_e2_an_end_by_the_coordinator_itself_does_not_block_the_next_transaction(
    coordinator: TransactionCoordinator, partition: Partition, internal_topic: Any
) -> None:
    assert produce(coordinator, partition, internal_topic, 0) is None
    marker = EndTransactionMarker(ABORT, internal_topic.epoch)
    partition.append_marker(marker, producer_id=PRODUCER.producer_id, producer_epoch=0)
    assert produce(coordinator, partition, internal_topic, 1) is None
