"""A TransactionMachine without a runtime: the driver carries out effects immediately, counts time as a number, and
stores the decided transactions.

`log` has the records that the machine logged, so that a second machine can replay them. `fail_appends` makes every
append fail. A step whose records could not be logged must leave the machine unchanged (S85), and the driver checks this
each time. `ends` are the decided transactions whose markers are not written yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import Granted, TransactionEnd, TransactionMachine
from oncelog_broker.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    NeedsProducerId,
    TopicPartition,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
TXN = "txn"
V1, V2 = TRANSACTIONS_V1, TRANSACTIONS_V2
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Answer:
    """The response to one request."""

    def __init__(self) -> None:
        self.response: Any = None

    def answer(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        self.response = response


class TransactionDriver:
    """Sends requests to the machine and returns the results.

    A result is a ProducerIdAndEpoch, ErrorCode.NONE, or an error code. The transactional id is always TXN.
    """

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig(two_phase_commit_enable=True)
        self.seconds = 0.0
        self.wall_offset_ms = 0
        self.producer_ids = count(1000)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.states: list[TransactionState] = []
        """The states of TXN in the order in which they were logged."""
        self.ends: list[TransactionEnd] = []
        self.fail_appends = False
        self.machine = self._new_machine()

    def _new_machine(self) -> TransactionMachine:
        return TransactionMachine(self.config, self.now_ms, lambda: self.seconds)

    def now_ms(self) -> int:
        return START_MS + int(self.seconds * 1000) + self.wall_offset_ms

    # --- methods that do the work of the coordinator runtime

    def carry_out(self, effects: Effects, machine: TransactionMachine | None = None) -> int:
        machine = machine or self.machine
        if effects.records and self.fail_appends:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for record in effects.records:
            self.log.append(machine.encode(record))
            self.states.append(TransactionState.DEAD if record.metadata is None else record.metadata.state)
            machine.replay(record, len(self.log), -1)
        assert not effects.changes
        assert not effects.timers
        for waiter, response in effects.replies:
            waiter.answer(response)
        self.ends += effects.ends
        return len(effects.records)

    def reloaded(self) -> TransactionMachine:
        """Return another machine that has replayed the log; no effects of its `on_loaded` are carried out."""
        machine = self._new_machine()
        for offset, (key, value) in enumerate(self.log):
            record = machine.decode(key, value)
            assert record is not None
            machine.replay(record, offset, -1)
        return machine

    def reload(self) -> None:
        """Move the coordinator, which loses all state that is only in memory."""
        self.machine = self.reloaded()
        self.ends.clear()
        for effects in self.machine.on_loaded():
            self.carry_out(effects)

    # --- requests

    def _call(self, operation: Any) -> Any:
        answer, before = Answer(), dict(self.machine.transactions)
        try:
            try:
                effects = operation(None, answer)
            except NeedsProducerId:
                effects = operation(next(self.producer_ids), answer)
            self.carry_out(effects)
        except KafkaError as error:
            assert dict(self.machine.transactions) == before, (
                "a step that was refused, or not logged, changed something"
            )
            assert answer.response is None
            return error.code
        assert answer.response is not None, "never answered"
        return answer.response.code if isinstance(answer.response, KafkaError) else answer.response

    def init(
        self,
        shown: ProducerIdAndEpoch | None = None,
        timeout_ms: int = TIMEOUT_MS,
        name: str = TXN,
        *,
        two_phase: bool = False,
    ) -> Any:
        answer = self._call(
            lambda spare, waiter: self.machine.init_producer_id(
                name, timeout_ms, shown, spare, waiter, two_phase=two_phase
            )
        )
        if not isinstance(answer, Granted):
            return answer
        assert answer.kept_open is None
        return answer.producer

    def init_two_phase(self, shown: ProducerIdAndEpoch | None = None, *, two_phase: bool = True) -> Any:
        """Send an InitProducerId that keeps an open transaction; return Granted or an ErrorCode."""
        return self._call(
            lambda spare, waiter: self.machine.init_producer_id(
                TXN, TIMEOUT_MS, shown, spare, waiter, two_phase=two_phase, keeps_open=True
            )
        )

    def add(self, asking: ProducerIdAndEpoch, *partitions: TopicPartition, version: int = V1, name: str = TXN) -> Any:
        return self._call(
            lambda _, waiter: self.machine.add_partitions(name, asking, partitions or (P0,), version, waiter)
        )

    def end(self, asking: ProducerIdAndEpoch, commits: bool = True, version: int = V1, name: str = TXN) -> Any:
        return self._call(lambda spare, waiter: self.machine.end_txn(name, asking, commits, version, spare, waiter))

    def verify(self, asking: ProducerIdAndEpoch, *partitions: TopicPartition) -> Any:
        try:
            return self.machine.verify(TXN, asking, partitions or (P0,))
        except KafkaError as error:
            return error.code

    def complete(self) -> list[TransactionEnd]:
        """Write the markers of all decided transactions. Returns the transactions that are complete now."""
        ends, self.ends = self.ends, []
        return [end for end in ends if self.carry_out(self.machine.complete(end))]

    def run(self, asking: ProducerIdAndEpoch, commits: bool = True, version: int = V1) -> ProducerIdAndEpoch:
        """Run an entire transaction. Returns the producer id and epoch for the next transaction."""
        assert self.add(asking, version=version) is ErrorCode.NONE
        after = self.end(asking, commits, version)
        assert isinstance(after, ProducerIdAndEpoch), after
        self.complete()
        return after

    # --- time and inspection

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def abort_timed_out(self) -> list[str]:
        timed_out = self.machine.timed_out()
        for transactional_id in timed_out:
            try:
                effects = self.machine.abort_timed_out(transactional_id, None)
            except NeedsProducerId:
                effects = self.machine.abort_timed_out(transactional_id, next(self.producer_ids))
            self.carry_out(effects)
        return timed_out

    def expire(self) -> int:
        return self.carry_out(self.machine.expire())

    @property
    def metadata(self) -> TransactionMetadata:
        return self.machine.transactions[TXN]

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    def put(self, metadata: TransactionMetadata) -> None:
        """Set the state as if a logged record had set it."""
        from oncelog_broker.coordinator.transaction.records import TransactionRecord

        effects = Effects()
        effects.append(TransactionRecord(metadata.transactional_id, metadata))
        self.carry_out(effects)


def legal_history(states: Iterable[TransactionState], table: Any) -> bool:
    """Whether each logged state may legally follow the state before it. A logged PrepareAbort may also have fenced a
    producer.
    """
    before = None
    for state in states:
        if before is TransactionState.DEAD:
            before = None
        if before is None:
            if state is not TransactionState.EMPTY:
                return False
        elif before not in table[state]:
            return False
        before = state
    return True


def begun(driver: TransactionDriver, version: int = V1) -> ProducerIdAndEpoch:
    """Return a producer with an open transaction in two partitions."""
    producer = driver.init()
    assert driver.add(producer, P0, P1, version=version) is ErrorCode.NONE
    return producer


def exhausted(
    driver: TransactionDriver, state: TransactionState = TransactionState.EMPTY, epoch: int = EXHAUSTED_EPOCH
) -> ProducerIdAndEpoch:
    """Create a transactional id whose producer has used all of its epochs."""
    partitions = frozenset({P0}) if state is TransactionState.ONGOING else frozenset()
    driver.put(TransactionMetadata(TXN, 7, epoch, TIMEOUT_MS, state, partitions, start_timestamp=driver.now_ms()))
    return ProducerIdAndEpoch(7, epoch)
