"""What the controller wants changed: (view, which partitions) -> changes of their states. Pure.

The view says all: a change that is written and taken over into the view is wanted no more, and one whose outcome nobody
knows is decided again from what was read. So it does not matter whether an event was seen, or how often: each only
names the partitions to look at.

    event                                        partitions
    became controller, the view was read again   all
    brokers came, went, or came again            those with a replica there
    a broker says that it is about to stop       those with a replica there
    topics created, grown, deleted               those of the topics
    a write was refused                          those of the write
    the deletion of a topic was cut short        (`topics.py` goes on with it)

AlterPartition is decided in `alter_partition.py`, what ElectLeaders asks for in `elect_leaders.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncelog_broker.controller.election import first_leader, next_state
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.metadata.payloads import PartitionState
from oncelog_broker.metadata.reader import PartitionKey


class PartitionChange(NamedTuple):
    """A state to be written. `version` is that of the node as we know it, None if there is no node yet."""

    key: PartitionKey
    state: PartitionState
    version: int | None
    is_election: bool = True
    may_lose: bool = False

    def brokers(self) -> set[int]:
        """Those whose incarnation must still be the one that the decision was made for."""
        return set(self.state.isr)


def wanted_changes(view: ClusterView, keys: Iterable[PartitionKey], controller_epoch: int) -> list[PartitionChange]:
    """What is to be written for these partitions, in order."""
    return in_order(filter(None, (wanted_change(view, key, controller_epoch) for key in keys)))


def in_order(changes: Iterable[PartitionChange]) -> list[PartitionChange]:
    """Elections come first, for their clients wait."""
    return sorted(changes, key=lambda change: not change.is_election)


def wanted_change(view: ClusterView, key: PartitionKey, controller_epoch: int) -> PartitionChange | None:
    """What is to be written for one partition."""
    replicas = view.replicas(key)
    if not replicas or key.topic in view.doomed:
        return None
    known = view.states.get(key)
    if known is None:
        first = first_leader(replicas, view.staying, controller_epoch)
        return None if first is None else PartitionChange(key, first, None)
    unclean = view.allows_unclean_election(key.topic)
    decision = next_state(replicas, known, view.brokers, view.unsure, controller_epoch, unclean, view.stopping)
    if decision is None:
        return None
    is_election = decision.state.leader_epoch != known.state.leader_epoch
    return PartitionChange(key, decision.state, known.version, is_election, decision.may_lose)
