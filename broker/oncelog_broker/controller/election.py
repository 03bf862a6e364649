"""Decides who leads a partition and who is in sync. Pure. Source: Kafka's PartitionStateMachine and
ReplicaStateMachine.

Terms: a replica is *steady* if its broker has been registered without a break since the state was written. It has
*returned* if its broker registered again later, without loss. It is *unsure* if its broker may have lost the end of its
logs since then (its machine went down). Each write of a state checks the incarnations of its whole ISR, so a broker
with a registration older than the write is steady. An unsure broker stays unsure for all states older than that
registration, however often it returns.

Rules:

- Every election gives a new leader epoch, also if the leader stays the same: only a new epoch shows followers and
  consumers that the end of a log may have changed (KIP-101, KIP-320). Leaving the ISR gives no new epoch.
- Every present replica that is steady or has returned stays in the ISR after an election: it has everything that was
  acknowledged, and the new leader's high watermark waits for its first fetch. If the elected log then fails, another
  replica can lead. A replica with an offline log cannot be elected, and leaves the ISR.
- A leader whose log fails gives the partition up (`alter_partition.py`): nobody leads, and the ISR stays as it is. Only
  a replica that has reported since that its log is open is elected then. A broker that has died, and whose session is
  not over yet, does not answer: so the ISR never becomes such a broker alone.
- If all of the ISR are unsure (their machines lost power, or their disks), the replica with the most records leads: the
  largest last leader epoch, then the largest end offset, of all present replicas. They are asked first. All other
  replicas, those that are away and those with offline logs, inside or outside the ISR, may have more, and are waited
  for until `waits_for_absent` is False. A replica of the ISR that has not returned at all may have everything, so it is
  waited for without a limit. Meanwhile the state is not written: a write would vouch for the replicas that it names.
- A broker that is about to stop counts as away, with two exceptions: it keeps leading partitions that no other replica
  in sync can lead, and while it is registered no replica outside the ISR is elected, since it returns with everything.
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
"""Values of `leader_recovery_state`. RECOVERING: elected from outside the ISR, not yet confirmed as complete
(KIP-704)."""

LogEndOf = Callable[[int], LogEnd | None]
"""The log end that a broker has reported for its replica; None if it has not answered yet."""


class Decision(NamedTuple):
    """The new state of a partition."""

    state: PartitionState
    may_lose: bool = False
    """Whether committed records may be missing at the new leader."""


def first_leader(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first state of a new partition: its first live replica leads, and all live replicas are in sync, since the
    log is empty. None while no replica is live."""
    in_sync = tuple(broker for broker in replicas if broker in live)
    if not in_sync:
        return None
    return PartitionState(in_sync[0], 0, in_sync, controller_epoch)


class Undecided(NamedTuple):
    """Nobody leads the partition, and its state stays unchanged until more is known."""

    ask: tuple[int, ...] = ()
    """Present brokers that must report their log ends first."""
    absent: tuple[int, ...] = ()
    """Replicas that are away, about to stop, or offline: they may have more records than the present ones."""
    offline: tuple[int, ...] = ()
    """Present brokers with offline logs; they are asked again periodically."""


Outcome = Decision | Undecided | None
"""The decision for a partition; None: its state stays unchanged."""


def _not_asked(_: int) -> LogEnd | None:
    return UNKNOWN


class Election(NamedTuple):
    """One partition and what is known of its replicas: all facts that decide which replica leads it."""

    replicas: Sequence[int]
    known: KnownState
    brokers: Mapping[int, KnownBroker]
    """Every broker that is registered, or was once, by id."""
    controller_epoch: int
    unclean: bool = False
    """Whether a replica outside the ISR may lead if no other can (unclean.leader.election.enable)."""
    log_end_of: LogEndOf = _not_asked
    waits_for_absent: bool = False
    """Whether to wait for replicas that are away, and for offline logs, if all replicas of the ISR are unsure."""

    @property
    def state(self) -> PartitionState:
        return self.known.state

    def is_steady(self, broker: int) -> bool:
        """Whether it is a replica that has been registered without a break since the state was written."""
        known = self.brokers.get(broker)
        return known is not None and broker in self.replicas and known.is_steady_since(self.known.written)

    def is_there(self, broker: int) -> bool:
        """Whether the replica's broker is registered and not about to stop."""
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
        """The unsure replicas of the ISR, absent ones included."""
        return tuple(broker for broker in self.state.isr if self.is_unsure(broker))

    def log_ends(self, brokers: Iterable[int]) -> dict[int, LogEnd | None]:
        """The log ends of those replicas that are present and not known to be offline. None: not asked yet."""
        ends = {broker: self.log_end_of(broker) for broker in brokers if self.is_there(broker)}
        return {broker: end for broker, end in ends.items() if end != OFFLINE}

    @property
    def offline(self) -> tuple[int, ...]:
        """The present replicas whose brokers have reported that their logs are offline."""
        return tuple(broker for broker in self.replicas if self.is_there(broker) and self.log_end_of(broker) == OFFLINE)


def outcome(election: Election) -> Outcome:
    """The decision for a partition, given the live brokers.

    The first case that applies decides: the leader stays; a steady replica of the ISR leads; a returned one; an unsure
    one; a replica outside the ISR. Otherwise the partition has no leader.
    """
    state = election.state
    steady = tuple(broker for broker in state.isr if election.is_steady(broker))
    staying = tuple(broker for broker in steady if not election.is_stopping(broker))
    if state.leader in (staying or steady):
        return _leader_stays(election, staying or steady)
    if len(staying) < len(steady):
        election = election._replace(unclean=False)  # the replica that is stopping returns with everything
    if len(election.replicas) == 1:
        election = election._replace(log_end_of=_not_asked)  # the only replica leads, whatever its log holds
    ends = _sure_replicas(election, has_staying=bool(staying))
    sure = {broker: end for broker, end in ends.items() if end is not None}
    if any(broker in sure for broker in staying):
        return _clean(election, sure, staying, in_sync=ends)
    if len(sure) < len(ends):
        return Undecided(ask=tuple(broker for broker in ends if broker not in sure))
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


