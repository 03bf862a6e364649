"""A classic group keeps its invariants under any sequence of joins, leaves, deaths, restarts and failed writes.

Members behave like clients: they join and sync when a response tells them to, send heartbeats while they are alive, and
believe every response. The invariants are about the members' beliefs, such as their generations and assignments.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.groups import REBALANCE_MS, SESSION_MS, Answer, GroupDriver

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.held_bytes import bytes_of
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_protocol.errors import ErrorCode

MEMBERS = st.integers(0, 4)
PROTOCOLS = st.sampled_from(
    [(("a", b"x"), ("b", b"x")), (("b", b"y"), ("a", b"x")), (("b", b"x"),), (("b", b"y"), ("a", b"x"), ("b", b"x"))]
)
FATAL = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}


class Client:
    """What one client process believes about its membership."""

    def __init__(self, number: int) -> None:
        self.instance_id = f"i{number}" if number >= 3 else None
        self.forget()

    def forget(self) -> None:
        """Become a new process, or a process that learned that it is no longer a member."""
        self.member_id = ""
        self.generation = -1
        self.leader_of: list[str] | None = None
        self.assignment: bytes | None = None
        self.protocols: Any = (("a", b"x"), ("b", b"x"))
        self.joining: Answer | None = None
        self.syncing: Answer | None = None


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver(GroupConfig(max_size=4))
        self.clients = [Client(number) for number in range(5)]
        self.handed_out: dict[int, dict[str, bytes]] = {}
        """Generation -> the assignments that its leader sent, if they were logged."""
        self.generations: list[int] = []

    # --- steps of clients

    def _believe(self, client: Client) -> None:
        """Apply the responses that the members have received."""
        joining, syncing = client.joining, client.syncing
        if joining is not None and joining.is_there:
            client.joining = None
            if joining.code is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = joining.response.member_id
            elif joining.code is ErrorCode.NONE:
                response = joining.response
                client.member_id, client.generation = response.member_id, response.generation_id
                client.assignment = None
                is_leader = response.leader == response.member_id and not response.skip_assignment
                client.leader_of = [member.member_id for member in response.members] if is_leader else None
                if is_leader:
                    assert response.member_id in client.leader_of
                    # All members support the chosen protocol.
                    assert all(member.metadata for member in response.members)
            elif joining.code in FATAL:
                client.forget()
        if syncing is not None and syncing.is_there:
            client.syncing = None
            if syncing.code is ErrorCode.NONE:
                client.assignment = syncing.response.assignment
            elif syncing.code in FATAL | {ErrorCode.ILLEGAL_GENERATION}:
                client.forget()

    def _believe_all(self) -> None:
        for client in self.clients:
            self._believe(client)

    @rule(number=MEMBERS)
    def join(self, number: int) -> None:
        client = self.clients[number]
        client.joining = self.driver.join(client.member_id, instance_id=client.instance_id, protocols=client.protocols)
        self._believe_all()

    @rule(number=MEMBERS, protocols=PROTOCOLS)
    def want_something_else(self, number: int, protocols: Any) -> None:
        self.clients[number].protocols = protocols

    @rule(number=MEMBERS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.generation < 0 or client.joining is not None:
            return
        given = {}
        if client.leader_of is not None:
            given = {member: f"{client.generation}:{member}".encode() for member in client.leader_of}
        request = type("Joined", (), {"generation_id": client.generation, "member_id": client.member_id})
        logged = len(self.driver.log)
        client.syncing = self.driver.sync(request, given, instance_id=client.instance_id)  # type: ignore[arg-type]
        if given and len(self.driver.log) > logged:
            assert client.generation not in self.handed_out, "two assignments for one generation"
            self.handed_out[client.generation] = given
        self._believe_all()

    @rule(number=MEMBERS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.generation >= 0:
            code = self.driver.heartbeat(client.member_id, client.generation, client.instance_id)
            if code in FATAL | {ErrorCode.ILLEGAL_GENERATION}:
                client.forget()

    @rule(number=MEMBERS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id:
            self.driver.leave(client.member_id)
            client.forget()
            self._believe_all()

    @rule(number=MEMBERS)
    def die(self, number: int) -> None:
        self.clients[number].forget()

    # --- steps of the broker

    @rule(seconds=st.sampled_from([1.0, SESSION_MS / 2000, SESSION_MS / 1000, REBALANCE_MS / 1000, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.advance(seconds)
        self._believe_all()

    @rule()
    def appends_fail_or_not(self) -> None:
        self.driver.fail_appends = not self.driver.fail_appends

    @rule()
    def restart(self) -> None:
        """Restart the broker, which loads the group from the log."""
        self.driver.fail_appends = False
        self.driver.restart()
        self._generations_that_were_not_logged_are_forgotten()

    @rule()
    def a_step_raises(self) -> None:
        self.driver.fail()
        self._generations_that_were_not_logged_are_forgotten()

    def _generations_that_were_not_logged_are_forgotten(self) -> None:
        # Remove from the model a generation that was formed but not logged, because the coordinator may use that
        # generation's number again.
        group = self.driver.machine.groups.get("g")
        known = group.generation if group is not None else 0
        self.handed_out = {number: given for number, given in self.handed_out.items() if number <= known}
        self._believe_all()

    @precondition(lambda self: not self.driver.fail_appends)
    @rule()
    def everybody_comes_to_rest(self) -> None:
        """Check that the group becomes stable when all live clients follow the protocol: each client is a member with
        an assignment.
        """
        alive = [number for number, client in enumerate(self.clients) if client.member_id]
        for _ in range(60):  # more than the 300 s for which the group may wait for a new member that has died
            if self._is_at_rest(alive):
                return
            for number in list(alive):
                if not self._do_as_told(number):
                    alive.remove(number)
            self.driver.advance(SESSION_MS / 1000 - 1)
            self._believe_all()
        raise AssertionError(f"never at rest: {self.driver.group.state}")

    def _is_at_rest(self, alive: list[int]) -> bool:
        group = self.driver.machine.groups.get("g")
        if group is None or group.state is GroupState.EMPTY:
            return not alive
        clients = [self.clients[number] for number in alive]
        return (
            group.state is GroupState.STABLE
            and group.members.keys() == {client.member_id for client in clients}
            and all(client.assignment is not None for client in clients)
        )

    def _do_as_told(self, number: int) -> bool:
        """Let one client do its next step. Returns False if the group is full and refused the client."""
        client = self.clients[number]
        if client.joining is not None or client.syncing is not None:
            return True
        if client.generation < 0:
            self.join(number)
            if client.joining is None and client.generation < 0:
                self.join(number)  # join again with the member id from the response
            return client.joining is not None or client.generation >= 0
        if client.assignment is None:
            self.sync(number)
            if client.assignment is None and client.syncing is None and client.generation >= 0:
                self.join(number)
            return True
        code = self.driver.heartbeat(client.member_id, client.generation, client.instance_id)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(number)
        elif code is not ErrorCode.NONE:
            client.forget()
        return True

    # --- invariants

    @invariant()
    def the_leader_is_a_member_and_static_members_are_listed(self) -> None:
        group = self.driver.machine.groups.get("g")
        if group is None:
            return
        assert (group.leader_id in group.members) == bool(group.members)
        assert len(group.members) <= 4 + 1
        assert group.static_members == {
            member.instance_id: member.member_id for member in group.members.values() if member.instance_id
        }
        assert group.joining.keys() <= group.members.keys()
        assert group.syncing.keys() <= group.members.keys()
        assert group.pending_sync <= group.members.keys()
        assert not group.members.keys() & group.pending_members
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state is GroupState.STABLE:
            assert not group.syncing
            assert not group.joining

    @invariant()
    def the_protocol_is_one_that_all_members_can_follow(self) -> None:
        group = self.driver.machine.groups.get("g")
        if group is None or group.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return
        for member in group.members.values():
            assert group.protocol_name in [name for name, _ in member.protocols]

    @invariant()
    def what_members_say_is_accounted_for(self) -> None:
        groups = self.driver.machine.groups.values()
        said = [bytes_of(member.protocols) for group in groups for member in group.members.values()]
        assert self.driver.held.bytes == sum(said)

    @invariant()
    def nobody_has_an_assignment_of_another_generation(self) -> None:
        for client in self.clients:
            if client.assignment:
                generation, _, _ = client.assignment.partition(b":")
                assert int(generation) == client.generation

    @invariant()
    def no_member_is_without_a_timer_unless_somebody_waits_for_it(self) -> None:
        """Each member needs a running timer, because a dead member would otherwise remain in the group permanently."""
        group = self.driver.machine.groups.get("g")
        for member_id in group.members if group is not None else ():
            watched = ("session", "g", member_id) in self.driver.timers
            group_timers = ("join", "g", "") in self.driver.timers or ("sync", "g", "") in self.driver.timers
            assert watched or group_timers or member_id in group.syncing, (group.state, member_id)

    @invariant()
    def the_log_says_what_the_machine_knows(self) -> None:
        group = self.driver.machine.groups.get("g")
        loaded = self.driver.replayed().groups.get("g")
        if group is None or not group.is_logged:
            assert loaded is None
        elif group.state in (GroupState.STABLE, GroupState.EMPTY):
            assert loaded is not None
            assert loaded.logged(0) == group.logged(0)
            assert loaded.state is group.state
            assert loaded.state_since_ms == group.state_since_ms


Groups.TestCase.settings = settings(examples(60, of=200), stateful_step_count=40)
TestGroups = Groups.TestCase
