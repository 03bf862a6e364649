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
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.view import KnownState
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
    """Nobody leads the partition, and its state stays until more is known."""

    ask: tuple[int, ...] = ()
    """Present brokers that must report their log ends first."""
    absent: tuple[int, ...] = ()
    """Replicas that are away or offline, and may have lost records: they may still have more than the present ones."""
    offline: tuple[int, ...] = ()
    """Present brokers whose logs are offline; they are asked again from time to time."""


Outcome = Decision | Undecided | None
"""What is to be done about a partition; None: its state stays."""


def _not_asked(_: int) -> LogEnd | None:
    return UNKNOWN


class Election(NamedTuple):
    """One partition and what is known of its replicas: everything that decides who leads it.

    Of the ISR, each replica is one of these: steady (registered without a break since the state was written), returned
    (registered again, with everything), unsure (it may have lost records since), or away.
    """

    replicas: Sequence[int]
    known: KnownState
    brokers: Mapping[int, KnownBroker]
    """Every broker that is registered, or was once."""
    controller_epoch: int
    unclean: bool = False
    """Whether a replica outside the ISR may lead if nobody else can (unclean.leader.election.enable)."""
    log_end_of: LogEndOf = _not_asked
    waits_for_absent: bool = False
    """Whether to wait for unsure replicas that are away."""

    @property
    def state(self) -> PartitionState:
        return self.known.state

    def is_steady(self, broker: int) -> bool:
        """Whether it is a replica that has been registered without a break since the state was written."""
        known = self.brokers.get(broker)
        return known is not None and broker in self.replicas and known.is_steady_since(self.known.written)

    def is_there(self, broker: int) -> bool:
        """Whether it is a replica whose broker is registered and not about to stop."""
        known = self.brokers.get(broker)
        return known is not None and known.is_live and not known.is_stopping and broker in self.replicas

    def is_unsure(self, broker: int) -> bool:
        """Whether it may have lost records since the state was written."""
        known = self.brokers.get(broker)
        return known is not None and known.is_unsure_of(self.known.written)

    def is_stopping(self, broker: int) -> bool:
        """Whether it is about to stop."""
        known = self.brokers.get(broker)
        return known is not None and known.is_stopping

    @property
    def unsure(self) -> tuple[int, ...]:
        """The unsure replicas of the ISR, those that are away included."""
        return tuple(broker for broker in self.state.isr if self.is_unsure(broker))

    def log_ends(self, brokers: Iterable[int]) -> dict[int, LogEnd | None]:
        """The log ends of these replicas, of those that are there and not known to be offline. None: not asked yet."""
        ends = {broker: self.log_end_of(broker) for broker in brokers if self.is_there(broker)}
        return {broker: end for broker, end in ends.items() if end != OFFLINE}

    @property
    def offline(self) -> tuple[int, ...]:
        """The replicas that are there, and whose brokers have reported that their logs are offline."""
        return tuple(broker for broker in self.replicas if self.is_there(broker) and self.log_end_of(broker) == OFFLINE)


def outcome(election: Election) -> Outcome:
    """What is to be done about a partition while these brokers live.

    The first case that applies decides: the leader stays, one of the ISR leads that has lost nothing (steady or
    returned), one of the ISR that is unsure, one from outside the ISR. Else nobody leads.
    """
    state = election.state
    steady = tuple(broker for broker in state.isr if election.is_steady(broker))
    staying = tuple(broker for broker in steady if not election.is_stopping(broker))
    if state.leader in (staying or steady):
        return _leader_stays(election, staying or steady)
    if len(staying) < len(steady):
        election = election._replace(unclean=False)  # the one that is stopping comes back with everything
    if len(election.replicas) == 1:
        election = election._replace(log_end_of=_not_asked)  # the only replica leads, whatever its log has
    sure = _sure_replicas(election, has_staying=bool(staying))
    if isinstance(sure, Undecided):
        return sure
    if any(broker in sure for broker in staying):
        return _clean(election, sure, staying)
    if sure:
        return _from_a_returned_replica(election, sure)
    decided = _unclean(election) if election.unclean else _from_an_unsure_replica(election)
    return _without_a_leader(election) if decided is None else decided


def next_state(election: Election) -> Decision | None:
    """The new state of the partition; None if it stays, or if more must be known first. See `outcome`."""
    decided = outcome(election)
    return decided if isinstance(decided, Decision) else None


def preferred_state(election: Election) -> PartitionState | None:
    """The state in which the first of the replicas leads; None if it leads already, or cannot lead without loss."""
    state, preferred = election.state, election.replicas[0]
    staying = tuple(b for b in state.isr if election.is_steady(b) and not election.is_stopping(b))
    if state.leader == preferred or preferred not in staying:
        return None
    return _elected(election, (preferred,), staying).state


# --- the cases ----------------------------------------------------------------------------------------------------


def _leader_stays(election: Election, in_sync: tuple[int, ...]) -> Decision | None:
    """The leader is steady: replicas that were away leave the ISR, without a new leader epoch."""
    if in_sync == election.state.isr:
        return None
    return Decision(replace(election.state, isr=in_sync, controller_epoch=election.controller_epoch))


