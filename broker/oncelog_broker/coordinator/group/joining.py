"""Handles JoinGroup: members join a group, and the group forms generations. This module has no I/O. State that is in
the log changes only when a logged record is applied to it (`replay`).

A rebalance of the classic protocol begins in the state PreparingRebalance: all members are requested to join again, and
the response to each JoinGroup waits. When all members have joined, or the rebalance timeout has passed, the next
generation is formed. Each member then gets its response; the leader's response lists all members. The leader then sends
the assignments, which `membership.sync` handles. Kafka's counterpart is GroupMetadataManager; the rules come from
KIP-62, KIP-345, KIP-394 and KIP-814.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Waiter
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member, Protocols
from oncelog_broker.coordinator.group.held_bytes import bytes_of
from oncelog_broker.coordinator.group.records import group_record
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.step import NEW_MEMBER_JOIN_TIMEOUT_MS, Step, TimerKind
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog_protocol.wire_readers import MAX_STRING_BYTES


class Join(NamedTuple):
    """One JoinGroup request, and the rules that depend on the version of the request.

    `requires_member_id`: from v4 on, a new dynamic member first gets an id with which it must join (KIP-394).
    `can_skip_assignment`: from v9 on, the response can tell a returning static leader that the assignment is still
    valid (KIP-814). `no_protocol` stands for a missing protocol name in the response: "" before v7, None from v7 on.
    """

    request: JoinGroupRequest
    client: Client
    waiter: Waiter
    requires_member_id: bool
    can_skip_assignment: bool
    no_protocol: str | None = None

    def member(self, member_id: str) -> Member:
        request = self.request
        rebalance_timeout = request.rebalance_timeout_ms
        return Member(
            member_id,
            request.group_instance_id,
            self.client.client_id,
            self.client.host,
            rebalance_timeout if rebalance_timeout >= 0 else request.session_timeout_ms,
            request.session_timeout_ms,
            self.protocols,
        )

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        """The protocols of the request with their metadata, in order of preference. If the request names a protocol
        twice, only the first entry counts, because each member has one vote per protocol.
        """
        named: dict[str, bytes] = {}
        for protocol in self.request.protocols:
            named.setdefault(protocol.name, protocol.metadata)
        return list(named.items())


def join(step: Step, asked: Join) -> None:
    """Handle a JoinGroup. Raises KafkaError if the request is refused; the group has not changed then."""
    group, request = step.group, asked.request
    _check_room(step, request.member_id)
    _check_bytes(step, asked)
    group.check_protocols(request.protocol_type, asked.protocols)
    if request.member_id == "":
        _newcomer(step, asked)
    elif request.member_id in group.pending_members:
        if request.group_instance_id is not None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "a static member cannot request a member id before it joins")
        _add(step, asked, request.member_id)
    else:
        _rejoin(step, asked, group.check_member(request.member_id, request.group_instance_id))


def _check_room(step: Step, member_id: str) -> None:
    """Check group.max.size. Members of the group may rejoin even if the group is full. During a rebalance only members
    that have joined count towards the maximum.
    """
    group = step.group
    if group.state is GroupState.PREPARING_REBALANCE:
        full = member_id not in group.joining and len(group.joining) >= step.config.max_size
    else:
        full = member_id not in group.members and len(group.members) >= step.config.max_size
    if full and group.state is not GroupState.EMPTY:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group.max.size={step.config.max_size}")


def _check_bytes(step: Step, asked: Join) -> None:
    """Check the limits on the stored metadata of members. A member that sends no more bytes than before is always
    accepted."""
    group, config = step.group, step.config
    size = bytes_of(asked.protocols)
    if size > config.member_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"group.member.metadata.max.bytes={config.member_metadata_max_bytes}"
        )
    static_id = group.static_members.get(asked.request.group_instance_id or "")
    known = group.members.get(asked.request.member_id or static_id or "")
    more = size if known is None else size - known.metadata_bytes
    if more <= 0:
        return
    if group.metadata_bytes + more > config.metadata_max_bytes:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group.metadata.max.bytes={config.metadata_max_bytes}")
    if group.held.bytes + more > config.coordinator_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"group.coordinator.metadata.max.bytes={config.coordinator_metadata_max_bytes}",
        )


def _newcomer(step: Step, asked: Join) -> None:
    group, instance_id = step.group, asked.request.group_instance_id
    prefix = asked.client.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{step.new_id()}"
    if len(member_id.encode()) > MAX_STRING_BYTES:
        # A member id with more bytes cannot be encoded in the log and in the leader's JoinGroup response.
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client id or group instance id is too long for a member id")
    if instance_id is not None:
        known_as = group.static_members.get(instance_id)
        if known_as is None:
            _add(step, asked, member_id)
        else:
            _static_returns(step, asked, known_as, asked.member(member_id))
    elif asked.requires_member_id:
        if len(group.pending_members) >= step.config.max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many member ids were assigned and are not used yet")
        group.pending_members.add(member_id)
        step.start_session(asked.member(member_id))
        step.effects.reply(
            asked.waiter,
            JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED,
                protocol_name=asked.no_protocol,
                leader="",
                member_id=member_id,
                members=[],
            ),
        )
    else:
        _add(step, asked, member_id)


def _add(step: Step, asked: Join, member_id: str) -> None:
    group = step.group
    member = asked.member(member_id)
    member.is_new = True
    group.has_new_members = group.initial_delay_left_ms is not None
    group.pending_members.discard(member_id)
    if not group.members:
        group.protocol_type = asked.request.protocol_type
    group.add(member)
    group.joining[member_id] = asked.waiter
    step.start_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance(step)


def _rejoin(step: Step, asked: Join, member: Member) -> None:
    """Handle the JoinGroup of a present member: the member was requested to rejoin, has changed its subscription, or
    has not received the previous response."""
    group = step.group
    if _missed_our_answer(group, member, asked.protocols):
        step.effects.reply(asked.waiter, generation_response(step, member.member_id))
    else:
        _update(step, asked, member)
        group.set_protocols(member, asked.protocols)
        rebalance(step)


def _missed_our_answer(group: ClassicGroup, member: Member, protocols: Protocols) -> bool:
    """Whether this JoinGroup is a retry, because the member has not received the response to its previous JoinGroup. In
    a retry the protocols are unchanged, and the response repeats the present generation. False for the leader of a
    stable group, which rejoins to request a rebalance because the input of its assignment has changed."""
    if list(member.protocols) != list(protocols):
        return False
    if group.state is GroupState.STABLE:
        return group.leader_id != member.member_id
    return group.state is GroupState.COMPLETING_REBALANCE


def _update(step: Step, asked: Join, member: Member) -> None:
    """Let `member` wait for the next generation, and set the timeouts in the request."""
    group, newest = step.group, asked.member(member.member_id)
    member.rebalance_timeout_ms, member.session_timeout_ms = newest.rebalance_timeout_ms, newest.session_timeout_ms
    earlier = group.joining.get(member.member_id)
    if earlier is not None:  # end the wait of the member's earlier JoinGroup request
        step.effects.reply(earlier, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
    group.joining[member.member_id] = asked.waiter


def _static_returns(step: Step, asked: Join, old_id: str, member: Member) -> None:
    """Handle a static member that returned with a new id, and fence the old id. If the group is stable and its chosen
    protocol does not change, the group does not rebalance, and only the new id is logged.
    """
    group = step.group
    member.assignment = group.members[old_id].assignment
    step.refuse(old_id, ErrorCode.FENCED_INSTANCE_ID)
    step.end_session(old_id)
    step.start_session(member)
    keeps_protocol = group.state is GroupState.STABLE and group.select_protocol(old_id, member) == group.protocol_name
    if keeps_protocol:
        _replace_in_stable_group(step, asked, old_id, member)
        return
    group.replace(old_id, member)
    group.joining[member.member_id] = asked.waiter
    rebalance(step)


def _replace_in_stable_group(step: Step, asked: Join, old_id: str, member: Member) -> None:
    group = step.group
    is_leader = group.leader_id == old_id
    value = group.logged(step.now_ms)
    value.members = [
        member.logged(group.protocol_name) if logged.member_id == old_id else logged for logged in value.members
    ]
    value.leader = member.member_id if is_leader else group.leader_id
    step.effects.append(group_record(group.group_id, value))
    # The record contains only one protocol of a member; the member's other protocols are soft state.
    step.effects.changes.append(lambda: group.set_protocols(group.members[member.member_id], member.protocols))
    # In versions before KIP-814 the response names the old id as the leader, so that the returning leader does not
    # compute an assignment again.
    leader = value.leader if asked.can_skip_assignment else group.leader_id
    skips = asked.can_skip_assignment and is_leader
    members = [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=logged.member_id, group_instance_id=logged.group_instance_id, metadata=logged.subscription
        )
        for logged in value.members
    ]
    step.effects.reply(
        asked.waiter,
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or "",
            skip_assignment=skips,
            member_id=member.member_id,
            members=members if skips else [],
        ),
    )


# --- functions that form a new generation of the group ----------------------------------------------------------------


def rebalance(step: Step) -> None:
    """Start a rebalance because the members have changed. If a rebalance is in progress and all members have joined,
    complete it."""
    group = step.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        _prepare(step)
    elif group.initial_delay_left_ms is None and group.all_have_joined:
        complete_join(step)


def _prepare(step: Step) -> None:
    group = step.group
    for member_id, waiter in group.syncing.items():
        step.effects.reply(waiter, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
        step.start_session(group.members[member_id])
    group.syncing.clear()
    group.pending_sync.clear()
    step.cancel_timer(TimerKind.SYNC)
    is_first = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE)
    delay_ms = step.config.initial_rebalance_delay_ms
    if is_first and delay_ms > 0:
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_new_members = False
        step.start_timer(TimerKind.JOIN, delay_ms)
    elif group.all_have_joined:
        complete_join(step)
    else:
        step.start_timer(TimerKind.JOIN, group.rebalance_timeout_ms)


def on_join_timer(step: Step) -> None:
    """Complete the rebalance when the time to join is over. If this time is the initial delay of an empty group and new
    members have joined meanwhile, extend the delay instead.
    """
    group = step.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    left = group.initial_delay_left_ms
    if left and group.has_new_members:
        delay_ms = min(step.config.initial_rebalance_delay_ms, left)
        group.initial_delay_left_ms = left - delay_ms
        group.has_new_members = False
        step.start_timer(TimerKind.JOIN, delay_ms)
    else:
        complete_join(step)


def complete_join(step: Step) -> None:
    """Form the next generation from the members that have joined. Members that have not joined are removed, except
    static members, which may return until their session timeout. If only static members are left and no member has
    joined, the group waits for one more rebalance timeout.
    """
    group = step.group
    gone = [m.member_id for m in group.members.values() if m.member_id not in group.joining and not m.is_static]
    if len(gone) == len(group.members):
        step.become_empty()
        return
    for member_id in gone:
        step.end_session(member_id)
        group.remove(member_id)
    if not group.elect_joined_leader():
        step.start_timer(TimerKind.JOIN, group.rebalance_timeout_ms)
        return
    step.cancel_timer(TimerKind.JOIN)
    group.initial_delay_left_ms = None
    group.generation += 1
    group.protocol_name = group.select_protocol()
    group.transition_to(GroupState.COMPLETING_REBALANCE)
    joined, group.joining = group.joining, {}
    for member_id, waiter in joined.items():
        step.effects.reply(waiter, generation_response(step, member_id))
    for member in group.members.values():
        member.is_new = False
        step.start_session(member)
    group.pending_sync = set(group.members)
    step.start_timer(TimerKind.SYNC, group.rebalance_timeout_ms)


def generation_response(step: Step, member_id: str) -> JoinGroupResponse:
    """Return the JoinGroup response with the present generation for this member; only the response to the leader lists
    the members.
    """
    group = step.group
    members = group.members.values() if group.leader_id == member_id else ()
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in members
        ],
    )
