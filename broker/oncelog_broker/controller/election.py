"""Who leads a partition and who is in sync: pure decisions on one partition's state. Source: Kafka's
PartitionStateMachine and ReplicaStateMachine.

A broker was away if it is not registered, or was registered anew after the state was written: each write of a state
checks the incarnations of its whole ISR, so whoever is older than the write has been there ever since. Where nobody but
returned brokers is left, what counts is whether they may have lost the end of their logs: a broker that came unsure of
it is so for every state that is older than that registration, however often it has come since.

Every election gives a new leader epoch, also when the leader stays the same broker: only a new epoch lets followers and
consumers see that the tail of a log may be another one (KIP-101, KIP-320). Leaving the ISR gives none.

A broker that is about to stop counts as one that is away, with two exceptions: it goes on leading what nobody else in
sync can lead, and while it is there nobody is elected from outside the ISR, for it comes back with everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog_broker.controller.view import KnownState, LiveBroker
from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.metadata.payloads import PartitionState

RECOVERED: Final = 0
RECOVERING: Final = 1
"""Values of `leader_recovery_state`: elected from outside the ISR, and not yet said to be whole again (KIP-704)."""


class Decision(NamedTuple):
    """The state that a partition is to have."""

    state: PartitionState
    may_lose: bool = False
    """Whether committed records may be missing at the new leader."""


def first_leader(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first state of a new partition: the first live replica leads, all live replicas are in sync, for there is
    nothing yet to be behind of. None while no replica lives."""
    in_sync = tuple(broker for broker in replicas if broker in live)
    if not in_sync:
        return None
    return PartitionState(in_sync[0], 0, in_sync, controller_epoch)


def next_state(
    replicas: Sequence[int],
    known: KnownState,
    live: Mapping[int, LiveBroker],
    unsure_since: Mapping[int, int],
    controller_epoch: int,
    unclean: bool = False,
    stopping: Collection[int] = (),
) -> Decision | None:
    """What the partition's state becomes while these brokers live; None if it stays.

    `unsure_since`: as `ClusterView.unsure`. `unclean`: whether a replica outside the ISR may lead if nobody else can
    (unclean.leader.election.enable). `stopping`: who of the `live` is about to go.
    """
    state = known.state
    steady = _steady(replicas, known, live)
    staying = tuple(broker for broker in steady if broker not in stopping)
    in_sync = staying or steady
    if state.leader in in_sync:
        if in_sync == state.isr:
            return None
        return Decision(replace(state, isr=in_sync, controller_epoch=controller_epoch))
    if staying:
        return _elected(state, replicas, staying, staying, controller_epoch)
    if stopping:
        unclean = unclean and not steady
        live = {broker: there for broker, there in live.items() if broker not in stopping}
    present = [broker for broker in state.isr if broker in live and broker in replicas]
    unsure = [broker for broker in state.isr if unsure_since.get(broker, -1) > known.written]
    sure = [broker for broker in present if broker not in unsure]
    if sure:
        return _elected(state, replicas, sure, (), controller_epoch)
    return _without_a_sure_replica(state, replicas, unsure, live, controller_epoch, unclean)


def preferred_state(
    replicas: Sequence[int],
    known: KnownState,
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    stopping: Collection[int] = (),
) -> PartitionState | None:
    """The state in which the first of the replicas leads; None where it cannot without a loss, or does already."""
    state, preferred = known.state, replicas[0]
    staying = tuple(broker for broker in _steady(replicas, known, live) if broker not in stopping)
    if state.leader == preferred or preferred not in staying:
        return None
    return _elected(state, replicas, (preferred,), staying, controller_epoch).state


def _steady(replicas: Sequence[int], known: KnownState, live: Mapping[int, LiveBroker]) -> tuple[int, ...]:
    """Those of the ISR who have been there ever since the state was written."""
    return tuple(
        broker
        for broker in known.state.isr
        if broker in live and broker in replicas and live[broker].epoch <= known.written
    )


def _without_a_sure_replica(
    state: PartitionState,
    replicas: Sequence[int],
    unsure: Sequence[int],
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    unclean: bool,
) -> Decision | None:
    """Of the ISR, all those are away who are not `unsure`.

    The unsure leave the ISR to those who may still have everything, also those who are away: a write of the state that
    kept them there would say that they are in sync. The last ones of it lead all the same, since nobody has more than
    they do.
    """
    awaited = tuple(broker for broker in state.isr if broker not in unsure)
    present = [broker for broker in unsure if broker in live and broker in replicas]
    if present and (unclean or not awaited):
        decision = _elected(state, replicas, present, (), controller_epoch)
        return decision._replace(may_lose=True)
    awaited = awaited or state.isr
    others = [broker for broker in replicas if broker in live]
    if unclean and others:
        decision = _elected(state, replicas, others, (), controller_epoch)
        return Decision(replace(decision.state, leader_recovery_state=RECOVERING), may_lose=True)
    if state.leader == NO_LEADER and awaited == state.isr:
        return None
    epoch = state.leader_epoch + (state.leader != NO_LEADER)
    offline = replace(state, leader=NO_LEADER, leader_epoch=epoch, isr=awaited, controller_epoch=controller_epoch)
    return Decision(offline)


def _elected(
    state: PartitionState,
    replicas: Sequence[int],
    candidates: Collection[int],
    isr: tuple[int, ...],
    controller_epoch: int,
) -> Decision:
    """The candidate leads that the assignment names first; without an `isr` it is alone in sync."""
    leader = next(broker for broker in replicas if broker in candidates)
    elected = replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr or (leader,),
        controller_epoch=controller_epoch,
    )
    return Decision(elected)
