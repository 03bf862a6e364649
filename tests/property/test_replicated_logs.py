"""Several replicas of one partition lose no acknowledged record, under arbitrary events between them.

`tests/support/replication_machine.py` defines the events. This module removes one rule of replication at a time, and
each time a required property must fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)
from tests.support import replication_machine
from tests.support.examples import examples
from tests.support.replication_machine import (
    LAG_SECONDS,
    MachineWithMinInsync,
    ReplicationMachine,
)

from oncelog_broker.controller import election
from oncelog_broker.controller.candidates import UNKNOWN, CandidateLogs, LogEnd
from oncelog_broker.controller.election import Decision
from oncelog_broker.replication import fetch_response, high_watermark, isr, replica
from oncelog_broker.replication import partition as partition_module
from oncelog_broker.replication.fetch_response import position_of
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import Partition

TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(examples(80, of=200), stateful_step_count=40, deadline=None)
TestWithMinInsync = MachineWithMinInsync.TestCase
TestWithMinInsync.settings = settings(examples(30, of=60), stateful_step_count=40, deadline=None)


# --- each rule of replication is needed: without the rule, the same steps break an invariant

Breaks = list[tuple[Any, str, Any]]


Steps = Callable[[ReplicationMachine], Iterator[None]]


def the_leader_alone_commits() -> Breaks:
    """Remove a rule: the high watermark is the end of the leader's log, whatever offsets the followers have."""
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
    """Let the leader, broker 0, remove broker 2 from the ISR."""
    machine.now += LAG_SECONDS + 1
    machine.catch_up(1, 2)
    machine.propose(0)
    machine.decide(0, answered=True, again=False)
    assert machine.state.isr == (0, 1)


def whoever_fetches_may_join() -> Breaks:
    return [(partition_module, "may_join", lambda follower, *_: follower.log_end_offset is not None)]


def one_that_is_behind_asks_to_join(machine: ReplicationMachine) -> Iterator[None]:
    """The replica was caught up a moment ago, so it does not count as lagging."""
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
    # The record is acknowledged, and broker 1 does not learn the new high watermark.
    machine.serve(0, again=False, size=1)
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
    """Remove a rule: offsets that followers fetched in an earlier leader epoch count in the current one."""
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
    machine.ask(1)  # the response arrives only when broker 0 leads again
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
    """Remove a rule: after a start, the high watermark is the log end offset and not the checkpointed one."""
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

    return [(fetch_response, "is_still_at", at_the_same_offset)]


