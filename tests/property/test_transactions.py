"""The coordinator keeps its invariants for a transactional id under any sequence of requests, retries, timeouts, failed
writes and reloads.

Producers behave like clients: they initialise, add partitions and end transactions; some use old epochs or repeat
requests.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.transactions import P0, P1, TIMEOUT_MS, TXN, V1, V2, TransactionDriver, legal_history

from oncelog_broker.coordinator.transaction.machine import Granted
from oncelog_broker.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    FENCING_EPOCH,
    NO_EPOCH,
    NO_TIMEOUT_MS,
    TopicPartition,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.states import LEGAL_PREVIOUS, TransactionState
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

CLIENTS = st.integers(0, 2)
PARTITIONS = st.sets(st.sampled_from([P0, P1, TopicPartition("other", 0)]), min_size=1)
EPOCH_NOISE = st.sampled_from([0, 0, 0, 0, -1, 1])
EPOCHS = st.sampled_from([0, 5, EXHAUSTED_EPOCH - 2, EXHAUSTED_EPOCH, FENCING_EPOCH])


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver()
        self.clients: list[ProducerIdAndEpoch | None] = [None, None, None]
        self.versions = [V1, V2, V2]
        self.granted: dict[ProducerIdAndEpoch, int] = {}
        """(Producer id, epoch) -> the producer that received this pair."""
        self.decided: dict[ProducerIdAndEpoch, bool] = {}
        """(Producer id, epoch) -> the outcome that the coordinator reported for the transaction; in transactions V2
        each epoch has one transaction.
        """

    @precondition(lambda self: not self.driver.log)
    @rule(epoch=EPOCHS)
    def begins_with_an_old_id(self, epoch: int) -> None:
        self.driver.put(TransactionMetadata(TXN, 7, epoch, TIMEOUT_MS))

    @rule(client=CLIENTS, shows=st.booleans())
    def init(self, client: int, shows: bool) -> None:
        shown = self.clients[client] if shows else None
        answer = self.driver.init(shown)
        if isinstance(answer, ProducerIdAndEpoch):
            assert answer.epoch <= EXHAUSTED_EPOCH, "the last epoch is for fencing alone"
            assert self.granted.setdefault(answer, client) == client, "two producers with one id and epoch"
            self.clients[client] = answer

    @rule(client=CLIENTS, two_phase=st.booleans())
    def keep(self, client: int, two_phase: bool) -> None:
        """Initialise a producer that keeps the open transaction unchanged (S120)."""
        before = self.driver.machine.transactions.get(TXN)
        granted = self.driver.init_two_phase(two_phase=two_phase)
        if not isinstance(granted, Granted):
            return
        assert granted.producer.epoch <= EXHAUSTED_EPOCH, "the last epoch is for fencing alone"
        assert self.granted.setdefault(granted.producer, client) == client, "two producers with one id and epoch"
        is_open = before is not None and before.state is TransactionState.ONGOING
        assert granted.kept_open == (before.producer if is_open and before is not None else None)
        self.clients[client] = granted.producer

    @rule(client=CLIENTS, partitions=PARTITIONS, noise=EPOCH_NOISE)
    def add(self, client: int, partitions: Any, noise: int) -> None:
        producer = self.clients[client]
        if producer is None:
            return
        asking = producer._replace(epoch=producer.epoch + noise)
        answer = self.driver.add(asking, *partitions, version=self.versions[client])
        if answer is ErrorCode.NONE:
            assert asking == self.driver.metadata.producer
            assert asking.epoch <= EXHAUSTED_EPOCH
            assert partitions <= self.driver.metadata.partitions

    @rule(client=CLIENTS, commits=st.booleans(), noise=EPOCH_NOISE, is_lost=st.booleans())
    def end(self, client: int, commits: bool, noise: int, is_lost: bool) -> None:
        """End the producer's transaction. `is_lost` means that the client never receives the response and may repeat
        the request.
        """
        producer = self.clients[client]
        if producer is None:
            return
        version = self.versions[client]
        asking = producer._replace(epoch=producer.epoch + noise)
        answer = self.driver.end(asking, commits, version)
        if not isinstance(answer, ProducerIdAndEpoch):
            return
        assert answer.epoch <= EXHAUSTED_EPOCH, "the last epoch is for fencing alone"
        if version == V2:
            assert self.decided.setdefault(asking, commits) is commits, "an answer was taken back"
            assert answer != asking
            assert self.granted.setdefault(answer, client) == client or noise, "two producers with one id and epoch"
        else:
            assert answer == asking
        if not is_lost and not noise:
            self.clients[client] = answer

    @rule()
    def markers_are_written(self) -> None:
        self.driver.complete()
        assert not any(metadata.state.is_prepared for metadata in self.driver.machine.transactions.values())

    @rule(seconds=st.sampled_from([1, TIMEOUT_MS / 1000 + 1, 8 * 24 * 3600]))
    def time_passes(self, seconds: float) -> None:
        self.driver.advance(seconds)

    @rule()
    def sweep(self) -> None:
        if not self.driver.fail_appends:
            self.driver.abort_timed_out()
            assert self.driver.machine.timed_out() == []

    @rule()
    def expire(self) -> None:
        if self.driver.fail_appends:
            return
        before = dict(self.driver.machine.transactions)
        if self.driver.expire():
            assert not before[TXN].state.is_prepared
            assert before[TXN].state is not TransactionState.ONGOING

    @rule()
    def reload(self) -> None:
        self.driver.reload()

    @rule(producer_client=CLIENTS, commits=st.booleans())
    def a_failed_append_changes_nothing(self, producer_client: int, commits: bool) -> None:
        producer = self.clients[producer_client] or ProducerIdAndEpoch(1, 1)
        before, ends = dict(self.driver.machine.transactions), len(self.driver.ends)
        self.driver.fail_appends = True
        self.driver.init()
        self.driver.add(producer, version=V2)
        self.driver.end(producer, commits, V2)
        self.driver.fail_appends = False
        assert dict(self.driver.machine.transactions) == before
        assert len(self.driver.ends) == ends

    @invariant()
    def the_log_says_it_all(self) -> None:
        known = self.driver.machine.transactions.items()
        logged = {key: metadata._replace(last_epoch=NO_EPOCH, next_timeout_ms=NO_TIMEOUT_MS) for key, metadata in known}
        assert dict(self.driver.reloaded().transactions) == logged

    @invariant()
    def each_state_follows_legally(self) -> None:
        assert legal_history(self.driver.states, LEGAL_PREVIOUS)

    @invariant()
    def what_is_decided_is_being_finished(self) -> None:
        metadata = self.driver.machine.transactions.get(TXN)
        if metadata is not None and metadata.state.is_prepared:
            assert [end.producer for end in self.driver.ends][-1] == metadata.producer

    @invariant()
    def epochs_end_with_the_producer_id(self) -> None:
        """If the last epoch fences the producer, the coordinator has already allocated the next producer id."""
        for metadata in self.driver.machine.transactions.values():
            if metadata.producer_epoch == FENCING_EPOCH and len(self.driver.log) > 1:
                assert metadata.state.is_prepared
                assert metadata.next_producer_id >= 0

    @invariant()
    def partitions_belong_to_a_transaction(self) -> None:
        for metadata in self.driver.machine.transactions.values():
            is_in_one = metadata.state is TransactionState.ONGOING or metadata.state.is_prepared
            assert is_in_one or not metadata.partitions


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(examples(50, of=150), stateful_step_count=40)
