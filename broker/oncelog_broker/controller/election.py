"""Who leads a partition: pure decisions on one partition's state. Source: Kafka's PartitionStateMachine.

Every election gives a new leader epoch, also when the leader stays the same broker: a broker that died may have lost
the tail of its log, and only a new epoch lets followers and consumers see that (KIP-101, KIP-320).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.metadata.payloads import PartitionState


def first_leader(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first state of a new partition: the first live replica leads, all live replicas are in sync, for there is
    nothing yet to be behind of. None while no replica lives."""
    in_sync = tuple(broker for broker in replicas if broker in live)
    if not in_sync:
        return None
    return PartitionState(in_sync[0], 0, in_sync, controller_epoch)


def needs_election(state: PartitionState, live: Collection[int], restarted: Collection[int] = ()) -> bool:
    """Whether its leader is gone, or has been gone since it was elected."""
    return state.leader not in live or state.leader in restarted


def elect_leader(
    replicas: Sequence[int], state: PartitionState, live: Collection[int], controller_epoch: int
) -> PartitionState:
    """The state after an election among the live replicas of the ISR, the preferred one first.

    Without any, the partition has no leader until one of its ISR comes back: a replica outside may miss committed
    records (unclean.leader.election.enable=false). The ISR then stays, to tell who may lead again.
    """
    in_sync = tuple(broker for broker in state.isr if broker in live)
    leader = next((broker for broker in replicas if broker in in_sync), NO_LEADER)
    if leader == NO_LEADER:
        if state.leader == NO_LEADER:
            return state
        return PartitionState(NO_LEADER, state.leader_epoch + 1, state.isr, controller_epoch)
    return PartitionState(leader, state.leader_epoch + 1, in_sync, controller_epoch)
