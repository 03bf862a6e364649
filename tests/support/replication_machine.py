"""Several replicas of one partition, with arbitrary events between them, lose no acknowledged record.

The replicas are real objects over logs in memory. The messages between the replicas may be delivered late, twice, or
never. The controller is replaced by a model of its rules. Brokers die with or without losing the end of their logs, and
learn of
new partition states late or never. The disks of followers fail, and the followers later reopen their logs.

If all brokers die at the same time, the real controller elects leaders, and every acknowledged record that some ISR
member still has must survive. If all ISR members lose their disks, every acknowledged record that some other replica
still has must survive. The real controller also decides if a leader's log fails.
"""

from __future__ import annotations

import errno
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.support.crashing_disk import CrashingDisk
from tests.support.storage import make_batch

from oncelog_broker.controller.alter_partition import Member, decide
from oncelog_broker.controller.alter_partition import Proposal as AskedChange
from oncelog_broker.controller.candidates import OFFLINE, LogEnd
from oncelog_broker.controller.election import Decision, Election, outcome
from oncelog_broker.controller.known_broker import NEVER, KnownBroker
from oncelog_broker.controller.partition_decisions import PartitionChange, wanted_change
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata.model import payloads
from oncelog_broker.metadata.model.image import NO_LEADER, PartitionState
from oncelog_broker.metadata.model.payloads import ReplicaAssignment, TopicAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication import fetch_response
from oncelog_broker.replication.fetch_response import PartitionAnswer, cut, position_of, take
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.roles import Follow, Lead, role_of
from oncelog_broker.runtime.clock import ManualClock
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import batches

BROKERS = (0, 1, 2)


LAG_SECONDS = 10.0


BROKER = st.sampled_from(BROKERS)


NUMBER = st.integers(0, 7)
"""Draws the index of a message among the messages in flight between replicas."""


class Fetch(NamedTuple):
    """A Fetch request on its way to a leader."""

    follower: int
    leader: int
    position: FetchPosition
    broker_epoch: int


class Answer(NamedTuple):
    """A Fetch response on its way back to the follower process that requested it; a restarted follower ignores the
    response.
    """

    fetch: Fetch
    content: PartitionAnswer


class Proposal(NamedTuple):
    """An AlterPartition request on its way to the controller."""

    leader: int
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Renewal(NamedTuple):
    """A request for a new leader epoch, by a replica whose log must restart; `state` is the partition state that the
    replica knows.
    """

    broker: int
    state: PartitionState


class Pending(NamedTuple):
    """An append with acks=all that has no response yet."""

    broker: int
    incarnation: int
    leader_epoch: int
    base_offset: int
    batch: bytes


WRITTEN, SINCE = 100, 200
"""Transaction ids of the metadata store: the id of the write of the last partition state, and a later id."""


def log_end(log: PartitionLog) -> LogEnd:
    """Return the log end that a broker reports before an election."""
    return OFFLINE if log.is_offline else LogEnd(log.latest_epoch, log.log_end_offset)


def confirms(leader: Partition | None, leader_epoch: int) -> bool:
    """Return whether the leader confirms its leadership to a follower (`leader_check`); None means that the leader is
    dead.
    """
    return leader is not None and leader.leads and leader.leader_epoch == leader_epoch and not leader.log.is_offline


def content(log: PartitionLog, end: int) -> bytes:
    """Return all batches below the offset `end`."""
    found, offset = b"", log.log_start_offset
    while offset < end:
        view = log.reader.read(offset, 1 << 20, upper_bound=end, min_one_batch=True)
        if not len(view):
            break
        found += bytes(view)
        offset = int.from_bytes(view[-len(_last(view)) :][:8], "big") + 1
    return found


def _last(view: memoryview) -> memoryview:
    """Return the last batch of the view; every batch has one record here."""
    position = 0
    while True:
        size = 12 + int.from_bytes(view[position + 8 : position + 12], "big")
        if position + size == len(view):
            return view[position:]
        position += size


