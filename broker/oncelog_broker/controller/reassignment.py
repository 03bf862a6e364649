"""Moves partitions to other brokers: the rules of KIP-455. Pure.

    phase          effect
    requested      replicas = target + original, with adding and removing replicas, written with the partition's state
    catching up    the added replicas fetch like any follower, and join the ISR by AlterPartition
    completed      when the entire target is in sync: replicas = target, and the ISR and leader are among the target

The progress of a reassignment is stored in the topic's node, as in Kafka, so the next controller continues the
reassignment. The controller decides a step (start or end of a reassignment) again until the step is written
(`partition_decisions.py`). Each step also writes the partition's state, which raises the version of the state. An ISR
proposal that is based on the older assignment then has an old version and is refused.

Removing a replica causes a new leader epoch, in which the removed replica no longer fetches. Adding a replica causes no
new leader epoch, because no log changes; clients do not notice the change. A step that would remove the last replica in
sync is refused.

The broker of a removed replica deletes the log of the partition. If the removed replica was in sync, a replica of the
reassignment's target must first have all records. The last step of a reassignment waits until a replica of the target
has reported that its log is open (`confirms`). A report from before the last write of the state does not count. Without
this report, all brokers of the target might already have lost power while their sessions have not expired yet. (Kafka
does not ask for such a report.) Source: KafkaController.onPartitionReassignment, and KRaft's
PartitionReassignmentRevert and PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.controller.election import LogEndOf
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.errors import ErrorCode, KafkaError


class Reassigned(NamedTuple):
    """The assignment and the state of a partition after a step; both are written together."""

    assignment: ReplicaAssignment
    state: PartitionState


def reassigned_to(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """Return the assignment of a partition during a reassignment to `target`. A replica that an earlier reassignment
    was adding, and that is not in `target`, is removed immediately.
    """
    original = assignment.original
    replicas = tuple(dict.fromkeys((*target, *original)))
    return ReplicaAssignment(
        replicas,
        tuple(broker for broker in replicas if broker not in original),
        tuple(broker for broker in replicas if broker not in target),
    )


def begin(
    view: ClusterView,
    key: PartitionKey,
    target: Sequence[int] | None,
    controller_epoch: int,
    *,
    may_change_replication_factor: bool = True,
) -> Reassigned | None:
    """Return the first step of a reassignment to `target`, which replaces a reassignment under way. If `target` is
    None, the partition returns to its original replicas. Returns None if nothing must change. If the step removes
    replicas in sync, the caller must first ask the remaining replicas in sync whether their logs are open
    (`staying_in_sync`).

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, LEADER_NOT_AVAILABLE.
    """
    assignment, known = view.assignment(key), view.states.get(key)
    if assignment is None or key.topic in view.doomed:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if target is None:
        if not assignment.is_reassigned:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        target = assignment.original
    else:
        _check_target(target, assignment, view.staying, may_change_replication_factor)
    wanted = reassigned_to(assignment, target)
    if wanted == assignment:
        return None
    if known is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "None of the replicas of this partition has been registered since its creation.",
        )
    if view.has_unsure(key):
        message = (
            f"Of the replicas in sync, {list(known.state.isr)}, some may have lost records, and no leader was elected "
            "since: start their brokers, or accept the loss by an unclean election, and ask again."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not view.may_vouch(key):
        message = f"Broker {known.state.leader}, the leader, was away; the election comes first: ask again."
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
    there: Collection[int] | None = None
    if view.candidates.is_asked_for and not set(known.state.isr) <= set(wanted.replicas):
        in_sync = [broker for broker in known.state.isr if broker in wanted.replicas]
        there = [broker for broker in in_sync if confirms(view.candidates.end_of(key, broker))]
        if in_sync and not there:
            message = f"None of the replicas in sync that would stay, {in_sync}, answers: ask again when they do."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    state = _among(wanted.replicas, assignment.replicas, known, controller_epoch, there)
    if state is None:
        message = f"Of the replicas in sync, {list(known.state.isr)}, none would stay: its records would be lost."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return Reassigned(wanted, state)


def staying_in_sync(view: ClusterView, key: PartitionKey, target: Sequence[int] | None) -> tuple[int, ...]:
    """Return the live replicas in sync that remain in the ISR after `begin`, if `begin` removes other replicas in sync;
    otherwise return (). `begin` removes the replicas that an earlier reassignment was adding.
    """
    assignment, known = view.assignment(key), view.states.get(key)
    if assignment is None or known is None:
        return ()
    replicas = reassigned_to(assignment, assignment.original if target is None else target).replicas
    if set(known.state.isr) <= set(replicas):
        return ()
    return tuple(broker for broker in known.state.isr if broker in replicas and broker in view.live)


def is_caught_up(assignment: ReplicaAssignment, known: KnownState) -> bool:
    """Whether a reassignment is under way and all replicas of its target are in sync."""
    return assignment.is_reassigned and set(assignment.target) <= set(known.state.isr)


def removes_in_sync(assignment: ReplicaAssignment, known: KnownState) -> bool:
    """Whether the last step of a reassignment removes replicas in sync."""
    return not set(known.state.isr) <= set(assignment.target)


def confirms(end: LogEnd | None) -> bool:
    """Whether a replica has reported that its log is open."""
    return end not in (None, OFFLINE, UNKNOWN)


def completed(
    assignment: ReplicaAssignment, known: KnownState, controller_epoch: int, log_end_of: LogEndOf | None = None
) -> Reassigned | None:
    """Return the last step of a reassignment; None while a replica of the target is not in sync. The result is also
    None if the step would remove replicas in sync and no replica of the target `confirms`. `log_end_of`: the log ends
    that the brokers have reported; None if the controller asks no brokers.
    """
    if not is_caught_up(assignment, known):
        return None
    there: Collection[int] = assignment.target
    if log_end_of is not None and removes_in_sync(assignment, known):
        there = [broker for broker in assignment.target if confirms(log_end_of(broker))]
        if not there:
            return None
    state = _among(assignment.target, assignment.replicas, known, controller_epoch, there)
    assert state is not None, "the target is in sync"
    return Reassigned(ReplicaAssignment(assignment.target), state)


def _among(
    replicas: Sequence[int],
    before: Sequence[int],
    known: KnownState,
    controller_epoch: int,
    there: Collection[int] | None = None,
) -> PartitionState | None:
    """Return the state after the replicas change from `before` to `replicas`; None if none of `replicas` is in sync. If
    the partition has a leader, every replica in sync is live, because a dead replica leaves the ISR before this
    function is called. `there` has the brokers that may become leader if the present leader is removed; None means that
    any of `replicas` may become leader.
    """
    state = known.state
    isr = tuple(broker for broker in state.isr if broker in replicas)
    if not isr:
        return None
    state = replace(state, isr=isr, controller_epoch=controller_epoch)
    if state.leader == NO_LEADER or set(before) <= set(replicas):
        return state
    may_lead = isr if there is None else [broker for broker in isr if broker in there]
    leader = state.leader if state.leader in isr else next(broker for broker in replicas if broker in may_lead)
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)


def _check_target(
    target: Sequence[int], assignment: ReplicaAssignment, live: Collection[int], may_change_replication_factor: bool
) -> None:
    """Check the target of a reassignment. Raises KafkaError INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR."""
    present = len(assignment.target)
    if not may_change_replication_factor and len(target) != present:
        message = f"The replication factor would change from {present} to {len(target)}."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if not target:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replicas are listed.")
    if len(set(target)) != len(target):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"A broker is listed twice: {_shown(target)}.")
    if any(broker < 0 for broker in target):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Broker ids are not negative: {_shown(target)}.")
    away = [broker for broker in target if broker not in assignment.original and broker not in live]
    if away:
        message = f"Brokers of the new assignment are not alive: {_shown(away)} of {_shown(target)}."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _shown(brokers: Sequence[int]) -> str:
    return f"{list(brokers[:10])}" + (" and more" if len(brokers) > 10 else "")
