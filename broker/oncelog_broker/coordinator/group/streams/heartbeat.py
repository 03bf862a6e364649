"""Handles StreamsGroupHeartbeat, with which a member joins a streams group, stays in the group, and leaves. This module
has no I/O. State that is in the log changes only when a logged record is applied to it (`replay`).

A heartbeat that changes the group logs one batch of records, in this order: the member's metadata, the topology that
the group's first member sent, the group epoch, the target assignment, the member's current assignment.

Kafka 4.3's counterpart is GroupMetadataManager.streamsGroupHeartbeat. Unlike Kafka's broker, this broker asks for the
next heartbeat soon while a member waits for an assignment, for tasks of other members, or for internal topics.
"""

from __future__ import annotations

from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredTopology, configure
from oncelog_broker.coordinator.group.streams.heartbeat_answer import answer, interval_ms, statuses_of
from oncelog_broker.coordinator.group.streams.heartbeat_request import NOT_SAID, StreamsHeartbeat, invalid
from oncelog_broker.coordinator.group.streams.streams_group import (
    NO_TOPOLOGY_VALIDATED,
    Configs,
    StreamsGroup,
    unknown_member,
)
from oncelog_broker.coordinator.group.streams.streams_member import JOINING_EPOCH, StreamsMember, StreamsMemberState
from oncelog_broker.coordinator.group.streams.streams_reconcile import StreamsAim, reconcile
from oncelog_broker.coordinator.group.streams.streams_step import StreamsStep
from oncelog_broker.coordinator.group.streams.streams_target import BY_INITIAL_DELAY, Assignment, maybe_assign
from oncelog_broker.coordinator.group.streams.streams_topology import StreamsTopology, requested
from oncelog_broker.coordinator.group.streams_tasks import NO_TARGET, is_within
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def heartbeat(step: StreamsStep, asked: StreamsHeartbeat) -> None:
    """Handle a heartbeat of a member that joins the streams group or stays in the streams group.

    Raises KafkaError GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, INVALID_REQUEST (the topology
    differs from the group's topology, or a claimed task does not exist), MESSAGE_TOO_LARGE, COORDINATOR_NOT_AVAILABLE.
    """
    group, request = step.group, asked.request
    same = _is_unchanged(step, asked)
    if same is not None:
        answer(step, asked, same, [], step.settings.heartbeat_interval_ms, shows_tasks=False)
        return
    before = _known_or_new(step, asked)
    is_new = before.member_id not in group.members
    member = _said(before, asked)
    topology = _topology(group, request)
    _check_bytes(step, None if is_new else before, member, topology)
    if is_new or member.said != before.said:
        step.effects.append(member.metadata_record(group.group_id))
    if group.topology is None:
        step.effects.append(topology.record(group.group_id))
    configured, metadata_hash = _configure(step, topology)
    if configured.is_ready:
        _check_owned(configured, asked)
    group_epoch = _raise_group_epoch(
        step, topology, configured, metadata_hash, is_needed=is_new or member.said != before.said
    )
    delayed_until_ms = _initial_delay(step)
    if delayed_until_ms:
        assignment = Assignment(group.assignment_epoch, NO_TARGET, BY_INITIAL_DELAY)
    else:
        members = {**group.members, member.member_id: member}
        assignment = maybe_assign(step, members, group_epoch, configured, member.member_id)
    member = reconcile(member, StreamsAim(assignment.epoch, assignment.target, group.is_free, asked.owned))
    if is_new or _current(member) != _current(before):
        step.effects.append(member.current_record(group.group_id))
        step.follow_reconciliation(member)
    _note_soft_state(step, asked, configured, delayed_until_ms)
    changed = asked.joins or member.assigned != before.assigned
    # A member that claims other tasks than its assigned tasks may not have received the response with its assigned
    # tasks.
    shows = changed or (asked.owned is not None and asked.owned != member.assigned.tasks)
    statuses = list(statuses_of(group, member, topology, configured, assignment, asked))
    interval = interval_ms(step, member, configured, assignment, delayed_until_ms)
    answer(step, asked, member, statuses, interval, shows_tasks=shows, configured=configured, has_new_tasks=changed)