class ReplicationMachine(RuleBasedStateMachine):
    min_insync = 1

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.clock = ManualClock()
        self.disks = [CrashingDisk(Random(broker)) for broker in BROKERS]
        self.logs = [self._open_log(broker) for broker in BROKERS]
        self.held = [b""] * len(BROKERS)
        """By broker: the content of its log when its disk failed; the log itself is unreadable now."""
        self.replicas: list[Partition | None] = [None] * len(BROKERS)
        self.incarnations = [0] * len(BROKERS)
        """Broker epochs."""
        self.checkpoints = [0] * len(BROKERS)
        self.state = PartitionState(BROKERS, BROKERS, 0, 0, 0)
        self.seen = [self.state] * len(BROKERS)
        """By broker: the partition state that the broker knows."""
        self.fetches: list[Fetch] = []
        self.answers: list[Answer] = []
        self.proposals: list[Proposal] = []
        self.renewals: list[Renewal] = []
        self.pending: list[Pending] = []
        self.acknowledged: dict[int, bytes] = {}
        self.led: dict[tuple[int, int, int], int] = {}
        """(broker, incarnation, leader epoch) -> the last high watermark of that leader."""
        self.counter = 0

    @initialize()
    def begin(self) -> None:
        for broker in BROKERS:
            self._start(broker)
            self.see(broker)

    def _open_log(self, broker: int) -> PartitionLog:
        config = LogConfig(
            segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=4096, min_insync_replicas=self.min_insync
        )
        return PartitionLog.open(
            f"/{broker}/orders-0",
            topic="orders",
            partition=0,
            config=config,
            disk=self.disks[broker],
            clock=self.clock,
        )

    def alive(self, broker: int) -> Partition | None:
        return self.replicas[broker]

    def _can_lead(self, broker: int) -> bool:
        """Whether the broker is alive and its log is online; a leader with a failed disk resigns."""
        return self.alive(broker) is not None and not self.logs[broker].is_offline

    def _start(self, broker: int) -> Partition:
        started = self.replicas[broker] = Partition(
            "orders", bytes(16), 0, self.logs[broker], broker_id=broker, high_watermark=self.checkpoints[broker]
        )
        return started

    # --- clients

    @rule(broker=BROKER)
    def produce(self, broker: int) -> None:
        led = self.alive(broker)
        if led is None or not led.leads or led.log.is_offline:
            return
        self.counter += 1
        batch = make_batch(b"%d" % self.counter)
        try:
            base, _ = led.append(memoryview(batch), required_acks=-1)
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS
            return
        self.pending.append(Pending(broker, self.incarnations[broker], led.leader_epoch, base, bytes(batch)))

    # --- fetching

    @rule(broker=BROKER)
    def ask(self, broker: int) -> None:
        follower = self.alive(broker)
        if follower is None or follower.leads or follower.leader in (NO_LEADER, broker) or follower.log.is_offline:
            return
        self.fetches.append(Fetch(broker, follower.leader, position_of(follower), self.incarnations[broker]))
        del self.fetches[:-7]

    @rule(number=NUMBER, again=st.booleans(), size=st.sampled_from([1, 400, 4000]))
    @precondition(lambda self: self.fetches)
    def serve(self, number: int, again: bool, size: int) -> None:
        fetch = self._take(self.fetches, number, again)
        led = self.alive(fetch.leader)
        if led is not None:
            self.answers.append(Answer(fetch, self._answer(led, fetch, size)))
            del self.answers[:-8]

    def _answer(self, led: Partition, fetch: Fetch, size: int) -> PartitionAnswer:
        try:
            if led.log.is_offline:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            divergence = led.check_follower(fetch.follower, fetch.position)
        except KafkaError as error:
            return PartitionAnswer(
                partition_index=0,
                error_code=error.code,
                high_watermark=-1,
                log_start_offset=led.log.log_start_offset,
            )
        records = b""
        diverging = None
        if divergence is not None:
            diverging = PartitionAnswer.EpochEndOffset(epoch=divergence[0], end_offset=divergence[1])
        else:
            led.on_follower_fetch(
                fetch.follower,
                fetch.position.offset,
                broker_epoch=fetch.broker_epoch,
                log_start_offset=fetch.position.log_start_offset,
                now=self.now,
            )
            records = bytes(
                led.log.reader.read(fetch.position.offset, size, upper_bound=led.log.log_end_offset, min_one_batch=True)
            )
        return PartitionAnswer(
            partition_index=0,
            error_code=0,
            high_watermark=led.high_watermark,
            log_start_offset=led.log.log_start_offset,
            diverging_epoch=diverging,
            records=memoryview(records),
        )

    @rule(number=NUMBER, again=st.booleans())
    @precondition(lambda self: self.answers)
    def take_answer(self, number: int, again: bool) -> None:
        answer = self._take(self.answers, number, again)
        follower = self.alive(answer.fetch.follower)
        if follower is None or answer.fetch.broker_epoch != self.incarnations[answer.fetch.follower]:
            return
        if not fetch_response.is_still_at(follower, answer.fetch.position):
            return
        try:
            wanted = take(follower, answer.fetch.position, answer.content)
        except KafkaError:
            return
        if wanted is not None:
            cut(follower, wanted)
            follower.on_truncated()

    @rule(broker=BROKER, turns=st.integers(1, 4))
    def catch_up(self, broker: int, turns: int) -> None:
        """Let the follower fetch this many times without failures."""
        for _ in range(turns):
            before = len(self.fetches)
            self.ask(broker)
            if len(self.fetches) > before:
                self.serve(len(self.fetches) - 1, again=False, size=4000)
                if self.answers:
                    self.take_answer(len(self.answers) - 1, again=False)

    @rule(broker=BROKER, others=st.booleans())
    def round_of_the_isr(self, broker: int, others: bool) -> None:
        """Let the leader propose an ISR change and get the controller's response; first, a follower may lag."""
        if others:
            self.now += LAG_SECONDS + 1
            self.catch_up((broker + 1) % len(BROKERS), 2)
        before = len(self.proposals)
        self.propose(broker)
        if len(self.proposals) > before:
            self.decide(before, answered=True, again=False)

    @rule(first=BROKER, second=BROKER)
    def change_of_leader(self, first: int, second: int) -> None:
        """Elect a leader; only the brokers `first` and `second` learn of the election."""
        self.elect(first)
        for broker in {first, second}:
            self.see(broker)

    @rule(broker=BROKER, count=st.integers(2, 4))
    def produce_several(self, broker: int, count: int) -> None:
        for _ in range(count):
            self.produce(broker)

    def _take(self, messages: list[Any], number: int, again: bool) -> Any:
        at = number % len(messages)
        return messages[at] if again else messages.pop(at)

    # --- the cluster image

    @rule(broker=BROKER)
    def see(self, broker: int) -> None:
        """Let a broker learn the current partition state, even if it has missed earlier ones."""
        here = self.alive(broker)
        if here is None:
            return
        self.seen[broker] = self.state
        self._take_role(broker, here)

    def _take_role(self, broker: int, here: Partition) -> None:
        role = role_of(self.seen[broker], broker)
        if isinstance(role, Lead):
            here.lead(role.leader_epoch, role.isr, role.replicas, partition_epoch=role.partition_epoch, now=self.now)
        elif isinstance(role, Follow) and (here.leader_epoch, here.leader) != (role.leader_epoch, role.leader):
            here.follow(role.leader, role.leader_epoch)
            self.pending = [entry for entry in self.pending if entry.broker != broker]

    # --- changes of the ISR

    @rule(broker=BROKER)
    def propose(self, broker: int) -> None:
        led = self.alive(broker)
        if led is None or not led.leads:
            return
        wanted = led.wanted_isr(now=self.now, lag_seconds=LAG_SECONDS, is_eligible=self._is_eligible)
        if wanted is None:
            return
        led.propose_isr(wanted)
        epochs = {other: progress.broker_epoch for other, progress in led.followers.items()}
        epochs[broker] = self.incarnations[broker]
        self.proposals.append(
            Proposal(
                broker,
                self.incarnations[broker],
                led.leader_epoch,
                led.in_sync.partition_epoch,
                tuple((member, epochs[member]) for member in wanted),
            )
        )

    def _is_eligible(self, broker: int, epoch: int) -> bool:
        return self.alive(broker) is not None and self.incarnations[broker] == epoch

    @rule(number=NUMBER, answered=st.booleans(), again=st.booleans())
    @precondition(lambda self: self.proposals)
    def decide(self, number: int, answered: bool, again: bool) -> None:
        proposal = self._take(self.proposals, number, again)
        state = self.state
        refusal = None
        if (state.leader, state.leader_epoch) != (proposal.leader, proposal.leader_epoch):
            refusal = ErrorCode.FENCED_LEADER_EPOCH
        elif state.partition_epoch != proposal.partition_epoch:
            refusal = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self._is_eligible(*member) or member[0] in state.isr for member in proposal.isr):
            refusal = ErrorCode.INELIGIBLE_REPLICA
        else:
            self._change(isr=tuple(member for member, _ in proposal.isr))
        led = self.alive(proposal.leader)
        if not answered or led is None or self.incarnations[proposal.leader] != proposal.incarnation:
            return
        if not led.leads or led.leader_epoch != proposal.leader_epoch:
            return
        if refusal is None:
            led.lead(led.leader_epoch, self.state.isr, BROKERS, partition_epoch=self.state.partition_epoch)
        elif refusal is ErrorCode.INELIGIBLE_REPLICA and (
            led.in_sync.proposed is not None and led.in_sync.partition_epoch == proposal.partition_epoch
        ):
            led.withdraw_proposal()

    def _change(self, **changes: Any) -> None:
        old = self.state
        self.state = PartitionState(
            old.replicas,
            changes.get("isr", old.isr),
            changes.get("leader", old.leader),
            changes.get("leader_epoch", old.leader_epoch),
            old.partition_epoch + 1,
        )

    # --- failing disks

    @rule(broker=BROKER)
    def disk_fails(self, broker: int) -> None:
        here = self.alive(broker)
        if here is not None and not here.leads and self.state.leader != broker and not here.log.is_offline:
            self.held[broker] = content(here.log, here.log.log_end_offset)
            here.log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))

    @rule(broker=BROKER, kept=st.floats(0, 1))
    def begin_again(self, broker: int, kept: float) -> None:
        """Reopen a log whose disk failed, if the broker is not in the ISR and the leader responds. The unsynced records
        are lost. If reopening is not allowed yet, request a new leader epoch in which reopening is allowed.
        """
        here, seen = self.alive(broker), self.seen[broker]
        role = role_of(seen, broker)
        if here is None or not here.log.is_offline or not isinstance(role, Follow):
            return
        if role.is_in_sync or not role.has_leader:
            return
        if not here.may_begin_again(role.leader_epoch):
            self.renewals.append(Renewal(broker, seen))
            del self.renewals[:-3]
            return
        if not confirms(self.alive(role.leader), role.leader_epoch):
            return
        self.checkpoints[broker] = here.high_watermark
        log = self._open_again(broker)
        log.trimmer.truncate_to(int(log.log_end_offset * kept))
        self._take_role(broker, self._start(broker))

    def _open_again(self, broker: int) -> PartitionLog:
        self.logs[broker].abandon()
        self.logs[broker] = self._open_log(broker)
        return self.logs[broker]

    @rule(number=NUMBER, again=st.booleans())
    @precondition(lambda self: self.renewals)
    def renew(self, number: int, again: bool) -> None:
        """Let the same leader lead in a new leader epoch."""
        broker, seen = self._take(self.renewals, number, again)
        state = self.state
        is_current = (state.leader_epoch, state.partition_epoch) == (seen.leader_epoch, seen.partition_epoch)
        if is_current and state.leader != NO_LEADER and broker not in state.isr:
            self._change(leader_epoch=state.leader_epoch + 1)

    # --- steps of the controller, and brokers that die

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        """Elect this broker if it is alive and in sync."""
        if broker in self.state.isr and self._can_lead(broker):
            self._change(leader=broker, leader_epoch=self.state.leader_epoch + 1)

    def _leave(self, broker: int) -> None:
        """Handle a departed broker as the controller does: the broker first loses its leadership and then its ISR
        membership.
        """
        others = [member for member in self.state.isr if member != broker]
        alive = [member for member in others if self._can_lead(member)]
        if self.state.leader == broker:
            self._change(leader=alive[0] if alive else NO_LEADER, leader_epoch=self.state.leader_epoch + 1)
        if others and broker in self.state.isr:
            self._change(isr=tuple(others))

    @rule(broker=BROKER, noticed=st.booleans())
    def die(self, broker: int, noticed: bool) -> None:
        if self.alive(broker) is not None:
            self.replicas[broker] = None
            if noticed:
                self._leave(broker)

    @rule(broker=BROKER, lost=st.floats(0, 1))
    def come_back(self, broker: int, lost: float) -> None:
        """Restart a broker. If its log lost records, the broker leaves the ISR unless it is the only member."""
        if self.alive(broker) is not None:
            return
        log = self._open_again(broker) if self.logs[broker].is_offline else self.logs[broker]
        others = [member for member in self.state.isr if member != broker]
        if lost > 0.5 and others and log.log_end_offset > log.log_start_offset:
            self._leave(broker)
            log.trimmer.truncate_to(int(log.log_end_offset * (lost - 0.5) * 2))
        elif self.state.leader == broker:
            alive = [member for member in others if self._can_lead(member)]
            self._change(leader=alive[0] if alive else broker, leader_epoch=self.state.leader_epoch + 1)
        self.incarnations[broker] += 1
        self._start(broker)
        if self.state.leader == NO_LEADER and broker in self.state.isr:
            self._change(leader=broker, leader_epoch=self.state.leader_epoch + 1)
        self.see(broker)

    # --- failures of all brokers

    @rule(kept=st.tuples(*[st.floats(0, 1)] * len(BROKERS)), order=st.permutations(BROKERS))
    def all_lose_their_power(self, kept: tuple[float, ...], order: list[int]) -> None:
        """Crash every machine; each broker restarts without the end of its log."""
        self._all_die()
        for broker in BROKERS:
            log = self.logs[broker]
            if log.log_end_offset > log.log_start_offset:
                log.trimmer.truncate_to(int(log.log_end_offset * kept[broker]))
        held = [content(self.logs[member], self.logs[member].log_end_offset) for member in self.state.isr]
        self.acknowledged = {
            offset: batch for offset, batch in self.acknowledged.items() if any(batch in each for each in held)
        }
        self._elect_after_all_have_died(unsure=dict.fromkeys(BROKERS, SINCE))
        self._all_come_back(order)

    @rule(broken=st.one_of(st.none(), BROKER), order=st.permutations(BROKERS))
    def all_are_killed(self, broken: int | None, order: list[int]) -> None:
        """Kill every process; each broker restarts with its entire log, and one broker perhaps cannot open its log."""
        self._all_die()
        if broken is not None:
            self._log_fails(broken)
        self._elect_after_all_have_died(unsure={})
        self._all_come_back(order)

    @rule(order=st.permutations(BROKERS))
    def disks_of_the_isr_are_exchanged(self, order: list[int]) -> None:
        """Stop all brokers; the ISR members restart with empty disks."""
        self._all_die()
        for member in self.state.isr:
            self.logs[member].trimmer.truncate_fully_and_start_at(0)
            self.checkpoints[member] = 0
        held = [content(log, log.log_end_offset) for log in self.logs]
        self.acknowledged = {
            offset: batch for offset, batch in self.acknowledged.items() if any(batch in each for each in held)
        }
        self._elect_after_all_have_died(unsure=dict.fromkeys(self.state.isr, SINCE))
        self._all_come_back(order)

    def _all_die(self) -> None:
        for broker in BROKERS:
            self.replicas[broker] = None
            if self.logs[broker].is_offline:
                self._open_again(broker)
        self._settle_committed()

    def _all_come_back(self, order: list[int]) -> None:
        for broker in order:
            self.incarnations[broker] += 1
            self._start(broker)
            self.see(broker)

    def _log_fails(self, broker: int) -> None:
        self.held[broker] = content(self.logs[broker], self.logs[broker].log_end_offset)
        self.logs[broker].flusher.flush_failed(OSError(errno.EIO, "Input/output error"))

    def _elect_after_all_have_died(self, unsure: dict[int, int]) -> None:
        known = KnownState(self._stored_state(), self.state.partition_epoch, WRITTEN)
        brokers = {broker: KnownBroker(broker, SINCE, unsure_since=unsure.get(broker, NEVER)) for broker in BROKERS}
        ends = {broker: log_end(self.logs[broker]) for broker in BROKERS}
        decided = outcome(Election(BROKERS, known, brokers, 0, log_end_of=ends.get, waits_for_absent=True))
        if isinstance(decided, Decision):
            state = decided.state
            self._change(leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr)

    def _stored_state(self) -> payloads.PartitionState:
        return payloads.PartitionState(self.state.leader, self.state.leader_epoch, self.state.isr, 0)

    @rule(broker=BROKER)
    def leader_fails(self, broker: int) -> None:
        """Let the leader's log fail: the leader resigns, and another live in-sync replica leads."""
        here = self.alive(broker)
        if here is None or not here.leads or (self.state.leader, self.seen[broker]) != (broker, self.state):
            return
        if not here.log.is_offline:
            self._log_fails(broker)
        key, view = PartitionKey("orders", 0), ClusterView()
        view.put_topic("orders", TopicAssignment(bytes(16), {0: ReplicaAssignment(BROKERS)}))
        # The sessions of the dead brokers have not expired yet.
        view.put_brokers(KnownBroker(each, 1) for each in BROKERS)
        view.put_state(key, KnownState(self._stored_state(), self.state.partition_epoch, WRITTEN))
        members = [Member(member) for member in self.state.isr]
        asked = AskedChange(broker, self.state.leader_epoch, self.state.partition_epoch, members, is_log_offline=True)
        granted = decide(view, key, asked, 0)
        assert isinstance(granted, PartitionChange)
        self._change(leader=granted.state.leader, leader_epoch=granted.state.leader_epoch, isr=granted.state.isr)
        assert self.state.leader == NO_LEADER
        self.see(broker)
        view.candidates.is_asked_for = True
        view.put_state(key, KnownState(self._stored_state(), self.state.partition_epoch, WRITTEN + 1))
        for each in BROKERS:
            if self.alive(each) is not None:
                view.candidates.note(key, each, log_end(self.logs[each]))
        elected = wanted_change(view, key, 0)
        if elected is not None:
            state = elected.state
            self._change(leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(broker=BROKER)
    def checkpoint(self, broker: int) -> None:
        here = self.alive(broker)
        if here is not None:
            self.checkpoints[broker] = here.high_watermark

    # --- invariants of replication

    @invariant()
    def leader_in_isr(self) -> None:
        assert self.state.leader in (*self.state.isr, NO_LEADER)
        assert self.state.isr

    @invariant()
    def strong_isr(self) -> None:
        """Check that each record below the high watermark of any leader, even of a former leader, is on every in-sync
        replica.
        """
        for broker in BROKERS:
            led = self.alive(broker)
            if led is not None and led.leads:
                committed = self._below(broker, led.high_watermark)
                for member in self.state.isr:
                    assert self._below(member, led.high_watermark) == committed, (broker, member)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        self._settle_committed()
        for member in self.state.isr:
            everything = self._below(member, self.logs[member].log_end_offset)
            for offset, batch in self.acknowledged.items():
                assert batch in everything, (offset, member)

    @invariant()
    def logs_are_the_same_below_the_high_watermarks(self) -> None:
        for one in BROKERS:
            for other in BROKERS[:one]:
                first, second = self.alive(one), self.alive(other)
                if first is not None and second is not None:
                    end = min(first.high_watermark, second.high_watermark)
                    assert self._below(one, end) == self._below(other, end), (one, other, end)

    @invariant()
    def a_leaders_high_watermark_never_goes_back(self) -> None:
        for broker in BROKERS:
            here = self.alive(broker)
            if here is None:
                continue
            assert here.log.log_start_offset <= here.last_stable_offset <= here.high_watermark
            assert here.high_watermark <= here.log.log_end_offset
            if here.leads:
                key = broker, self.incarnations[broker], here.leader_epoch
                assert here.high_watermark >= self.led.get(key, 0)
                self.led[key] = here.high_watermark

    def _settle_committed(self) -> None:
        for entry in list(self.pending):
            led = self.alive(entry.broker)
            if led is None or self.incarnations[entry.broker] != entry.incarnation or not led.leads:
                self.pending.remove(entry)
            elif entry.base_offset < led.high_watermark:
                self.pending.remove(entry)
                assert entry.base_offset not in self.acknowledged, "an offset was given twice"
                self.acknowledged[entry.base_offset] = entry.batch

    def _below(self, member: int, end: int) -> bytes:
        log = self.logs[member]
        if not log.is_offline:
            return content(log, min(end, log.log_end_offset))
        return b"".join(bytes(batch.view) for batch in batches(self.held[member]) if batch.base_offset < end)


class MachineWithMinInsync(ReplicationMachine):
    min_insync = 2

    def __init__(self) -> None:
        super().__init__()
        self.stood: dict[Any, int] = {}

    @invariant()
    def nothing_is_committed_by_fewer(self) -> None:
        """Check that the high watermark does not advance while the leader knows that too few replicas are in sync
        (KIP-966).
        """
        for broker in BROKERS:
            led = self.alive(broker)
            if led is not None and led.leads and len(led.isr) < self.min_insync:
                key = broker, self.incarnations[broker], led.leader_epoch, led.in_sync.partition_epoch
                assert self.stood.setdefault(key, led.high_watermark) == led.high_watermark
