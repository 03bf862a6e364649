"""A streams group keeps its invariants under any sequence of heartbeats, lost responses, dead members, restarts, failed
writes and topic changes.

Clients may take a while to give up tasks, and work on the tasks until then. Clients believe every response, and rejoin
when they are fenced. A fenced client may keep working until it learns that it is fenced, but its commits are refused
because their epoch is old.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.consumer_groups import topic
from tests.support.examples import examples
from tests.support.groups import Answer, state_of
from tests.support.streams_groups import (
    Client1071,
    StreamsDriver,
    Tasks,
    each_task,
    ids_of,
    internal,
    subtopology,
    topology,
)

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup, StreamsGroupState
from oncelog_broker.coordinator.group.streams_tasks import Role
from oncelog_protocol.errors import ErrorCode

CLIENTS = st.integers(0, 4)
TOPOLOGY = topology(
    subtopology("0", "t", sinks=["r"]),
    subtopology("1", "u", repartition=[internal("r")], changelogs=[internal("c")]),
)
FATAL = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_REQUEST}


class SlowClient(Client1071):
    """A client that keeps working on its revoked tasks until a step makes it release them."""

    works_on: Tasks = frozenset()
    copies: Tasks = frozenset()

    def join(self, **said: Any) -> Answer:
        self.works_on = self.copies = frozenset()
        return super().join(**said)

    def beat(self, **said: Any) -> Answer:
        """Send a heartbeat; if the client believes that it is not a member, the heartbeat asks to join."""
        if self.epoch <= 0:
            return self.join()
        tasks = {"active_tasks": ids_of(self.works_on), "standby_tasks": ids_of(self.copies), "warmup_tasks": []}
        return self.send(**tasks | said)

    def idle(self) -> Answer:
        return self.beat() if self.epoch <= 0 else super().idle()

    def believe(self, answer: Answer) -> Answer:
        super().believe(answer)
        is_out = answer.code in FATAL or answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
        if is_out:
            self.epoch, self.works_on, self.copies = 0, frozenset(), frozenset()
        else:
            self.works_on, self.copies = self.works_on | self.active, self.copies | self.standby
        return answer

    def let_go(self) -> None:
        self.works_on, self.copies = self.active, self.standby


class StreamsGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = StreamsDriver(GroupConfig(streams_max_size=4), [topic("t", 4), topic("u", 3)])
        self.clients = [
            SlowClient(self.driver, f"c{number}", topology=TOPOLOGY, process_id=f"p{number // 2}")
            for number in range(5)
        ]
        self.lives = 0
        self.incarnations = {"t": 0, "u": 0}
        self.epochs: list[int] = []
        self.owners: dict[tuple[str, int, int], str] = {}
        """(Subtopology, partition, epoch) -> the member that owned the active task in that epoch."""

    @property
    def group(self) -> StreamsGroup | None:
        group = self.driver.machine.groups.get("g")
        assert group is None or isinstance(group, StreamsGroup)
        return group

    # --- steps of clients

    @rule(number=CLIENTS)
    def join(self, number: int) -> None:
        self.clients[number].join()

    @rule(number=CLIENTS)
    def restart_client(self, number: int) -> None:
        """Start a new client process that does not know the state of its predecessor."""
        self.lives += 1
        client = self.clients[number]
        client.member_id = f"c{number}.{self.lives}"
        client.join()

    @rule(number=CLIENTS)
    def beat(self, number: int) -> None:
        self.clients[number].beat()

    @rule(number=CLIENTS)
    def idle(self, number: int) -> None:
        self.clients[number].idle()

    @rule(number=CLIENTS)
    def lose_an_answer(self, number: int) -> None:
        """Deliver a heartbeat to the group and lose the response."""
        client = self.clients[number]
        if client.epoch > 0:
            self.driver.streams_heartbeat(
                member_id=client.member_id,
                member_epoch=client.epoch,
                active_tasks=ids_of(client.works_on),
                standby_tasks=ids_of(client.copies),
                warmup_tasks=[],
            )

    @rule(number=CLIENTS)
    def let_go(self, number: int) -> None:
        self.clients[number].let_go()

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        client.works_on = client.copies = frozenset()
        client.leave()

    # --- steps of the broker

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 29.0, 50.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.advance(seconds)

    @rule(standbys=st.integers(0, 2))
    def settings_change(self, standbys: int) -> None:
        self.driver.overrides["g"] = {"streams.num.standby.replicas": str(standbys)}

    @rule()
    def internal_topics_are_created(self) -> None:
        self.driver.create_topics()

    @rule(name=st.sampled_from(["t", "u"]), partitions=st.integers(1, 5))
    def topics_change(self, name: str, partitions: int) -> None:
        """Re-create a topic and delete the group's internal topics, as an administrator must if the topic's number of
        partitions changes.
        """
        self.incarnations[name] += 1
        self.driver.wanted = ()
        self.driver.set_topics(without=[name, "r", "c"])
        self.driver.set_topics(topic(name, partitions, incarnation=self.incarnations[name]))

    @rule()
    def appends_fail(self) -> None:
        self.driver.fail_appends = True

    @precondition(lambda self: self.driver.fail_appends)
    @rule()
    def appends_work(self) -> None:
        self.driver.fail_appends = False

    @rule()
    def restart(self) -> None:
        self.driver.fail_appends = False
        self.driver.restart()

    @rule()
    def a_step_raises(self) -> None:
        self.driver.fail()

    # --- invariants

    @invariant()
    def no_active_task_has_two_owners(self) -> None:
        if self.group is None:
            return
        found: dict[tuple[str, int], str] = {}
        for member in self.group.members.values():
            for tasks in (member.assigned, member.pending_revocation):
                for name, numbers in tasks.active.items():
                    for number in numbers:
                        assert found.setdefault((name, number), member.member_id) == member.member_id
        assert self.group.active_owners == found

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        """A task that a member is giving up counts only in the role (active or standby) in which the member still has
        the task.
        """
        if self.group is None:
            return
        found = set[tuple[str, str, int]]()
        for member in self.group.members.values():
            for tasks in member.assigned.tasks:
                for name, numbers in tasks.items():
                    for number in numbers:
                        task = (member.process_id, name, number)
                        assert task not in found
                        found.add(task)

    @invariant()
    def in_one_epoch_a_task_has_one_owner_ever(self) -> None:
        for member in () if self.group is None else self.group.members.values():
            for name, numbers in member.assigned.active.items():
                for number in numbers:
                    who = self.owners.setdefault((name, number, member.epoch), member.member_id)
                    assert who == member.member_id

    @invariant()
    def members_do_not_work_on_what_others_work_on(self) -> None:
        if self.group is None:
            return
        works_on: Tasks = frozenset()
        for client in self.clients:
            member = self.group.members.get(client.member_id)
            if member is None or client.epoch <= 0:
                continue  # this member was fenced, and learns it from the response to its next heartbeat
            if client.epoch not in (member.epoch, member.previous_epoch):
                continue
            assert not client.works_on & works_on
            works_on |= client.works_on

    @invariant()
    def epochs_do_not_fall(self) -> None:
        group = self.group
        if group is None:
            return
        assert all(member.epoch <= group.assignment_epoch for member in group.members.values())
        assert group.assignment_epoch <= group.epoch
        assert self.epochs[-1:] <= [group.epoch]
        self.epochs.append(group.epoch)

    @invariant()
    def the_log_says_all(self) -> None:
        assert state_of(self.driver.replayed()) == state_of(self.driver.machine)

    @invariant()
    def targets_are_free_or_held(self) -> None:
        """Check that `is_free` gives the same result as a search through all members."""
        group = self.group
        for member in () if group is None else group.members.values():
            for name, number in (("0", 0), ("1", 0)):
                assert group is not None
                others = [each for each in group.members.values() if each is not member]
                active = any(number in tasks.active.get(name, ()) for each in others for tasks in _all(each))
                if group.is_free(Role.ACTIVE, name, number, member):
                    assert not active

    def teardown(self) -> None:
        """Check that all members reach their target assignments when only heartbeats are sent from now on."""
        self.driver.fail_appends = False
        if self.group is None:
            return
        here = [client for client in self.clients if client.member_id in self.group.members]
        for _ in range(16):  # longer than the session timeout, so that the group removes dead members
            self.driver.advance(5.0)
            for client in here:
                client.let_go()
                if client.beat().code is not ErrorCode.NONE:
                    client.join()
                self.driver.create_topics()
        if here:
            counts = {name: self.driver.view.partitions_of(self.driver.view.id_of(name) or b"") for name in "tu"}
            wanted = [("0", number) for number in range(counts["t"])]
            wanted += [("1", number) for number in range(max(counts.values()))]
            assert self.group.state is StreamsGroupState.STABLE
            assert self.group.members.keys() == {client.member_id for client in here}
            assert each_task(*here) == sorted(wanted)


def _all(member: Any) -> tuple[Any, Any]:
    return member.assigned, member.pending_revocation


StreamsGroups.TestCase.settings = settings(examples(60, of=200), stateful_step_count=40)
TestStreamsGroups = StreamsGroups.TestCase
