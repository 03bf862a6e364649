"""The I/O part of the transaction coordinator: each transaction ends before the next one starts, and transactions that
are open too long are aborted.
"""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.memory_peers import MemoryPeers

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.transaction import coordinator as module
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.machine import TransactionMachine
from oncelog_broker.coordinator.transaction.marker_queue import Decision, Outcome
from oncelog_broker.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    TopicPartition,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.records import TransactionRecord
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1
from oncelog_protocol.producer_id import ProducerIdAndEpoch

TIMEOUT_MS = 1000
NAMES = ["a", "b", "c"]


class ProducerIds:
    """Generates producer ids, or fails if `fails` is set."""

    def __init__(self) -> None:
        self.ids = count(1)
        self.fails = False

    async def generate(self) -> int:
        if self.fails:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return next(self.ids)

    def note_known(self, producer_id: int) -> None:
        """Learn the producer ids of the loaded transactional ids."""


@pytest.fixture
def producer_ids() -> ProducerIds:
    return ProducerIds()


def all_written(decision: Decision) -> None:
    """Reports all markers of a decision as written, immediately; replaces MarkerSender."""
    decision.on_answer(decision, Outcome.COMPLETE)


@pytest.fixture
def transactions(
    internal_topic: Any, producer_ids: ProducerIds, monkeypatch: pytest.MonkeyPatch
) -> TransactionCoordinator:
    monkeypatch.setattr(module, "TRANSACTION_STATE", "__consumer_offsets")
    coordinator = TransactionCoordinator(
        BrokerConfig.of({}),
        internal_topic,
        SimpleNamespace(write=all_written, on_image=lambda: None),  # type: ignore[arg-type]
        RemoteCoordinators(MemoryPeers(), internal_topic.tasks),
        producer_ids,  # type: ignore[arg-type]
        internal_topic.host,
    )
    coordinator.on_image(internal_topic.lead())
    return coordinator


def open_all(transactions: TransactionCoordinator, epochs: dict[str, int]) -> None:
    """Begin one transaction for each of these transactional ids."""
    for number, name in enumerate(NAMES):
        epoch = epochs.get(name, 0)
        shard = transactions.runtime.shard(name)
        metadata = TransactionMetadata(name, 100 + number, epoch, TIMEOUT_MS)
        shard.machine.replay(TransactionRecord(name, metadata), 0, -1)
        partitions = [TopicPartition("t", number)]
        added = transactions.add_partitions(name, ProducerIdAndEpoch(100 + number, epoch), partitions, TRANSACTIONS_V1)
        assert added is ErrorCode.NONE


def states(transactions: TransactionCoordinator) -> dict[str, TransactionState]:
    return {name: transactions.runtime.shard(name).machine.transactions[name].state for name in NAMES}


S = TransactionState


async def test_s40_a_marker_fenced_between_two_terms_is_retried_in_the_later_one(
    transactions: TransactionCoordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decisions: list[Decision] = []
    monkeypatch.setattr(transactions._markers, "write", decisions.append)
    open_all(transactions, {})
    transactions.end_txn("a", ProducerIdAndEpoch(100, 0), True, TRANSACTIONS_V1)
    (decision,) = decisions
    before = decision.coordinator_epoch
    partition = transactions.runtime.shard("a").partition
    monkeypatch.setattr(partition, "leader_epoch", before + 2)
    decision.on_answer(decision, Outcome.FENCED)
    assert decision.coordinator_epoch == before + 2
    decision.on_answer(decision, Outcome.FENCED)
    decision.on_answer(decision, Outcome.FENCED)
    assert decision.coordinator_epoch == before + 2
    assert caplog.text.count("has a marker of a newer coordinator epoch") == 1


@pytest.mark.parametrize("commits", [True, False])
async def test_s38_a_coordinator_of_the_past_confirms_no_end_of_which_it_knows_nothing(
    transactions: TransactionCoordinator, internal_topic: Any, commits: bool
) -> None:
    """The former coordinator has ended a transaction with the same producer id and epoch.

    The producer's next transaction, which has the same producer epoch (before transactions V2), began at the new
    coordinator. Neither the former coordinator nor the producer knows yet that the coordinator role has moved. If the
    former coordinator responded that the transaction has ended, the producer would continue although its new
    transaction is still open.
    """
    open_all(transactions, {})
    producer = ProducerIdAndEpoch(100, 0)
    assert transactions.end_txn("a", producer, commits, TRANSACTIONS_V1) == producer
    assert states(transactions)["a"] is (S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT)
    partition = transactions.runtime.shard("a").partition
    partition.lead(partition.leader_epoch, (1, 2), (1, 2), partition_epoch=1)
    partition.on_follower_fetch(2, partition.log.log_end_offset)
    assert partition.high_watermark == partition.log.log_end_offset, "the other one has all that was done"
    said = transactions.end_txn("a", producer, commits, TRANSACTIONS_V1)
    assert isinstance(said, asyncio.Future), "confirmed without asking anybody"
    transactions.on_image(internal_topic.resign())
    answer = await said
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.NOT_COORDINATOR
    await internal_topic.tasks.close()


async def test_s42_a_transaction_that_cannot_be_aborted_delays_no_other(
    transactions: TransactionCoordinator,
    internal_topic: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    open_all(transactions, {})
    abort = TransactionMachine.abort_timed_out

    def raising(self: TransactionMachine, transactional_id: str, spare: int | None) -> Any:
        assert transactional_id != "a", "nobody thought of it"
        return abort(self, transactional_id, spare)

    monkeypatch.setattr(TransactionMachine, "abort_timed_out", raising)
    internal_topic.advance(2.0)
    await transactions.abort_timed_out()
    await internal_topic.tasks.close()
    assert states(transactions) == {"a": S.ONGOING, "b": S.COMPLETE_ABORT, "c": S.COMPLETE_ABORT}
    assert "nobody thought of it" in caplog.text
    monkeypatch.undo()


async def test_s35_s42_a_timeout_that_needs_a_producer_id_waits_alone(
    transactions: TransactionCoordinator, internal_topic: Any, producer_ids: ProducerIds
) -> None:
    open_all(transactions, {"a": EXHAUSTED_EPOCH})
    producer_ids.fails = True
    internal_topic.advance(2.0)
    await transactions.abort_timed_out()
    assert states(transactions)["a"] is S.ONGOING
    assert S.ONGOING not in (states(transactions)["b"], states(transactions)["c"])
    producer_ids.fails = False
    await transactions.abort_timed_out()
    await internal_topic.tasks.close()
    assert transactions.runtime.shard("a").machine.transactions["a"].producer == ProducerIdAndEpoch(1, 0)
