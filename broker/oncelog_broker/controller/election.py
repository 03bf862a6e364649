"""Who leads a partition and who is in sync: pure decisions on one partition's state. Source: Kafka's
PartitionStateMachine and ReplicaStateMachine.

A broker was away if it is not registered, or was registered anew after the state was written: each write of a state
checks the incarnations of its whole ISR, so whoever is older than the write has been there ever since. Where nobody but
returned brokers is left, what counts is whether they may have lost the end of their logs: a broker that came unsure of
it is so for every state that is older than that registration, however often it has come since.

Every election gives a new leader epoch, also when the leader stays the same broker: only a new epoch lets followers and
consumers see that the tail of a log may be another one (KIP-101, KIP-320). Leaving the ISR gives none.

Every sure replica that is there stays in the ISR of an election: it has everything that was acknowledged, and the new
leader's high watermark waits for its first fetch. If the elected log then fails, the others can lead. A replica whose
log is offline cannot be elected, nor stays in the ISR of somebody else.

Where all of the ISR are unsure (every machine lost its power), the one with the most records leads: the largest last
leader epoch, then the largest end offset, of all replicas that are there. That is asked of them first; those that are
away, and are known to be unsure, are waited for until `waits_for_absent` says that it was long enough. A replica of the
ISR that has not come back since is not known to be unsure: it may have everything, and is waited for without an end. In
all that time the state is not written, since a write would vouch for those that it names.

A broker that is about to stop counts as one that is away, with two exceptions: it goes on leading what nobody else in
sync can lead, and while it is there nobody is elected from outside the ISR, for it comes back with everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.controller.view import KnownState, LiveBroker
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import PartitionState

RECOVERED: Final = 0
RECOVERING: Final = 1
"""Values of `leader_recovery_state`: elected from outside the ISR, and not yet said to be whole again (KIP-704)."""

LogEndOf = Callable[[int], LogEnd | None]
"""The log end that a broker has reported for its replica; None if it has not answered yet."""


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


class Undecided(NamedTuple):
    """Nobody leads the partition, and the state stays until more is known."""

    ask: tuple[int, ...] = ()
    """Present brokers that must report their log ends first."""
    absent: tuple[int, ...] = ()
    """Replicas that are away or offline, and may have lost records: they may still have more than the present ones."""
    offline: tuple[int, ...] = ()
    """Present brokers whose logs are offline; they are asked again from time to time."""


def _not_asked(_: int) -> LogEnd | None:
    return UNKNOWN


def next_state(
    replicas: Sequence[int],
    known: KnownState,
    live: Mapping[int, LiveBroker],
    unsure_since: Mapping[int, int],
    controller_epoch: int,
    unclean: bool = False,
    stopping: Collection[int] = (),
    log_end_of: LogEndOf = _not_asked,
    *,
    waits_for_absent: bool = False,
) -> Decision | None:
    """Return the new state of the partition while these brokers live; None if it stays. See `outcome`."""
    decided = outcome(
        replicas,
        known,
        live,
        unsure_since,
        controller_epoch,
        unclean,
        stopping,
        log_end_of,
        waits_for_absent=waits_for_absent,
    )
    return decided if isinstance(decided, Decision) else None


def outcome(
    replicas: Sequence[int],
    known: KnownState,
    live: Mapping[int, LiveBroker],
    unsure_since: Mapping[int, int],
    controller_epoch: int,
    unclean: bool,
    stopping: Collection[int],
    log_end_of: LogEndOf,
    *,
    waits_for_absent: bool,
) -> Decision | Undecided | None:
    """What is to be done about a partition while these brokers live: None if its state stays.

    `unsure_since`: as `ClusterView.unsure`. `unclean`: whether a replica outside the ISR may lead if nobody else can
    (unclean.leader.election.enable). `stopping`: who of the `live` is about to go. `log_end_of`: what a broker has said
    of its log. `waits_for_absent`: whether to wait for unsure replicas that are away.
    """
    state = known.state
    steady = _steady(replicas, known, live)
    staying = tuple(broker for broker in steady if broker not in stopping)
    in_sync = staying or steady
    if state.leader in in_sync:
        if in_sync == state.isr:
            return None
        return Decision(replace(state, isr=in_sync, controller_epoch=controller_epoch))
    if stopping:
        unclean = unclean and not steady
        live = {broker: there for broker, there in live.items() if broker not in stopping}
    if len(replicas) == 1:
        log_end_of = _not_asked  # the only replica leads, whatever its log has
    unsure = tuple(broker for broker in state.isr if unsure_since.get(broker, -1) > known.written)
    present = [broker for broker in state.isr if broker in live and broker in replicas and broker not in unsure]
    # A replica that was there all the time is elected without questions, unless its partition was just given up.
    must_ask = state.leader == NO_LEADER or (not staying and len(state.isr) > 1)
    ends = {broker: log_end_of(broker) if must_ask else UNKNOWN for broker in present}
    said = {broker: end for broker, end in ends.items() if end is not None}
    if len(said) < len(ends):
        return Undecided(ask=tuple(broker for broker in present if broker not in said))
    sure = tuple(broker for broker in present if said[broker] != OFFLINE)
    if sure:
        candidates = tuple(broker for broker in sure if broker in staying) or sure
        known_ends = {said[broker] for broker in candidates}
        if UNKNOWN not in known_ends:
            # Each has all acknowledged records. A log that was lost unnoticed is the shortest one.
            candidates = tuple(broker for broker in candidates if said[broker] == max(known_ends))
        return _elected(state, replicas, candidates, sure, controller_epoch)
    those_left = Candidates(state, replicas, unsure, live, log_end_of)
    return _without_a_sure_replica(those_left, controller_epoch, unclean, waits_for_absent)


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


class Candidates(NamedTuple):
    """Who may lead a partition that no sure replica can lead."""

    state: PartitionState
    replicas: Sequence[int]
    unsure: Sequence[int]
    """Of the ISR."""
    live: Collection[int]
    log_end_of: LogEndOf

    @property
    def awaited(self) -> bool:
        """Whether a replica of the ISR that is away or offline may have all records."""
        return any(broker not in self.unsure for broker in self.state.isr)

    def present(self, brokers: Iterable[int]) -> dict[int, LogEnd | None]:
        """Those of these replicas that are there and not known to be offline: up to where their logs go, as far as they
        have said it."""
        there = [broker for broker in brokers if broker in self.live and broker in self.replicas]
        ends = {broker: self.log_end_of(broker) for broker in there}
        return {broker: end for broker, end in ends.items() if end != OFFLINE}

    @property
    def offline(self) -> tuple[int, ...]:
        """The present replicas whose brokers have reported that their logs are offline."""
        return tuple(broker for broker in self.replicas if broker in self.live and self.log_end_of(broker) == OFFLINE)


def _without_a_sure_replica(
    candidates: Candidates, controller_epoch: int, unclean: bool, waits_for_absent: bool
) -> Decision | Undecided | None:
    """Of the ISR, all those are away, or offline, who are not `unsure`.

    The unsure ones lead if nobody is awaited who may have everything, or if `unclean`.
    """
    state, unsure = candidates.state, candidates.unsure
    if unclean or not candidates.awaited:
        in_sync, all_present = candidates.present(unsure), candidates.present(candidates.replicas)
        contenders = all_present if in_sync or unclean else {}
        if UNKNOWN in in_sync.values():
            contenders = in_sync  # the offline log may have more records than any replica outside the ISR
        unasked = tuple(broker for broker, end in contenders.items() if end is None)
        if unasked:
            return Undecided(ask=unasked)
        absent = tuple(broker for broker in unsure if broker not in in_sync)
        if contenders and absent and waits_for_absent and not unclean:
            return Undecided(absent=absent, offline=candidates.offline)
        if contenders:
            return _with_the_most(candidates, contenders, in_sync, controller_epoch)
    if unsure or state.leader == NO_LEADER:
        return Undecided(offline=candidates.offline) if candidates.offline else None
    epoch = state.leader_epoch + 1
    return Decision(replace(state, leader=NO_LEADER, leader_epoch=epoch, controller_epoch=controller_epoch))


def _with_the_most(
    candidates: Candidates,
    contenders: Mapping[int, LogEnd | None],
    in_sync: Collection[int],
    controller_epoch: int,
) -> Decision:
    """The one with the most records leads; of several, one of the ISR. Those of the ISR that have exactly as much stay
    in sync: their logs are the same.

    Where none has said what it has, one of them leads alone: the others may have less than it, or more, and must not
    be elected as if they had the same.
    """
    ends = {broker: UNKNOWN if end is None else end for broker, end in contenders.items()}
    most = max(ends.values())
    with_most = [broker for broker, end in ends.items() if end == most]
    staying = tuple(broker for broker in candidates.state.isr if broker in with_most and broker in in_sync)
    isr = () if most == UNKNOWN else staying
    elected = _elected(candidates.state, candidates.replicas, staying or with_most, isr, controller_epoch)
    recovery = candidates.state.leader_recovery_state if staying else RECOVERING
    return Decision(replace(elected.state, leader_recovery_state=recovery), may_lose=True)


def _elected(
    state: PartitionState,
    replicas: Sequence[int],
    candidates: Collection[int],
    isr: tuple[int, ...],
    controller_epoch: int,
) -> Decision:
    """The candidate leads that the assignment names first; with an empty `isr` it is alone in sync."""
    leader = next(broker for broker in replicas if broker in candidates)
    elected = replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr or (leader,),
        controller_epoch=controller_epoch,
    )
    return Decision(elected)
