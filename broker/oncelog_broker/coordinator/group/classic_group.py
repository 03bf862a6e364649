"""One group of the classic protocol: its members, its generation, and its value in the log. Pure.

A classic group has two kinds of state: durable state and soft state. The durable state is the last logged
GroupMetadataValue: members with their assignments, generation, protocol, leader. Only `replay` changes the durable
state. The soft state is the rebalance in progress: which members have joined, and which JoinGroup and SyncGroup
requests wait for a response. A restart loses the soft state, and the members start again from the last logged
generation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog_broker.coordinator.effects import Waiter
from oncelog_broker.coordinator.group.held_bytes import HeldBytes, bytes_of
from oncelog_broker.coordinator.group.states import GroupState, check_transition
from oncelog_broker.coordinator.group.subscription import CONSUMER_PROTOCOL, subscribed_topics
from oncelog_protocol.coordinator_records.consumer_offsets import GroupMetadataValue
from oncelog_protocol.errors import ErrorCode, KafkaError

Protocols = Sequence[tuple[str, bytes]]
"""The protocols that a member supports, each with its metadata, in the member's order of preference."""


class Member:
    """A member of a group of the classic protocol. `is_new` is True until the member has been part of a generation;
    until then the member sends no heartbeats.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "metadata_bytes",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.assignment = assignment
        self.follow(protocols)
        self.is_new = False

    def follow(self, protocols: Protocols) -> None:
        """Set the member's protocols."""
        self.protocols = protocols
        self.metadata_bytes = bytes_of(protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`; empty if the member does not support `protocol`."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the candidate that the member prefers; the member supports at least one candidate."""
        return next(name for name, _ in self.protocols if name in candidates)

    def logged(self, protocol: str | None) -> GroupMetadataValue.MemberMetadata:
        """Return the member in the form in which the log stores it."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=self.assignment,
        )

    @classmethod
    def of(cls, logged: GroupMetadataValue.MemberMetadata, protocol: str | None) -> Member:
        """Create a member from its form in the log, which contains only the protocol in use."""
        rebalance_timeout = logged.rebalance_timeout if logged.rebalance_timeout >= 0 else logged.session_timeout
        return cls(
            logged.member_id,
            logged.group_instance_id,
            logged.client_id,
            logged.client_host,
            rebalance_timeout,
            logged.session_timeout,
            [(protocol or "", logged.subscription)],
            logged.assignment,
        )


class ClassicGroup:
    """A group of the classic protocol. Invariants: the leader is a member, unless the group is empty. Each static
    member is listed in `static_members`. Each waiter (waiting request) in `joining` or `syncing` belongs to a member.
    `syncing` is empty outside the state CompletingRebalance. `metadata_bytes` is the metadata bytes of all members.
    `held`, the broker's total for all groups, includes these bytes until `let_go` is called.
    """

    __slots__ = (
        "generation",
        "group_id",
        "has_new_members",
        "held",
        "initial_delay_left_ms",
        "joining",
        "last_logged",
        "leader_id",
        "members",
        "metadata_bytes",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "supported",
        "syncing",
    )

    def __init__(self, group_id: str, held: HeldBytes | None = None) -> None:
        self.group_id = group_id
        self.held = held or HeldBytes()
        self.metadata_bytes = 0
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = None
        """Wall time of the last logged change, in ms; None if nothing was logged, or if Kafka before 2.1 wrote the
        record."""
        self.last_logged: GroupMetadataValue | None = None
        """The last logged value of this group; treat as read-only."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id (group.instance.id) of a static member -> member id."""
        self.supported: Counter[str] = Counter()
        """Protocol name -> number of members that support the protocol."""
        # --- fields of the soft state, which is not logged: the rebalance in progress ---------------------------------
        self.pending_members: set[str] = set()
        """Member ids that the broker gave to new clients with the error MEMBER_ID_REQUIRED, and with which no client
        has joined yet.
        """
        self.joining: dict[str, Waiter] = {}
        self.syncing: dict[str, Waiter] = {}
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet to request their assignment."""
        self.initial_delay_left_ms: int | None = None
        """In the first rebalance of an empty group: milliseconds for which the rebalance may still be delayed to wait
        for more members. None in all rebalances after the first rebalance.
        """
        self.has_new_members = False

    # --- methods about the state of the group -------------------------------------------------------------------------

    kind: Final = "classic"

    def transition_to(self, state: GroupState) -> None:
        check_transition(self.group_id, self.state, state)
        self.state = state

    @property
    def is_logged(self) -> bool:
        return self.last_logged is not None

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def all_have_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Milliseconds that members may take to rejoin: the largest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def must_join_again(self) -> bool:
        """Whether the group was logged with members, but without a leader: its members do not know their assignments
        yet, because the group has just become a classic group.
        """
        return bool(self.members) and self.leader_id is None

    # --- methods that add, remove and find members --------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member to the group. The first member becomes leader; the caller sets the group's protocol type to the
        protocol type of this member.
        """
        assert member.member_id not in self.members, member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.supported.update(name for name, _ in member.protocols)
        self._hold(member.metadata_bytes)

    def let_go(self) -> None:
        """Subtract the metadata of all members from `held` (the broker's total for all groups), because the group is
        being deleted.
        """
        self._hold(-self.metadata_bytes)

    def _hold(self, more: int) -> None:
        self.metadata_bytes += more
        self.held.bytes += more

    def remove(self, member_id: str) -> None:
        """Remove a member; the caller must have replied to the member's waiting requests."""
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        self.pending_sync.discard(member_id)
        self._forget_protocols(member)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace(self, old_id: str, member: Member) -> None:
        """Replace the member id of a static member that returned with a new id. The new id gets the assignment of the
        old id. If the old id was the leader, the new id becomes the leader.
        """
        was_leader = self.leader_id == old_id
        member.assignment = self.members[old_id].assignment
        self.remove(old_id)
        self.add(member)
        if was_leader:
            self.leader_id = member.member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._forget_protocols(member)
        member.follow(protocols)
        self.supported.update(name for name, _ in protocols)
        self._hold(member.metadata_bytes)

    def _forget_protocols(self, member: Member) -> None:
        self._hold(-member.metadata_bytes)
        for name, _ in member.protocols:
            self.supported[name] -= 1
            if not self.supported[name]:
                del self.supported[name]

    def elect_joined_leader(self) -> bool:
        """Appoint as leader a member that has joined; returns False if no member has joined."""
        if self.leader_id not in self.joining:
            self.leader_id = next(iter(self.joining), self.leader_id)
        return bool(self.joining)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the group member with this id. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID (KIP-345)."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # --- methods about the protocols of members -----------------------------------------------------------------------

    def check_protocols(self, protocol_type: str, protocols: Protocols) -> None:
        """Raises KafkaError INCONSISTENT_GROUP_PROTOCOL unless a member with this protocol type and these protocols can
        join the group."""
        if self.state is GroupState.EMPTY:
            fits = bool(protocol_type) and bool(protocols)
        else:
            fits = protocol_type == self.protocol_type and any(
                self.supported[name] == len(self.members) for name, _ in protocols
            )
        if not fits:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def select_protocol(self, replaced: str | None = None, by: Member | None = None) -> str:
        """Return the protocol that all members support and most members prefer. If `replaced` (a member id) and `by` (a
        member) are set, the vote of `by` counts instead of the vote of `replaced`.

        Among protocols with equal votes the alphabetically first is chosen, so that every broker chooses the same
        protocol.
        """
        voters = [
            by if by is not None and member_id == replaced else self.members[member_id] for member_id in self.members
        ]
        counts = Counter(name for member in voters for name, _ in member.protocols)
        candidates = frozenset(name for name, count in counts.items() if count == len(voters))
        assert candidates, "members without a common protocol were let in"
        votes = Counter(member.vote(candidates) for member in voters)
        return min(votes, key=lambda name: (-votes[name], name))

    def topics(self) -> frozenset[str] | None:
        """Return the topics that the members of a consumer group read; None if these topics are not known."""
        if not self.is_consumer_group or self.protocol_name is None:
            return frozenset() if self.is_consumer_group and not self.members else None
        read: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return None
            read |= topics
        return frozenset(read)

    # --- methods for the records of the group in the log --------------------------------------------------------------

    def value(self, now_ms: int, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the value to log when the leader sends `assignments`; members without an assignment get an empty
        assignment.
        """
        value = self.logged(now_ms)
        for member in value.members:
            member.assignment = assignments.get(member.member_id, b"")
        return value

    def logged(self, now_ms: int) -> GroupMetadataValue:
        """Return the present state of the group, as a value of the type that the log stores."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=now_ms,
            members=[member.logged(self.protocol_name) for member in self.members.values()],
        )

    def empty_value(self, now_ms: int) -> GroupMetadataValue:
        """Return the value to log when the last member has left: the next generation, without members."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )

    def replay(self, value: GroupMetadataValue) -> None:
        """Replace the durable state by the logged value. Members that are already in memory keep the state that the log
        does not contain.

        Requests that wait for this generation get their replies from the step (call of the state machine) that logged
        the value.
        """
        known, self.members = self.members, {}
        self.let_go()
        self.static_members.clear()
        self.supported.clear()
        for logged in value.members:
            member = known.get(logged.member_id)
            if member is not None:
                member.assignment = logged.assignment
            if member is None or member.logged(value.protocol) != logged:
                # The fields of the record differ from the member in memory. This happens while a log is loaded, because
                # the member in memory comes from an earlier record of this group.
                member = Member.of(logged, value.protocol)
            self.add(member)
        self.leader_id = value.leader
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self.last_logged = value
        self.joining.clear()
        self.syncing.clear()
        self.pending_sync &= self.members.keys()
        self.initial_delay_left_ms = None
        self.transition_to(GroupState.STABLE if self.members else GroupState.EMPTY)
