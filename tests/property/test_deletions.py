"""Records that DeleteRecords reported as deleted are gone from every replica that may become leader, even after a kill.

The test adds DeleteRecords to the state machine of `tests/support/replication_machine.py`. A broker moves its log start
first and writes it to disk
later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from tests.support import replication_machine
from tests.support.examples import examples
from tests.support.replication_machine import BROKER, BROKERS, LAG_SECONDS, ReplicationMachine

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.replication import isr
from oncelog_broker.replication import partition as partition_module
from oncelog_broker.replication.fetch_response import position_of
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.records.batch import batches


class Deletion(NamedTuple):
    """A DeleteRecords request without a response yet."""

    broker: int
    incarnation: int
    leader_epoch: int
    offset: int


class DeletingMachine(ReplicationMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deletions: list[Deletion] = []
        self.requested = 0
        """A replica may have deleted records only below this offset."""
        self.deleted = 0
        """A response confirmed that all in-sync replicas have deleted the records below this offset."""

    @rule(broker=BROKER, kept=st.integers(0, 2))
    def delete_records(self, broker: int, kept: int) -> None:
        """Delete all but `kept` of the replicated records. The leader writes its log start to disk before the request
        waits for followers.
        """
        led = self.alive(broker)
        if led is None or not led.leads:
            return
        offset = max(0, led.high_watermark - kept)
        led.log.trimmer.delete_records_before(offset)
        led.log.state.checkpointed_start = led.log.log_start_offset
        self.requested = max(self.requested, offset)
        self.deletions.append(Deletion(broker, self.incarnations[broker], led.leader_epoch, offset))

    @rule(broker=BROKER)
    def note_log_start(self, broker: int) -> None:
        here = self.alive(broker)
        if here is not None:
            here.log.state.checkpointed_start = here.log.log_start_offset

    @rule(broker=BROKER)
    def kill_and_start(self, broker: int) -> None:
        """Kill and restart a broker, whose log then begins at the log start that is on its disk."""
        if self.alive(broker) is not None:
            self.die(broker, noticed=False)
            log = self.logs[broker]
            log.state.log_start_offset = log.state.durable_start_offset
            self.come_back(broker, 0.0)

    @invariant()
    def what_was_deleted_stays_so(self) -> None:
        for deletion in list(self.deletions):
            led = self.alive(deletion.broker)
            if led is None or not led.leads or (self.incarnations[deletion.broker], led.leader_epoch) != deletion[1:3]:
                self.deletions.remove(deletion)  # the leader changed, so the request failed or got no response
            elif led.low_watermark >= deletion.offset:
                self.deletions.remove(deletion)
                self.deleted = max(self.deleted, deletion.offset)
        for member in self.state.isr:
            assert self.logs[member].state.durable_start_offset >= self.deleted, member

    # --- invariants of the base machine, restricted to offsets that both logs still have

    @invariant()
    def strong_isr(self) -> None:
        for broker in BROKERS:
            led = self.alive(broker)
            if led is None or not led.leads:
                continue
            for member in self.state.isr:
                start = max(led.log.log_start_offset, self.logs[member].log_start_offset)
                committed = self._between(broker, start, led.high_watermark)
                assert self._between(member, start, led.high_watermark) == committed, (broker, member)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        self._settle_committed()
        for member in self.state.isr:
            log = self.logs[member]
            everything = self._between(member, log.log_start_offset, log.log_end_offset)
            for offset, batch in self.acknowledged.items():
                assert batch in everything or offset < self.requested, (offset, member)

    @invariant()
    def logs_are_the_same_below_the_high_watermarks(self) -> None:
        for one in BROKERS:
            for other in BROKERS[:one]:
                first, second = self.alive(one), self.alive(other)
                if first is not None and second is not None:
                    start = max(first.log.log_start_offset, second.log.log_start_offset)
                    end = min(first.high_watermark, second.high_watermark)
                    assert self._between(one, start, end) == self._between(other, start, end), (one, other, end)

    def _between(self, member: int, start: int, end: int) -> bytes:
        """Return the batches of a replica in [start, end); if the replica's log is offline, read the batches from its
        files.
        """
        log = self.logs[member]
        if not log.is_offline:
            return content(log, start, end)
        held = batches(self.held[member])
        return b"".join(bytes(batch.view) for batch in held if start <= batch.base_offset < end)


def content(log: PartitionLog, start: int, end: int) -> bytes:
    """Return the batches of a log in [start, end); each batch has one record."""
    found, offset = b"", start
    while offset < min(end, log.log_end_offset):
        batch = bytes(log.reader.read(offset, 1, upper_bound=end, min_one_batch=True))
        if not batch:
            break
        found += batch
        offset += 1
    return found


TestDeletions = DeletingMachine.TestCase
TestDeletions.settings = settings(examples(30, of=60), stateful_step_count=40, deadline=None)


# --- without either of the two rules of deletion, a required property fails


def a_follower_that_is_killed_leads(machine: DeletingMachine) -> None:
    """The killed follower has adopted the leader's log start but not written it to disk."""
    machine.delete_records(0, 0)
    for follower in (1, 2):
        machine.catch_up(follower, 2)
    machine.what_was_deleted_stays_so()
    machine.kill_and_start(1)
    machine.what_was_deleted_stays_so()


def one_joins_that_was_away(machine: DeletingMachine) -> None:
    """The returning replica has all records, and does not know that some were deleted."""
    machine.now += LAG_SECONDS + 1
    machine.produce(0)
    machine.catch_up(1, 2)
    machine.propose(0)
    machine.decide(0, answered=True, again=False)
    assert machine.state.isr == (0, 1)
    machine.catch_up(2, 1)
    machine.delete_records(0, 0)
    machine.catch_up(1, 1)
    machine.note_log_start(1)
    machine.catch_up(1, 1)
    machine.what_was_deleted_stays_so()
    assert machine.deleted
    machine.ask(2)
    machine.serve(len(machine.fetches) - 1, again=False, size=4000)
    machine.propose(0)
    if machine.proposals:
        machine.decide(0, answered=True, again=False)
    machine.what_was_deleted_stays_so()


def told_before_it_is_noted() -> tuple[object, str, object]:
    def position(follower: Partition) -> FetchPosition:
        return position_of(follower)._replace(log_start_offset=follower.log.log_start_offset)

    return replication_machine, "position_of", position


def log_starts_do_not_matter() -> tuple[object, str, object]:
    may_join = isr.may_join
    return partition_module, "may_join", lambda follower, committed, start, _: may_join(follower, committed, start, -1)


@pytest.mark.parametrize(
    ("broken", "steps"),
    [(told_before_it_is_noted, a_follower_that_is_killed_leads), (log_starts_do_not_matter, one_joins_that_was_away)],
)
def test_both_rules_of_deletions_are_needed(
    broken: Callable[[], tuple[object, str, object]],
    steps: Callable[[DeletingMachine], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play() -> None:
        machine = DeletingMachine()
        machine.begin()
        for _ in range(3):
            machine.produce(0)
        for follower in (1, 2, 1, 2):
            machine.catch_up(follower, 2)
        steps(machine)

    play()
    where, name, instead = broken()
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        play()