def _sure_replicas(election: Election, *, has_staying: bool) -> dict[int, LogEnd] | Undecided:
    """The log ends of the ISR replicas that are there, have lost nothing, and are not offline; Undecided if they must
    be asked first.

    A steady replica is elected without questions, unless its partition was just given up.
    """
    state = election.state
    present = [broker for broker in state.isr if election.is_there(broker) and not election.is_unsure(broker)]
    must_ask = state.leader == NO_LEADER or (not has_staying and len(state.isr) > 1)
    ends = {broker: election.log_end_of(broker) if must_ask else UNKNOWN for broker in present}
    unasked = tuple(broker for broker, end in ends.items() if end is None)
    if unasked:
        return Undecided(ask=unasked)
    return {broker: end for broker, end in ends.items() if end is not None and end != OFFLINE}


def _clean(election: Election, sure: Mapping[int, LogEnd], staying: Collection[int]) -> Decision:
    """A steady replica leads. Sure replicas that returned stay in sync with it."""
    return _most_complete(election, {broker: end for broker, end in sure.items() if broker in staying}, sure)


def _from_a_returned_replica(election: Election, sure: Mapping[int, LogEnd]) -> Decision:
    """No steady replica is left: one leads that was away and lost nothing."""
    return _most_complete(election, sure, sure)


def _most_complete(election: Election, candidates: Mapping[int, LogEnd], sure: Collection[int]) -> Decision:
    """The candidate with the most complete log leads, all `sure` replicas stay in sync.

    Each candidate has all acknowledged records, so the ends matter only if all are known: a log that was lost unnoticed
    is the shortest one.
    """
    ends = set(candidates.values())
    best = candidates if UNKNOWN in ends else [broker for broker, end in candidates.items() if end == max(ends)]
    return _elected(election, tuple(best), tuple(sure))


def _from_an_unsure_replica(election: Election) -> Decision | Undecided | None:
    """Every replica of the ISR may have lost records: the present replica with the most leads, inside the ISR or
    outside of it.

    None if one of the ISR is away or offline that may have everything: it is waited for without an end. Unsure
    replicas that are away are waited for as long as `waits_for_absent`.
    """
    unsure = election.unsure
    in_sync = election.log_ends(unsure)
    if not in_sync or any(broker not in unsure for broker in election.state.isr):
        return None
    contenders = _contenders(election, in_sync)
    if isinstance(contenders, Undecided):
        return contenders
    absent = tuple(broker for broker in unsure if broker not in in_sync)
    if absent and election.waits_for_absent:
        return Undecided(absent=absent, offline=election.offline)
    return _with_the_most(election, contenders, in_sync)


def _unclean(election: Election) -> Decision | Undecided | None:
    """The present replica with the most records leads, whoever of the ISR may have more; None if none is present."""
    in_sync = election.log_ends(election.unsure)
    contenders = _contenders(election, in_sync)
    if isinstance(contenders, Undecided):
        return contenders
    return _with_the_most(election, contenders, in_sync) if contenders else None


def _without_a_leader(election: Election) -> Outcome:
    """Nobody can lead. The state says so unless a replica of the ISR is unsure: the write would vouch for it."""
    state = election.state
    if election.unsure or state.leader == NO_LEADER:
        return Undecided(offline=election.offline) if election.offline else None
    epoch = state.leader_epoch + 1
    return Decision(replace(state, leader=NO_LEADER, leader_epoch=epoch, controller_epoch=election.controller_epoch))


# --- what the cases share ------------------------------------------------------------------------------------------


def _contenders(election: Election, in_sync: Mapping[int, LogEnd | None]) -> dict[int, LogEnd | None] | Undecided:
    """The replicas that may lead after a loss, with their log ends; Undecided if they must be asked first.

    `in_sync`: the unsure replicas of the ISR that are there. If one of them cannot say what it has, replicas outside
    the ISR do not count: it may have more than any of them.
    """
    contenders = dict(in_sync) if UNKNOWN in in_sync.values() else election.log_ends(election.replicas)
    unasked = tuple(broker for broker, end in contenders.items() if end is None)
    return Undecided(ask=unasked) if unasked else contenders


def _with_the_most(election: Election, contenders: Mapping[int, LogEnd | None], in_sync: Collection[int]) -> Decision:
    """The contender with the most records leads; of several, one of the ISR. Replicas of the ISR with exactly as many
    stay in sync: their logs are the same.

    Where none has said what it has, one of them leads alone: the others may have less than it, or more, and must not
    be elected as if they had the same.
    """
    state = election.state
    ends = {broker: UNKNOWN if end is None else end for broker, end in contenders.items()}
    most = max(ends.values())
    with_most = [broker for broker, end in ends.items() if end == most]
    staying = tuple(broker for broker in state.isr if broker in with_most and broker in in_sync)
    elected = _elected(election, staying or with_most, () if most == UNKNOWN else staying)
    recovery = state.leader_recovery_state if staying else RECOVERING
    return Decision(replace(elected.state, leader_recovery_state=recovery), may_lose=True)


def _elected(election: Election, candidates: Collection[int], isr: tuple[int, ...]) -> Decision:
    """The candidate leads that the assignment names first; with an empty `isr` it is alone in sync."""
    leader = next(broker for broker in election.replicas if broker in candidates)
    elected = replace(
        election.state,
        leader=leader,
        leader_epoch=election.state.leader_epoch + 1,
        isr=isr or (leader,),
        controller_epoch=election.controller_epoch,
    )
    return Decision(elected)
