"""Several replicas of one partition, under whatever may happen between them: nothing acknowledged is lost.

The replicas are the real ones, over logs in memory. What is between them is a bag of messages, which may be delivered
late, twice, or never; the controller is a model of its rules. Brokers die with and without losing the end of their
logs, and learn of new states late, some of them never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.crashing_disk import CrashingDisk
from tests.support.examples import examples
from tests.support.storage import make_batch

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata.image import NO_LEADER, PartitionState
from oncelog_broker.replication import following, high_watermark, isr, replica
from oncelog_broker.replication import partition as partition_module
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.following import PartitionAnswer, cut, position_of, take
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.roles import Follow, Lead, role_of
from oncelog_broker.runtime.clock import ManualClock
from oncelog_protocol.errors import ErrorCode, KafkaError

BROKERS = (0, 1, 2)
LAG_SECONDS = 10.0
BROKER = st.sampled_from(BROKERS)
NUMBER = st.integers(0, 7)
"""Which of the messages under way, of those that there are."""


class Fetch(NamedTuple):
    """On its way to a leader."""

    follower: int
    leader: int
    position: FetchPosition
    broker_epoch: int


class Answer(NamedTuple):
    """On its way back to one incarnation of a follower."""

    fetch: Fetch
    content: PartitionAnswer


class Proposal(NamedTuple):
    """AlterPartition, on its way to the controller."""

    leader: int
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Pending(NamedTuple):
    """An append whose acks=all is not answered."""

    broker: int
    incarnation: int
    leader_epoch: int
    base_offset: int
    batch: bytes


def content(log: PartitionLog, end: int) -> bytes:
    """All batches below `end`."""
    found, offset = b"", log.log_start_offset
    while offset < end:
        view = log.read(offset, 1 << 20, upper_bound=end, min_one_batch=True)
        if not len(view):
            break
        found += bytes(view)
        offset = int.from_bytes(view[-len(_last(view)) :][:8], "big") + 1
    return found


def _last(view: memoryview) -> memoryview:
    """The last batch; all have one record here."""
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
        config = LogConfig(
            segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=4096, min_insync_replicas=self.min_insync
        )
        self.logs = [
            PartitionLog.open(
                f"/{broker}/orders-0",
                topic="orders",
                partition=0,
                config=config,
                disk=CrashingDisk(Random(broker)),
                clock=self.clock,
            )
            for broker in BROKERS
        ]
        self.replicas: list[Partition | None] = [None] * len(BROKERS)
        self.incarnations = [0] * len(BROKERS)
        """Broker epochs."""
        self.checkpoints = [0] * len(BROKERS)
        self.state = PartitionState(BROKERS, BROKERS, 0, 0, 0)
        self.fetches: list[Fetch] = []
        self.answers: list[Answer] = []
        self.proposals: list[Proposal] = []
        self.pending: list[Pending] = []
        self.acknowledged: dict[int, bytes] = {}
        self.led: dict[tuple[int, int, int], int] = {}
        """The high watermark as last seen, of each (broker, incarnation, leader epoch)."""
        self.counter = 0

    @initialize()
    def begin(self) -> None:
        for broker in BROKERS:
            self._start(broker)
            self.see(broker)

    def alive(self, broker: int) -> Partition | None:
        return self.replicas[broker]

    def _start(self, broker: int) -> None:
        self.replicas[broker] = Partition(
            "orders", bytes(16), 0, self.logs[broker], broker_id=broker, high_watermark=self.checkpoints[broker]
        )

    # --- clients

    @rule(broker=BROKER)
    def produce(self, broker: int) -> None:
        led = self.alive(broker)
        if led is None or not led.leads:
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
        if follower is None or follower.leads or follower.leader in (NO_LEADER, broker):
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
                led.log.read(fetch.position.offset, size, upper_bound=led.log.log_end_offset, min_one_batch=True)
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
        if not following.is_still_at(follower, answer.fetch.position):
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
        """Some round trips without trouble."""
        for _ in range(turns):
            before = len(self.fetches)
            self.ask(broker)
            if len(self.fetches) > before:
                self.serve(len(self.fetches) - 1, again=False, size=4000)
                if self.answers:
                    self.take_answer(len(self.answers) - 1, again=False)

    @rule(broker=BROKER, others=st.booleans())
    def round_of_the_isr(self, broker: int, others: bool) -> None:
        """The leader proposes what is due, and is answered; perhaps after one of its followers has lagged."""
        if others:
            self.now += LAG_SECONDS + 1
            self.catch_up((broker + 1) % len(BROKERS), 2)
        before = len(self.proposals)
        self.propose(broker)
        if len(self.proposals) > before:
            self.decide(before, answered=True, again=False)

    @rule(first=BROKER, second=BROKER)
    def change_of_leader(self, first: int, second: int) -> None:
        """Somebody is elected; two brokers hear of it, or one."""
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

    # --- the image

    @rule(broker=BROKER)
    def see(self, broker: int) -> None:
        """Learn the state as it is now, whatever was in between."""
        here = self.alive(broker)
        if here is None:
            return
        role = role_of(self.state, broker)
        if isinstance(role, Lead):
            here.lead(role.leader_epoch, role.isr, role.replicas, partition_epoch=role.partition_epoch, now=self.now)
        elif isinstance(role, Follow) and (here.leader_epoch, here.leader) != (role.leader_epoch, role.leader):
            here.follow(role.leader, role.leader_epoch)
            self.pending = [entry for entry in self.pending if entry.broker != broker]

    # --- the ISR

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

    # --- the controller, and death

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        """Whoever is alive and in sync may be chosen."""
        if broker in self.state.isr and self.alive(broker) is not None:
            self._change(leader=broker, leader_epoch=self.state.leader_epoch + 1)

    def _leave(self, broker: int) -> None:
        """The controller handles that a broker is gone: it leads no more, then it is not in sync any more."""
        others = [member for member in self.state.isr if member != broker]
        alive = [member for member in others if self.alive(member) is not None]
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
        """With its log as it was, or with a part of it that is gone: then it is not in sync, unless nobody else is."""
        if self.alive(broker) is not None:
            return
        log = self.logs[broker]
        others = [member for member in self.state.isr if member != broker]
        if lost > 0.5 and others and log.log_end_offset > log.log_start_offset:
            self._leave(broker)
            log.truncate_to(int(log.log_end_offset * (lost - 0.5) * 2))
        elif self.state.leader == broker:
            alive = [member for member in others if self.alive(member) is not None]
            self._change(leader=alive[0] if alive else broker, leader_epoch=self.state.leader_epoch + 1)
        self.incarnations[broker] += 1
        self._start(broker)
        if self.state.leader == NO_LEADER and broker in self.state.isr:
            self._change(leader=broker, leader_epoch=self.state.leader_epoch + 1)
        self.see(broker)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(broker=BROKER)
    def checkpoint(self, broker: int) -> None:
        here = self.alive(broker)
        if here is not None:
            self.checkpoints[broker] = here.high_watermark

    # --- what must hold

    @invariant()
    def leader_in_isr(self) -> None:
        assert self.state.leader in (*self.state.isr, NO_LEADER)
        assert self.state.isr

    @invariant()
    def strong_isr(self) -> None:
        """What any leader, a zombie too, has for committed is on every replica that is in sync."""
        for broker in BROKERS:
            led = self.alive(broker)
            if led is not None and led.leads:
                committed = content(led.log, led.high_watermark)
                for member in self.state.isr:
                    assert self._below(member, led.high_watermark) == committed, (broker, member)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        self._settle_committed()
        for member in self.state.isr:
            everything = content(self.logs[member], self.logs[member].log_end_offset)
            for offset, batch in self.acknowledged.items():
                assert batch in everything, (offset, member)

    @invariant()
    def logs_are_the_same_below_the_high_watermarks(self) -> None:
        for one in BROKERS:
            for other in BROKERS[:one]:
                first, second = self.alive(one), self.alive(other)
                if first is not None and second is not None:
                    end = min(first.high_watermark, second.high_watermark)
                    assert content(first.log, end) == content(second.log, end), (one, other, end)

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
        return content(self.logs[member], min(end, self.logs[member].log_end_offset))


class MachineWithMinInsync(ReplicationMachine):
    min_insync = 2

    def __init__(self) -> None:
        super().__init__()
        self.stood: dict[Any, int] = {}

    @invariant()
    def nothing_is_committed_by_fewer(self) -> None:
        """The high watermark stands while the leader knows that too few are in sync (KIP-966)."""
        for broker in BROKERS:
            led = self.alive(broker)
            if led is not None and led.leads and len(led.isr) < self.min_insync:
                key = broker, self.incarnations[broker], led.leader_epoch, led.in_sync.partition_epoch
                assert self.stood.setdefault(key, led.high_watermark) == led.high_watermark


TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(examples(200), stateful_step_count=40, deadline=None)
TestWithMinInsync = MachineWithMinInsync.TestCase
TestWithMinInsync.settings = settings(examples(60), stateful_step_count=40, deadline=None)


# --- every rule is needed: without it, the same steps break what must hold

Breaks = list[tuple[Any, str, Any]]
Steps = Callable[[ReplicationMachine], Iterator[None]]


def the_leader_alone_commits() -> Breaks:
    """B5"""
    return [(partition_module, "replicated_offset", lambda log_end_offset, ends: log_end_offset)]


def who_has_not_told_does_not_count() -> Breaks:
    replicated = high_watermark.replicated_offset
    told = lambda end, ends: replicated(end, [each for each in ends if each is not None])  # noqa: E731
    return [(partition_module, "replicated_offset", told)]


def append_only(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce(0)
    yield


def a_proposal_counts_as_accepted() -> Breaks:
    def see(self: isr.InSync) -> None:
        self.maximal = frozenset(self.committed if self.proposed is None else self.proposed)

    return [(isr.InSync, "_see_who_may_be", see)]


def propose_to_drop_one_that_lags(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce(0)
    machine.catch_up(1, 2)
    machine.now += LAG_SECONDS + 1
    machine.catch_up(1, 1)
    yield
    machine.propose(0)
    yield


def drop(machine: ReplicationMachine) -> None:
    """Broker 2 leaves the ISR of broker 0."""
    machine.now += LAG_SECONDS + 1
    machine.catch_up(1, 2)
    machine.propose(0)
    machine.decide(0, answered=True, again=False)
    assert machine.state.isr == (0, 1)


def whoever_fetches_may_join() -> Breaks:
    return [(partition_module, "may_join", lambda follower, *_: follower.log_end_offset is not None)]


def one_that_is_behind_asks_to_join(machine: ReplicationMachine) -> Iterator[None]:
    """It was up to date a moment ago: it does not lag."""
    machine.produce(0)
    drop(machine)
    machine.catch_up(2, 2)
    machine.produce(0)
    machine.catch_up(1, 2)
    yield
    machine.propose(0)
    if machine.proposals:
        machine.decide(0, answered=True, again=False)
    yield


def the_start_of_the_epoch_does_not_matter() -> Breaks:
    may_join = isr.may_join
    return [
        (partition_module, "may_join", lambda follower, committed, _, start: may_join(follower, committed, 0, start))
    ]


def a_new_leader_knows_less_than_was_acknowledged(machine: ReplicationMachine) -> Iterator[None]:
    drop(machine)
    machine.produce(0)
    machine.catch_up(1, 1)
    machine.ask(1)
    machine.serve(0, again=False, size=1)  # acknowledged, and broker 1 does not hear of it
    yield
    machine.elect(1)
    machine.see(1)
    machine.see(2)
    machine.ask(2)
    machine.serve(len(machine.fetches) - 1, again=False, size=1)
    machine.propose(1)
    if machine.proposals:
        machine.decide(0, answered=True, again=False)
    yield


def positions_outlive_their_epoch() -> Breaks:
    """B8: what was fetched in an epoch before counts in this one."""
    lead = Partition.lead

    def keeping(self: Partition, *args: Any, **options: Any) -> None:
        before = dict(self.followers)
        lead(self, *args, **options)
        self.followers.update(before)
        self._see_who_is_in_sync()

    return [(Partition, "lead", keeping)]


def another_epoch_may_ask() -> Breaks:
    return [(Partition, "check_leader_epoch", lambda *_: None)]


def a_follower_is_cut_while_its_leader_does_not_look(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce(0)
    machine.catch_up(1, 2)
    machine.ask(1)  # on its way, until broker 0 leads again
    machine.elect(2)
    machine.see(2)
    machine.see(1)
    machine.catch_up(1, 2)
    assert machine.logs[1].log_end_offset == 0
    machine.elect(0)
    machine.see(0)
    yield
    machine.die(2, noticed=True)
    machine.see(0)
    yield
    machine.serve(0, again=False, size=1)
    yield


def what_is_there_at_the_start_counts_as_replicated() -> Breaks:
    """B4"""
    return [(replica, "at_start", lambda checkpointed, log_start_offset, log_end_offset: log_end_offset)]


def a_leader_comes_back(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce(0)
    machine.die(0, noticed=False)
    machine.come_back(0, lost=0.0)
    machine.elect(0)
    machine.see(0)
    yield


def divergence_goes_unseen() -> Breaks:
    return [(replica.Replica, "divergence_of_follower", lambda *_: None)]


def a_follower_has_another_record_than_its_leader(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce(0)
    machine.catch_up(1, 1)
    machine.elect(2)
    machine.see(2)
    machine.die(0, noticed=True)
    machine.see(2)
    machine.see(1)
    machine.produce(2)
    machine.ask(1)
    machine.serve(0, again=False, size=1)
    yield


def followers_believe_the_leaders_high_watermark() -> Breaks:
    return [(replica, "high_watermark_of_follower", lambda own, leaders, log_end_offset: max(own, leaders))]


def one_that_is_behind_gets_a_part(machine: ReplicationMachine) -> Iterator[None]:
    drop(machine)
    machine.produce_several(0, 3)
    machine.catch_up(1, 3)
    machine.ask(2)
    machine.serve(0, again=False, size=1)
    machine.take_answer(0, again=False)
    yield


def a_late_answer_is_taken() -> Breaks:
    def at_the_same_offset(here: Partition, asked: FetchPosition) -> bool:
        return not here.leads and position_of(here).offset == asked.offset

    return [(following, "is_still_at", at_the_same_offset)]


def an_answer_of_an_older_leader_comes_late(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce_several(0, 2)
    machine.ask(1)
    machine.serve(0, again=False, size=1)
    machine.take_answer(0, again=False)
    machine.ask(1)
    machine.serve(0, again=False, size=1)  # on its way, until broker 1 follows another leader at the same offset
    machine.elect(2)
    machine.see(2)
    machine.see(1)
    machine.die(0, noticed=True)
    machine.see(2)
    machine.catch_up(1, 2)
    machine.produce(2)
    machine.catch_up(1, 1)
    machine.produce(2)
    machine.take_answer(0, again=False)
    machine.ask(1)
    machine.serve(0, again=False, size=1)
    yield


def too_few_are_enough() -> Breaks:
    """KIP-966"""
    return [(Partition, "has_enough_in_sync", True)]


def all_others_lag(machine: ReplicationMachine) -> Iterator[None]:
    machine.now += LAG_SECONDS + 1
    machine.propose(0)
    machine.decide(0, answered=True, again=False)
    assert machine.state.isr == (0,)
    yield
    machine.produce(0)
    yield


NEEDED: list[tuple[Callable[[], Breaks], Steps]] = [
    (the_leader_alone_commits, append_only),
    (who_has_not_told_does_not_count, append_only),
    (a_proposal_counts_as_accepted, propose_to_drop_one_that_lags),
    (whoever_fetches_may_join, one_that_is_behind_asks_to_join),
    (the_start_of_the_epoch_does_not_matter, a_new_leader_knows_less_than_was_acknowledged),
    (positions_outlive_their_epoch, a_follower_is_cut_while_its_leader_does_not_look),
    (another_epoch_may_ask, a_follower_is_cut_while_its_leader_does_not_look),
    (what_is_there_at_the_start_counts_as_replicated, a_leader_comes_back),
    (divergence_goes_unseen, a_follower_has_another_record_than_its_leader),
    (followers_believe_the_leaders_high_watermark, one_that_is_behind_gets_a_part),
    (a_late_answer_is_taken, an_answer_of_an_older_leader_comes_late),
    (too_few_are_enough, all_others_lag),
]


def play(steps: Steps, machine: ReplicationMachine) -> None:
    machine.begin()
    for _ in steps(machine):
        machine.leader_in_isr()
        machine.strong_isr()
        machine.nothing_acknowledged_is_lost()
        machine.logs_are_the_same_below_the_high_watermarks()
        machine.a_leaders_high_watermark_never_goes_back()
        if isinstance(machine, MachineWithMinInsync):
            machine.nothing_is_committed_by_fewer()


@pytest.mark.parametrize(("broken", "steps"), NEEDED, ids=[broken.__name__ for broken, _ in NEEDED])
def test_every_rule_is_needed(broken: Callable[[], Breaks], steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = MachineWithMinInsync if broken is too_few_are_enough else ReplicationMachine
    play(steps, kind())
    for where, name, instead in broken():
        monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        play(steps, kind())


def test_the_machine_finds_a_broken_rule_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for where, name, instead in who_has_not_told_does_not_count():
        monkeypatch.setattr(where, name, instead)
    search = settings(
        max_examples=400,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ReplicationMachine, settings=search)
