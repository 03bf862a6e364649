"""A prepared transaction ends exactly once, and with the outcome that its application decided, whichever process takes
over the transaction (S120).

The application has several processes, which share one transactional id. Each process keeps the open transaction that it
finds, gets responses late or never, is paused, and repeats old requests. The coordinator moves, and its appends fail.
The model is an application with one decision per transaction; every process that ends the transaction sends that
decision.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.transactions import P0, P1, TXN, V2, TransactionDriver

from oncelog_broker.coordinator.transaction.machine import Granted, TransactionEnd
from oncelog_broker.coordinator.transaction.metadata import EXHAUSTED_EPOCH, NO_TIMEOUT_MS, TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

PROCESSES = st.integers(0, 2)
LONGER_THAN_ANY_TIMEOUT_SECONDS = 30 * 24 * 3600


class Prepared(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver()
        self.pairs: list[set[ProducerIdAndEpoch]] = [set(), set(), set()]
        """Process -> all pairs (producer id, epoch) that it ever received; a paused process may use any of them."""
        self.newest: ProducerIdAndEpoch | None = None
        self.wrote: ProducerIdAndEpoch | None = None
        """The pair (producer id, epoch) in the records of the open transaction."""
        self.ended: dict[ProducerIdAndEpoch, bool] = {}
        """(Producer id, epoch) of a transaction's records -> the coordinator's decision about the transaction."""

    @precondition(lambda self: not self.driver.log)
    @rule(epoch=st.sampled_from([0, EXHAUSTED_EPOCH - 3, EXHAUSTED_EPOCH - 1]))
    def begins_with_an_old_id(self, epoch: int) -> None:
        self.driver.put(TransactionMetadata(TXN, 7, epoch, NO_TIMEOUT_MS))

    @rule(process=PROCESSES, is_lost=st.booleans())
    def start(self, process: int, is_lost: bool) -> None:
        """Start a process, or restart a paused one; `is_lost` means that the process never receives the response."""
        granted = self.driver.init_two_phase()
        if not isinstance(granted, Granted):
            assert granted is ErrorCode.CONCURRENT_TRANSACTIONS
            return
        assert granted.kept_open == self.wrote, "a prepared transaction was lost, or another one was told"
        self.newest = granted.producer
        if not is_lost:
            self.pairs[process].add(granted.producer)

    @rule(process=PROCESSES)
    def write(self, process: int) -> None:
        for pair in self.pairs[process]:
            if self.driver.add(pair, P0, P1, version=V2) is ErrorCode.NONE:
                assert pair == self.newest, "a fenced process has written"
                self.wrote = pair

    @rule(process=PROCESSES, commits=st.booleans(), is_lost=st.booleans())
    def end(self, process: int, commits: bool, is_lost: bool) -> None:
        """Let the process send the end of the transaction with every pair that it ever received."""
        for pair in list(self.pairs[process]):
            before, was_open = self.wrote, self.driver.machine.transactions[TXN].state is TransactionState.ONGOING
            answer = self.driver.end(pair, commits, V2)
            metadata = self.driver.metadata
            if was_open and metadata.state.is_prepared:
                assert pair == self.newest, "a fenced process has ended the transaction"
                assert before is not None
                assert before not in self.ended, "ended twice"
                self.ended[before] = commits
                self.wrote = None
            if isinstance(answer, ProducerIdAndEpoch):
                self.newest = answer
                if not is_lost:
                    self.pairs[process].add(answer)

    @rule()
    def markers_are_written(self) -> None:
        for end in self.driver.complete():
            self.check_marker(end)

    def check_marker(self, end: TransactionEnd) -> None:
        if end.partitions:
            wrote = end.producer._replace(epoch=end.producer.epoch - 1)
            assert self.ended[wrote] is end.commits, "a marker that says what nobody has decided"

    @rule()
    def time_passes(self) -> None:
        self.driver.advance(LONGER_THAN_ANY_TIMEOUT_SECONDS)
        assert self.driver.abort_timed_out() == []

    @rule()
    def the_coordinator_moves(self) -> None:
        self.driver.reload()

    @rule()
    def appends_fail(self) -> None:
        before = dict(self.driver.machine.transactions)
        self.driver.fail_appends = True
        self.driver.init_two_phase()
        for pairs in self.pairs:
            for pair in pairs:
                self.driver.end(pair, True, V2)
        self.driver.fail_appends = False
        assert dict(self.driver.machine.transactions) == before

    @invariant()
    def what_is_not_ended_is_open(self) -> None:
        if self.wrote is not None:
            assert self.driver.state is TransactionState.ONGOING
            assert self.driver.metadata.producer == self.wrote
            assert self.driver.metadata.client == self.newest


TestPrepared = Prepared.TestCase
TestPrepared.settings = settings(examples(50, of=150), stateful_step_count=40)
