"""Decides which partition states must change: the input is the controller's view of the cluster and the partitions to
check, the result is the changes to write. Pure.

The decisions depend on the view alone. After a change was written and the view updated, the change is not decided
again. After a write with an unknown outcome, the view is read again, and the change is decided again. Since an event
only names the partitions to check, a missed or repeated event does no harm.

    event                                          partitions to look at
    this broker became controller                  all partitions
    the view was read again                        all partitions
    brokers registered, left, registered again     partitions with a replica on these brokers
    a broker requests its controlled shutdown      partitions with a replica on this broker
    topics were created, grown, deleted            partitions of these topics
    a write was refused                            partitions in this write
    brokers have reported log ends                 partitions in the reports (`candidate_questions.py`)
    a reassignment was requested, an ISR grew      partitions that are being reassigned
    the deletion of a topic was interrupted        none; `topics.py` continues the deletion

The rules for AlterPartition are in `alter_partition.py`, for ElectLeaders in `elect_leaders.py`, and for the first step
of a reassignment in `reassignment.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from oncelog_broker.controller.candidates import Question
from oncelog_broker.controller.election import Decision, Election, Outcome, Undecided, first_leader, outcome
from oncelog_broker.controller.reassignment import (
    Reassigned,
    completed,
    confirms,
    is_caught_up,
    removes_in_sync,
)
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.payloads import PartitionState, ReplicaAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.light_classes import NamedTuple


class PartitionChange(NamedTuple):
    """A partition state to be written. `version`: the known version of the state's node; None if there is no node
    yet."""

    key: PartitionKey
    state: PartitionState
    version: int | None
    is_election: bool = True
    may_lose: bool = False
    assignment: ReplicaAssignment | None = None
    """The assignment to be written with the state, at the beginning or end of a reassignment."""

    def brokers(self) -> set[int]:
        """Return the brokers whose incarnations the write must check: the members of the new ISR."""
        return set(self.state.isr)


def in_order(changes: Iterable[PartitionChange]) -> list[PartitionChange]:
    """Return the changes in the order of writing: elections come first, because clients wait for them, and each part is
    in the order of topic names and partitions, whatever the order of `changes`.
    """
    by_key = sorted(changes, key=lambda change: change.key)
    return sorted(by_key, key=lambda change: not change.is_election)


def wanted_change(view: ClusterView, key: PartitionKey, controller_epoch: int) -> PartitionChange | None:
    """Return the change to be written for one partition; None if the partition's state does not change."""
    replicas = view.replicas(key)
    if not replicas or key.topic in view.doomed:
        return None
    known = view.states.get(key)
    if known is None:
        first = first_leader(replicas, view.staying, controller_epoch)
        return None if first is None else PartitionChange(key, first, None)
    decision = partition_outcome(view, key, controller_epoch, unclean=view.allows_unclean_election(key.topic))
    if not isinstance(decision, Decision):
        return _completion(view, key, known, controller_epoch)
    is_election = decision.state.leader_epoch != known.state.leader_epoch
    return PartitionChange(key, decision.state, known.version, is_election, decision.may_lose)


def partition_outcome(view: ClusterView, key: PartitionKey, controller_epoch: int, *, unclean: bool) -> Outcome:
    """Return the result of `election.outcome` (which replica leads, if any) for a partition that has a state."""
    return outcome(election_of(view, key, controller_epoch, unclean=unclean))


def election_of(view: ClusterView, key: PartitionKey, controller_epoch: int, *, unclean: bool = False) -> Election:
    """Return all facts that decide which replica leads a partition that has a state."""
    candidates = view.candidates
    return Election(
        view.replicas(key),
        view.states[key],
        view.brokers,
        controller_epoch,
        unclean,
        partial(candidates.end_of, key),
        candidates.waits_for_absent(key),
    )


def is_led(view: ClusterView, key: PartitionKey) -> bool:
    """Whether the leader in a partition's state has been registered without a break since its election. If False, the
    broker that the state names as leader must be replaced by an election.
    """
    known = view.states[key]
    return view.broker(known.state.leader).is_steady_since(known.written)


def undecided(view: ClusterView, key: PartitionKey, *, unclean: bool | None = None) -> Undecided | None:
    """Return the requests for log ends that brokers must answer before any replica can lead this partition; None if the
    partition needs no log ends, or if no log end would allow an election. `unclean`: whether a replica outside the ISR
    may lead; None means that the topic's setting decides.
    """
    if key not in view.states or not view.replicas(key) or key.topic in view.doomed:
        return None
    if unclean is None:
        unclean = view.allows_unclean_election(key.topic)
    found = partition_outcome(view, key, 0, unclean=unclean)
    return found if isinstance(found, Undecided) else None


def awaited(view: ClusterView, key: PartitionKey) -> Undecided | None:
    """Return the requests for log ends that brokers must answer before the next change of this partition, including the
    requests that `undecided` returns. If only the last step of a reassignment is left, the requests ask replicas of the
    reassignment's target whether their logs are open.
    """
    found = undecided(view, key)
    return _unconfirmed(view, key) if found is None else found


def _unconfirmed(view: ClusterView, key: PartitionKey) -> Undecided | None:
    assignment, known = view.assignment(key), view.states.get(key)
    if assignment is None or known is None or not view.candidates.is_asked_for or not _may_complete(view, key):
        return None
    if not is_caught_up(assignment, known) or not removes_in_sync(assignment, known):
        return None
    ends = {broker: view.candidates.end_of(key, broker) for broker in assignment.target if broker in view.live}
    if any(confirms(end) for end in ends.values()):
        return None
    return Undecided(
        ask=tuple(broker for broker, end in ends.items() if end is None),
        offline=tuple(broker for broker, end in ends.items() if end is not None),
    )


def _may_complete(view: ClusterView, key: PartitionKey) -> bool:
    """Whether a reassignment may end now; False while an election must come first, because before that election no
    replica is known to be in sync."""
    is_there = key.topic not in view.doomed and bool(view.replicas(key))
    return is_there and view.may_vouch(key)


def questions(view: ClusterView, key: PartitionKey, found: Undecided) -> list[Question]:
    """Return the log end requests to the brokers in `found.ask`, with their present registrations."""
    version = view.states[key].version
    return [Question(broker, view.brokers[broker].epoch, key, version) for broker in found.ask]


def _completion(
    view: ClusterView, key: PartitionKey, known: KnownState, controller_epoch: int
) -> PartitionChange | None:
    """Return the change that ends a reassignment, if the target is in sync and, when brokers are asked, a replica of
    the target has confirmed that its log is open.
    """
    assignment, candidates = view.assignment(key), view.candidates
    if assignment is None or not assignment.is_reassigned or not _may_complete(view, key):
        return None
    log_end_of = partial(candidates.end_of, key) if candidates.is_asked_for else None
    reassigned = completed(assignment, known, controller_epoch, log_end_of)
    return None if reassigned is None else reassignment_change(key, reassigned, known)


def reassignment_change(key: PartitionKey, reassigned: Reassigned, known: KnownState) -> PartitionChange:
    """Return the change of one step of a reassignment. Clients wait for this change only if it changes the leader."""
    is_election = reassigned.state.leader != known.state.leader
    return PartitionChange(key, reassigned.state, known.version, is_election, assignment=reassigned.assignment)