def an_answer_of_an_older_leader_comes_late(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce_several(0, 2)
    machine.ask(1)
    machine.serve(0, again=False, size=1)
    machine.take_answer(0, again=False)
    machine.ask(1)
    # The response arrives only when broker 1 follows another leader from the same offset.
    machine.serve(0, again=False, size=1)
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
    """Remove a rule: the high watermark advances although too few replicas are in sync (KIP-966)."""
    return [(Partition, "has_enough_in_sync", True)]


def all_others_lag(machine: ReplicationMachine) -> Iterator[None]:
    machine.now += LAG_SECONDS + 1
    machine.propose(0)
    machine.decide(0, answered=True, again=False)
    assert machine.state.isr == (0,)
    yield
    machine.produce(0)
    yield


def a_log_begins_again_at_once() -> Breaks:
    return [(replica.Replica, "may_begin_again", lambda *_: True)]


def fail_and_give_up_all(machine: ReplicationMachine, broker: int) -> None:
    """By the rule, the log may restart only in a new leader epoch; without the rule, no new epoch is requested."""
    machine.disk_fails(broker)
    machine.begin_again(broker, kept=0.0)
    if machine.renewals:
        machine.renew(0, again=False)
        machine.see(machine.state.leader)
        machine.see(broker)
        machine.begin_again(broker, kept=0.0)


def a_log_begins_again_while_its_join_is_under_way(machine: ReplicationMachine) -> Iterator[None]:
    drop(machine)
    machine.produce(0)
    machine.catch_up(1, 2)
    machine.catch_up(2, 2)
    machine.propose(0)
    assert [member for member, _ in machine.proposals[0].isr] == [0, 1, 2]
    machine.see(2)
    fail_and_give_up_all(machine, 2)
    assert machine.logs[2].log_end_offset == 0
    machine.decide(0, answered=True, again=False)
    yield


def a_log_begins_again_while_its_last_fetch_is_under_way(machine: ReplicationMachine) -> Iterator[None]:
    drop(machine)
    machine.produce(0)
    machine.catch_up(1, 2)
    machine.catch_up(2, 1)
    machine.ask(2)  # the response is on its way over a connection that the follower has closed
    machine.see(2)
    fail_and_give_up_all(machine, 2)
    assert machine.logs[2].log_end_offset == 0
    machine.serve(0, again=False, size=1)
    machine.propose(0)
    if machine.proposals:
        machine.decide(0, answered=True, again=False)
    yield


def nobody_is_asked_before_an_election() -> Breaks:
    return [(replication_machine, "log_end", lambda log: UNKNOWN)]


def who_has_less_stays_in_sync() -> Breaks:
    def most_alone(asked: Any, contenders: Any, in_sync: Any) -> Any:
        decided = with_the_most(asked, contenders, in_sync)
        return Decision(dataclasses.replace(decided.state, isr=asked.state.isr), may_lose=True)

    with_the_most = election._with_the_most
    return [(election, "_with_the_most", most_alone)]


def one_has_kept_more_than_the_first(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce_several(0, 4)
    for broker in (1, 2):
        machine.catch_up(broker, 3)
    yield
    assert len(machine.acknowledged) == 4
    machine.all_lose_their_power((0.0, 0.6, 0.3), [0, 1, 2])
    assert machine.state.leader == 1
    yield
    assert len(machine.acknowledged) == 2


def an_offline_log_may_be_elected() -> Breaks:
    return [(replication_machine, "log_end", lambda log: LogEnd(log.latest_epoch, log.log_end_offset))]


def the_first_cannot_open_its_log(machine: ReplicationMachine) -> Iterator[None]:
    machine.produce(0)
    machine.catch_up(1, 2)
    machine.catch_up(2, 2)
    machine.all_are_killed(0, [0, 1, 2])
    assert (machine.state.leader, machine.state.isr) == (1, (1, 2)), "the others have everything"
    yield


def a_log_begins_again_by_the_image_alone() -> Breaks:
    return [(replication_machine, "confirms", lambda leader, leader_epoch: True)]


def a_log_begins_again_while_its_leader_is_dead(machine: ReplicationMachine) -> Iterator[None]:
    """The leader died and its disk is replaced, while the leader's metadata store session is still open."""
    machine.produce(0)
    for broker in (1, 2):
        machine.catch_up(broker, 2)
    assert machine.acknowledged or machine.pending
    yield
    assert len(machine.acknowledged) == 1
    machine.die(0, noticed=False)
    machine._change(isr=(0,))  # the log of each other replica has failed
    for broker in (1, 2):
        machine.see(broker)
        fail_and_give_up_all(machine, broker)
    machine.disks_of_the_isr_are_exchanged([0, 1, 2])
    assert len(machine.acknowledged) == 1, "somebody has kept it"
    yield


def dead_brokers_are_elected_without_questions() -> Breaks:
    return [(CandidateLogs, "end_of", lambda self, key, broker: UNKNOWN)]


def the_log_of_a_leader_fails_while_the_next_is_dead(machine: ReplicationMachine) -> Iterator[None]:
    """The leader's log fails while the metadata store session of another, dead broker is still open."""
    machine.produce(0)
    for broker in (1, 2):
        machine.catch_up(broker, 2)
    machine.elect(1)
    for broker in (0, 1, 2):
        machine.see(broker)
    machine.die(0, noticed=False)
    machine.leader_fails(1)
    assert (machine.state.leader, machine.state.isr) == (2, (0, 2)), "the one that answers leads"
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
    (a_log_begins_again_at_once, a_log_begins_again_while_its_join_is_under_way),
    (a_log_begins_again_at_once, a_log_begins_again_while_its_last_fetch_is_under_way),
    (too_few_are_enough, all_others_lag),
    (nobody_is_asked_before_an_election, one_has_kept_more_than_the_first),
    (who_has_less_stays_in_sync, one_has_kept_more_than_the_first),
    (an_offline_log_may_be_elected, the_first_cannot_open_its_log),
    (a_log_begins_again_by_the_image_alone, a_log_begins_again_while_its_leader_is_dead),
    (dead_brokers_are_elected_without_questions, the_log_of_a_leader_fails_while_the_next_is_dead),
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


@pytest.mark.parametrize(
    ("broken", "steps"), NEEDED, ids=[f"{broken.__name__}-{steps.__name__}" for broken, steps in NEEDED]
)
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