def _current(member: StreamsMember) -> tuple[object, ...]:
    """Return the fields of a member that the record of its current assignment contains."""
    return (member.epoch, member.previous_epoch, member.state, member.assigned, member.pending_revocation)


def _is_unchanged(step: StreamsStep, asked: StreamsHeartbeat) -> StreamsMember | None:
    """Return the member if neither the member nor the group has anything to change, as in nearly every heartbeat;
    otherwise None."""
    request, group = asked.request, step.group
    member = group.members.get(request.member_id)
    if (
        member is not None
        and request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and member.state is StreamsMemberState.STABLE
        and request.active_tasks is None
        and request.rebalance_timeout_ms == NOT_SAID
        and request.rack_id is None
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
        and not request.shutdown_application
        and (member.client_id, member.client_host) == asked.client
        and group.checked_topics is step.topics
        and group.configured is not None
        and group.configured.is_ready
        and group.topology is not None
        and member.topology_epoch == group.topology.epoch
        and group.shutdown_requested_by is None
        and not group.delayed_until_ms
        and group.assignment_configs == step.assignment_configs
    ):
        return member
    return None


# --- functions for the member in a heartbeat --------------------------------------------------------------------------


def _known_or_new(step: StreamsStep, asked: StreamsHeartbeat) -> StreamsMember:
    """Return the sender of the heartbeat as a known member of the group, or as a new member. Raises KafkaError
    GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
    group, member_id = step.group, asked.request.member_id
    member = group.members.get(member_id)
    if member is None:
        if not asked.joins:
            raise unknown_member(group, member_id)
        if len(group.members) >= step.config.streams_max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {step.config.streams_max_size} members.",
            )
        return StreamsMember(member_id)
    _check_epoch(member, asked)
    return member


def _check_epoch(member: StreamsMember, asked: StreamsHeartbeat) -> None:
    """Check the epoch of a heartbeat. The member's epoch is valid. The previous epoch is also valid if the member
    claims only tasks that it has: the member may not have received the response with its new epoch. Raises KafkaError
    FENCED_MEMBER_EPOCH.
    """
    epoch = asked.request.member_epoch
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch and epoch < member.epoch and is_within(asked.owned, member.assigned):
        return
    how = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _said(member: StreamsMember, asked: StreamsHeartbeat) -> StreamsMember:
    """Return the member with the fields of the request; fields that the request omits stay unchanged."""
    request = asked.request
    at, tags = request.user_endpoint, request.client_tags
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == NOT_SAID else request.rebalance_timeout_ms
        ),
        client_id=asked.client.client_id,
        client_host=asked.client.host,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=member.endpoint if at is None else (at.host, at.port),
        tags=member.tags if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
    )


def _check_bytes(
    step: StreamsStep, before: StreamsMember | None, member: StreamsMember, topology: StreamsTopology
) -> None:
    """Check the limits on the metadata of members and groups, which apply to groups of all protocols. Raises KafkaError
    MESSAGE_TOO_LARGE, GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE."""
    group, config = step.group, step.config
    sizes = [] if before is not None and before.said == member.said else [member.held_bytes]
    more = sum(sizes) - (before.held_bytes if before is not None and sizes else 0)
    if group.topology is None:
        sizes.append(topology.held_bytes)
        more += topology.held_bytes
    if any(size > config.member_metadata_max_bytes for size in sizes):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"group.member.metadata.max.bytes={config.member_metadata_max_bytes}"
        )
    if more > 0 and group.held_bytes + more > config.metadata_max_bytes:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group.metadata.max.bytes={config.metadata_max_bytes}")
    if more > 0 and group.held.bytes + more > config.coordinator_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"group.coordinator.metadata.max.bytes={config.coordinator_metadata_max_bytes}",
        )


# --- functions for the group of the heartbeat -------------------------------------------------------------------------


def _topology(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsTopology:
    """Return the topology of the group, which comes from its first member. If the request has a topology with a lower
    topology epoch, it is ignored. Raises KafkaError INVALID_REQUEST if the request has another topology with the same
    or a higher topology epoch."""
    if request.topology is None:
        if group.topology is None:  # the log has no record of the group's topology
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no topology: join again.")
        return group.topology
    if group.topology is not None and group.topology.epoch > request.topology.epoch:
        return group.topology
    brought = requested(request.topology)
    if group.topology is None:
        return brought
    if group.topology != brought:
        raise invalid("Topology updates are not supported yet.")
    return group.topology


def _configure(step: StreamsStep, topology: StreamsTopology) -> tuple[ConfiguredTopology, int]:
    """Return (the comparison of the group's topology with the existing topics, the hash of these topics' metadata).
    Both are computed again only after the cluster's topics have changed.
    """
    group = step.group
    if group.configured is not None and group.checked_topics is step.topics:
        return group.configured, group.metadata_hash
    metadata_hash = step.topics.hash_of(topology.required)
    if group.configured is not None and metadata_hash == group.metadata_hash:
        return group.configured, metadata_hash
    return configure(topology, step.topics.partitions_of_name), metadata_hash


def _check_owned(configured: ConfiguredTopology, asked: StreamsHeartbeat) -> None:
    """Check that all tasks that the member claims to own exist in the topology. Raises KafkaError INVALID_REQUEST."""
    for tasks in asked.owned or ():
        for subtopology_id, numbers in tasks.items():
            subtopology = configured.subtopologies.get(subtopology_id)
            if subtopology is None:
                raise invalid(f"Subtopology {subtopology_id} does not exist in the topology.")
            wrong = [number for number in numbers if not 0 <= number < subtopology.tasks]
            if wrong:
                raise invalid(
                    f"Task {wrong[0]} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.tasks}"
                )


def _raise_group_epoch(
    step: StreamsStep,
    topology: StreamsTopology,
    configured: ConfiguredTopology,
    metadata_hash: int,
    *,
    is_needed: bool,
) -> int:
    """Raise the group epoch if an input of the assignment has changed: the member, the metadata of topics, whether all
    topics exist, or the assignment settings. Returns the new or unchanged group epoch.
    """
    group, configs = step.group, step.assignment_configs
    validated = topology.epoch if configured.is_ready else NO_TOPOLOGY_VALIDATED
    logged: tuple[int, int, Configs] = (
        group.metadata_hash,
        group.validated_topology_epoch,
        group.assignment_configs,
    )
    if not is_needed and logged == (metadata_hash, validated, configs):
        return group.epoch
    step.effects.append(group.epoch_record(group.epoch + 1, metadata_hash, validated, configs))
    return group.epoch + 1


def _initial_delay(step: StreamsStep) -> int:
    """Return the end of the group's initial rebalance delay (wall time in ms), or 0 without a delay. The initial
    rebalance delay starts when the first member joins an empty group.
    """
    group, delay_ms = step.group, step.settings.initial_rebalance_delay_ms
    if group.delayed_until_ms or group.members or delay_ms == 0:
        return group.delayed_until_ms
    step.start_initial_delay()
    return step.now_ms + delay_ms


def _note_soft_state(
    step: StreamsStep, asked: StreamsHeartbeat, configured: ConfiguredTopology, delayed_until_ms: int
) -> None:
    """Request that the soft state of the group is changed when the records have been replayed (`Effects.changes`)."""
    asks_for_shutdown = asked.request.shutdown_application

    def note() -> None:
        group = step.logged_group()
        if group is not None:
            group.checked_topics, group.configured = step.topics, configured
            group.delayed_until_ms = delayed_until_ms
            if asks_for_shutdown and group.shutdown_requested_by is None:
                group.shutdown_requested_by = asked.request.member_id

    step.effects.changes.append(note)