def _sure_replicas(election: Election, *, has_staying: bool) -> dict[int, LogEnd | None]:
    """The log ends of the ISR replicas that are there, have lost nothing, and are not known to be offline; None if they
    must be asked first.

    A steady replica is elected without questions, unless its partition was given up just before.
    """
    state = election.state
    present = [broker for broker in state.isr if election.is_there(broker) and not election.is_unsure(broker)]
    must_ask = state.leader == NO_LEADER or (not has_staying and len(state.isr) > 1)
    ends = {broker: election.log_end_of(broker) if must_ask else UNKNOWN for broker in present}
    return {broker: end for broker, end in ends.items() if end != OFFLINE}


def _clean(
    election: Election, sure: Mapping[int, LogEnd], staying: Collection[int], in_sync: Collection[int]
) -> Decision:
    """A steady replica leads, as soon as one has answered: its broker was there all the time, so it has lost nothing.
    Returned replicas, and those that have not answered yet, stay in sync with it."""
    return _most_complete(election, {broker: end for broker, end in sure.items() if broker in staying}, in_sync)


def _from_a_returned_replica(election: Election, sure: Mapping[int, LogEnd]) -> Decision:
    """No steady replica is left: a returned one leads."""
    return _most_complete(election, sure, sure)


def _most_complete(election: Election, candidates: Mapping[int, LogEnd], sure: Collection[int]) -> Decision:
    """The candidate with the most complete log leads, all `sure` replicas stay in sync.

    Each candidate has all acknowledged records, so the ends matter only if all are known: the shortest log may have
    lost records unnoticed.
    """
    ends = set(candidates.values())
    best = candidates if UNKNOWN in ends else [broker for broker, end in candidates.items() if end == max(ends)]
    return _elected(election, tuple(best), tuple(sure))


def _from_an_unsure_replica(election: Election) -> Decision | Undecided | None:
    """Every replica of the ISR may have lost records: the present replica with the most records leads, inside or
    outside the ISR.

    None if a replica of the ISR that may have everything is away or offline: it is waited for without a limit. All
    others that cannot lead now are waited for while `waits_for_absent`: the ISR may have come back with empty disks.
    """
    unsure = election.unsure
    in_sync = election.log_ends(unsure)
    if not in_sync or any(broker not in unsure for broker in election.state.isr):
        return None
    contenders = _contenders(election, in_sync)
    if isinstance(contenders, Undecided):
        return contenders
    # If one of the ISR cannot report its log end, replicas outside the ISR do not count: see `_contenders`.
    counting = unsure if UNKNOWN in in_sync.values() else election.replicas
    absent = tuple(broker for broker in counting if broker not in contenders)
    if absent and election.waits_for_absent:
        return Undecided(absent=absent, offline=election.offline)
    return _with_the_most(election, contenders, in_sync)


def _unclean(election: Election) -> Decision | Undecided | None:
    """The present replica with the most records leads, even if an absent one of the ISR has more. None if none is
    present."""
    in_sync = election.log_ends(election.unsure)
    contenders = _contenders(election, in_sync)
    if isinstance(contenders, Undecided):
        return contenders
    return _with_the_most(election, contenders, in_sync) if contenders else None


def _without_a_leader(election: Election) -> Outcome:
    """No replica can lead. The state says so unless a replica of the ISR is unsure: the write would vouch for it."""
    state = election.state
    if election.unsure or state.leader == NO_LEADER:
        return Undecided(offline=election.offline) if election.offline else None
    epoch = state.leader_epoch + 1
    return Decision(replace(state, leader=NO_LEADER, leader_epoch=epoch, controller_epoch=election.controller_epoch))


# --- shared by the cases ------------------------------------------------------------------------------------------


def _contenders(election: Election, in_sync: Mapping[int, LogEnd | None]) -> dict[int, LogEnd | None] | Undecided:
    """The replicas that may lead after a loss, with their log ends; Undecided if they must be asked first.

    `in_sync`: the unsure replicas of the ISR that are present. If one of them cannot report its log end, replicas
    outside the ISR do not count: it may have more records than any of them.
    """
    contenders = dict(in_sync) if UNKNOWN in in_sync.values() else election.log_ends(election.replicas)
    unasked = tuple(broker for broker, end in contenders.items() if end is None)
    return Undecided(ask=unasked) if unasked else contenders


def _with_the_most(election: Election, contenders: Mapping[int, LogEnd | None], in_sync: Collection[int]) -> Decision:
    """The contender with the most records leads, preferably one of the ISR. Replicas of the ISR with equally many
    records stay in sync: their logs are the same.

    If none has reported its log end, one of them leads alone: the others may have fewer or more records, and must not
    be elected later as if they had the same records.
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
    """The first candidate in the order of the assignment leads; with an empty `isr` it is alone in sync."""
    leader = next(broker for broker in election.replicas if broker in candidates)
    elected = replace(
        election.state,
        leader=leader,
        leader_epoch=election.state.leader_epoch + 1,
        isr=isr or (leader,),
        controller_epoch=election.controller_epoch,
    )
    return Decision(elected)
