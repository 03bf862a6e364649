"""Share partitions keep their guarantees when leaders and coordinators change, when writes fail, and when the outcome
of a write is unknown.

A leader (`SharePartition`) delivers records of a log to members, and stores their acknowledgements in a share
coordinator (`ShareStateMachine`). A write may fail, or may be stored although the leader does not learn of it.
Leadership moves, sometimes while the former leader still believes that it leads. Coordinators reload their state from
their records. The model checks these invariants:

- in one leader epoch, a record is acquired by at most one member at a time,
- a record whose ACCEPT or REJECT was confirmed is never delivered again,
- in one leader epoch, a record is delivered at most as often as the delivery limit allows,
- no record is lost: in the end a member has accepted or rejected each record, or the record has reached the delivery
limit.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import ShareState
from oncelog_broker.coordinator.share.share_state_machine import ShareStateMachine, StateWrite
from oncelog_broker.coordinator.share.state_batches import DeliveryState
from oncelog_broker.sharing.acknowledgement import AckBatch, AckTerms, acknowledge
from oncelog_broker.sharing.acquisition import LogBatch, Terms, acquire
from oncelog_broker.sharing.share_partition import SharePartition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import AcknowledgeType

KEY = ShareKey("g", b"t" * 16, 0)
MEMBERS = ("a", "b", "c")
LIMIT = 3
LOCK = 30.0
MAX_LOCKS = 24
FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class Leader:
    """A broker that believes that it leads the share partition; `deliveries` counts the deliveries of each offset."""

    def __init__(self, epoch: int, state: ShareState, log_start: int) -> None:
        self.epoch = epoch
        self.share = SharePartition(state.start_offset, state.batches, state.state_epoch)
        self.share.move_log_start(log_start)
        self.deliveries: dict[int, int] = {}
        self.waiting: list[tuple[int, str, dict[int, AcknowledgeType]]] = []
        """Acknowledgements that are not written yet: number of the transition, member, and acknowledge type by offset.
        """


class ShareModel(RuleBasedStateMachine):
    """The state machine that the module's docstring describes."""

    @initialize(batches=st.lists(st.integers(1, 6), min_size=1, max_size=6))
    def begin(self, batches: list[int]) -> None:
        self.now = 0.0
        self.log: list[LogBatch] = []
        self.log_start = 0
        self.records: list[tuple[bytes, bytes | None]] = []
        self.coordinator = self.new_coordinator()
        self.handed_out: dict[int, int] = {}
        self.finished: dict[int, str] = {}
        """Offset -> the member whose final acknowledgement of the record was confirmed."""
        self.said: set[int] = set()
        """Offsets of records that some member has accepted or rejected, confirmed or not."""
        for length in batches:
            self.produce(length)
        self.carry_out(self.coordinator.initialize(KEY, 1, 0, None))
        self.leaders = [self.load(1)]

    def new_coordinator(self) -> ShareStateMachine:
        return ShareStateMachine(lambda: int(self.now * 1000), lambda *_: True, updates_per_snapshot=4)

    def carry_out(self, effects: Effects) -> Any:
        for record in effects.records:
            self.records.append(tuple(self.coordinator.encode(record)))
            self.coordinator.replay(record, len(self.records) - 1, -1)
        return effects.replies[0][1]

    def load(self, epoch: int) -> Leader:
        state = self.carry_out(self.coordinator.read(KEY, epoch, None))
        return Leader(epoch, state, self.log_start)

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    # --- steps

    @rule(length=st.integers(1, 6))
    def produce(self, length: int) -> None:
        self.log.append(LogBatch(self.end, self.end + length - 1))

    @rule(gap=st.integers(1, 4))
    def leave_a_gap(self, gap: int) -> None:
        """Leave a gap of offsets without records, then append one record."""
        self.log.append(LogBatch(self.end + gap, self.end + gap))

    @rule(
        at=st.integers(0, 1),
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 12),
        exact=st.booleans(),
    )
    def fetch(self, at: int, member: str, most: int, exact: bool) -> None:
        self.hand_out(self.leaders[at % len(self.leaders)], member, most, exact=exact)

    def hand_out(self, leader: Leader, member: str, most: int, *, exact: bool) -> list[tuple[int, int]]:
        offset = leader.share.next_offset(MAX_LOCKS)
        if offset is None or offset >= self.end:
            return []
        read = [batch for batch in self.log if batch.last >= offset]
        held = holders(leader)
        terms = Terms(member, self.now + LOCK, most, 4, exact, LIMIT, MAX_LOCKS)
        got = []
        for first, last, deliveries in acquire(leader.share, offset, read, terms):
            got.append((first, last))
            for each in range(first, last + 1):
                assert each not in held, "the record is at a member already"
                assert each not in self.finished or leader is not self.leaders[-1], "it was done"
                assert any(batch.first <= each <= batch.last for batch in self.log), "there is no such record"
                leader.deliveries[each] = leader.deliveries.get(each, 0) + 1
                self.handed_out[each] = self.handed_out.get(each, 0) + 1
                assert leader.deliveries[each] <= deliveries <= LIMIT
        return got

    @rule(at=st.integers(0, 1), member=st.sampled_from(MEMBERS), data=st.data())
    def say(self, at: int, member: str, data: st.DataObject) -> None:
        leader = self.leaders[at % len(self.leaders)]
        mine = [
            run
            for run in leader.share.runs.runs
            if run.state is DeliveryState.ACQUIRED and run.owner == member and run.becomes is None
        ]
        if not mine:
            return
        run = data.draw(st.sampled_from(mine))
        first = data.draw(st.integers(run.first, run.last))
        last = data.draw(st.integers(first, run.last))
        kinds = data.draw(
            st.lists(st.sampled_from(AcknowledgeType), min_size=last - first + 1, max_size=last - first + 1)
        )
        self.acknowledge(leader, member, first, kinds)

    def acknowledge(self, leader: Leader, member: str, first: int, kinds: list[AcknowledgeType]) -> None:
        leader.share.expire(self.now, LIMIT)
        batch = AckBatch(first, first + len(kinds) - 1, kinds)
        terms = AckTerms(member, self.now + LOCK, LIMIT, renews=True, may_renew=True)
        try:
            transition = acknowledge(leader.share, [batch], terms)
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_RECORD_STATE  # the acquisition lock of the member has expired
            return
        said = dict(enumerate(kinds, first))
        self.said |= {offset for offset, kind in said.items() if kind in (*FINAL, AcknowledgeType.GAP)}
        if transition:
            leader.waiting.append((transition, member, said))

    @rule(at=st.integers(0, 1), fate=st.sampled_from(["kept", "kept", "kept", "lost", "answer lost"]))
    def write(self, at: int, fate: str) -> None:
        self.write_of(self.leaders[at % len(self.leaders)], fate)

    def write_of(self, leader: Leader, fate: str) -> None:
        share = leader.share
        waiting, leader.waiting = leader.waiting, []
        write = StateWrite(
            share.state_epoch, leader.epoch, share.kept_start_offset, share.kept_complete_count, share.take_outbox()
        )
        is_kept = fate == "kept"
        if fate != "lost":
            try:
                self.carry_out(self.coordinator.write(KEY, write, None))
            except KafkaError as error:
                assert error.code is ErrorCode.FENCED_LEADER_EPOCH
                assert leader is not self.leaders[-1]
                is_kept = False
        for transition, member, said in waiting:
            share.finish(transition, is_kept=is_kept, now=self.now, delivery_limit=LIMIT)
            for offset, kind in said.items():
                if is_kept and kind in FINAL:
                    self.finished[offset] = member

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for leader in self.leaders:
            leader.share.expire(self.now, LIMIT)

    @rule(at=st.integers(0, 1), member=st.sampled_from(MEMBERS))
    def lose_session(self, at: int, member: str) -> None:
        self.leaders[at % len(self.leaders)].share.release(member, LIMIT)

    @rule()
    def elect(self) -> None:
        """Let another leader load the share partition; the former leader does not know this yet."""
        self.leaders = [self.leaders[-1], self.load(self.leaders[-1].epoch + 1)]

    @precondition(lambda self: len(self.leaders) > 1)
    @rule()
    def resign(self) -> None:
        del self.leaders[0]

    @rule()
    def load_coordinator(self) -> None:
        """Let another share coordinator load its state: it replays the records from the oldest snapshot that is still
        needed.
        """
        begin = self.coordinator.oldest_snapshot_offset() or 0
        loaded = self.new_coordinator()
        for offset, (key, value) in enumerate(self.records):
            if offset >= begin:
                record = loaded.decode(key, value)
                assert record is not None
                loaded.replay(record, offset, -1)
        assert loaded.states == self.coordinator.states
        self.coordinator = loaded

    @precondition(lambda self: self.end - self.log_start > 3)
    @rule(count=st.integers(1, 3))
    def delete_records(self, count: int) -> None:
        self.log_start += count
        for leader in self.leaders:
            leader.share.move_log_start(self.log_start)

    # --- invariants

    @invariant()
    def runs_tile_the_records_in_flight(self) -> None:
        for leader in getattr(self, "leaders", ()):
            runs, at = leader.share.runs, leader.share.runs.start
            for run in runs.runs:
                assert run.first == at
                at = run.last + 1
            assert at == runs.end

    def teardown(self) -> None:
        """Check at the end that a single member can accept all remaining records."""
        if not hasattr(self, "leaders"):
            return
        leader = self.leaders[-1]
        self.leaders = [leader]
        self.write_of(leader, "kept")
        self.now += LOCK + 1
        leader.share.expire(self.now, LIMIT)
        for _ in range(10_000):
            got = self.hand_out(leader, "z", 5, exact=False)
            if not got and leader.share.next_offset(MAX_LOCKS) in (None, self.end):
                break
            for first, last in got:
                self.acknowledge(leader, "z", first, [AcknowledgeType.ACCEPT] * (last - first + 1))
            self.write_of(leader, "kept")
        assert leader.share.start_offset == self.end
        for batch in self.log:
            for offset in range(max(batch.first, self.log_start), batch.last + 1):
                assert offset in self.said or self.handed_out.get(offset, 0) >= LIMIT, f"offset {offset} is lost"


def holders(leader: Leader) -> dict[int, str]:
    """Return the member that has acquired each offset."""
    return {
        offset: run.owner
        for run in leader.share.runs.runs
        if run.state is DeliveryState.ACQUIRED
        for offset in range(run.first, run.last + 1)
    }


TestSharePartitions = ShareModel.TestCase
TestSharePartitions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
