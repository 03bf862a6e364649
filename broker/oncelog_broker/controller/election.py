"""Decides which replica leads a partition and which replicas are in sync; an unclean election makes a replica outside
the ISR the leader. Pure. Source: Kafka's PartitionStateMachine and ReplicaStateMachine.

Terms: a replica is *steady* if its broker has been registered without a break since the state was written. A replica
has *returned* if its broker has registered again since the state was written, and has lost no records. A replica is
*unsure* if its broker's machine went down after the state was written, so that the broker's logs may have lost their
last records. A write of the state fails if a member of the ISR has registered again. So a broker that registered before
the write, and has not registered again since, is steady. A broker reports a possible loss of records at its
registration. The broker counts as unsure for all states that are older than this registration, even if the broker
registers again later.

Rules:

- Every election raises the leader epoch, even if the leader stays the same, because only a new leader epoch shows
  followers and consumers that the end of a log may have changed (KIP-101, KIP-320). Removing a replica from the ISR
  does not start a new leader epoch.
- Every present replica that is steady or has returned stays in the ISR after an election: the replica has every
  acknowledged record, and the new leader's high watermark waits for the replica's first fetch. If the log of the new
  leader fails, another replica of the ISR can lead. A replica with an offline log cannot be elected, and leaves the
  ISR.
- A leader whose log fails gives the partition up (`alter_partition.py`): the partition has no leader, and the ISR stays
  unchanged. After a leader has given the partition up, only a replica that has reported an open log can be elected. A
  dead broker whose session has not expired yet does not report an open log, so such a broker never becomes the only
  member of the ISR.
- If all replicas of the ISR are unsure (their machines lost power or disks), the present replica with the most records
  leads: the one whose last leader epoch is largest and, if several have this epoch, whose end offset is largest. Before
  such an election, the brokers of the present replicas are asked for their log ends. Absent replicas and replicas with
  offline logs, inside or outside the ISR, may have more records. The election waits for such replicas until
  `waits_for_absent` is False. A replica of the ISR that has not returned at all may have all records, so the election
  waits for this replica without a limit. While an election waits, the state is not written, because the replicas in the
  ISR of a newly written state count as complete.
- A broker that is about to stop (controlled shutdown) counts as absent, with two exceptions. First, a broker that is
  about to stop keeps leading partitions that no other replica in sync can lead. Second, while that broker is
  registered, no replica outside the ISR is elected, because the broker will return with all records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.view import KnownState
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import PartitionState
from oncelog_protocol.light_classes import NamedTuple

RECOVERED: Final = 0
RECOVERING: Final = 1
"""Values of `leader_recovery_state`. RECOVERING means that the leader was elected from outside the ISR and is not
confirmed as complete yet (KIP-704)."""

LogEndOf = Callable[[int], LogEnd | None]
"""Broker id -> the log end that this broker has reported for its replica; None if the broker has not reported it yet.
"""


class Decision(NamedTuple):
    """The new state of a partition, as an election has decided it."""

    state: PartitionState
    may_lose: bool = False
    """Whether committed records may be missing at the new leader."""


def first_leader(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Return the first state of a new partition: its first live replica leads, and all live replicas are in sync, since
    the log is empty. Returns None while no replica is live.
    """
    in_sync = tuple(broker for broker in replicas if broker in live)
    if not in_sync:
        return None
    return PartitionState(in_sync[0], 0, in_sync, controller_epoch)


class Undecided(NamedTuple):
    """The result of an election that cannot be decided yet. The partition has no leader, and its state stays unchanged
    until brokers have reported their log ends.
    """

    ask: tuple[int, ...] = ()
    """Present brokers that must report their log ends before the election can be decided."""
    absent: tuple[int, ...] = ()
    """Replicas whose broker is absent or about to stop, or whose log is offline. Each of them may have more records
    than the present replicas.
    """
    offline: tuple[int, ...] = ()
    """Present brokers with offline logs; these brokers are asked periodically whether their logs are open again."""


Outcome = Decision | Undecided | None
"""The election's decision for a partition; None if the partition's state stays unchanged."""


def _not_asked(_: int) -> LogEnd | None:
    return UNKNOWN


class Election(NamedTuple):
    """One partition with all facts about its replicas that decide which replica leads the partition."""

    replicas: Sequence[int]
    known: KnownState
    brokers: Mapping[int, KnownBroker]
    """Every broker that is registered, or was registered earlier, by id."""
    controller_epoch: int
    unclean: bool = False
    """Whether a replica outside the ISR may lead if no replica of the ISR can lead (unclean.leader.election.enable)."""
    log_end_of: LogEndOf = _not_asked
    waits_for_absent: bool = False
    """Whether the election waits for absent replicas and for offline logs, if all replicas of the ISR may have lost
    records.
    """

    @property
    def state(self) -> PartitionState:
        return self.known.state

    def is_steady(self, broker: int) -> bool:
        """Whether the broker has a replica of the partition and has been registered without a break since the state was
        written.
        """
        known = self.brokers.get(broker)
        return known is not None and broker in self.replicas and known.is_steady_since(self.known.written)

    def is_there(self, broker: int) -> bool:
        """Whether the replica's broker is registered and not about to stop."""
        known = self.brokers.get(broker)
        return known is not None and known.is_live and not known.is_stopping and broker in self.replicas

    def is_unsure(self, broker: int) -> bool:
        """Whether the broker may have lost records since the state was written."""
        known = self.brokers.get(broker)
        return known is not None and known.is_unsure_of(self.known.written)

    def is_stopping(self, broker: int) -> bool:
        """Whether the broker is about to stop (controlled shutdown)."""
        known = self.brokers.get(broker)
        return known is not None and known.is_stopping

    @property
    def unsure(self) -> tuple[int, ...]:
        """The replicas of the ISR that are unsure (may have lost records), including absent replicas."""
        return tuple(broker for broker in self.state.isr if self.is_unsure(broker))

    def log_ends(self, brokers: Iterable[int]) -> dict[int, LogEnd | None]:
        """Broker id -> reported log end, for the brokers in `brokers` that are present and have not reported an offline
        log. The log end is None for a broker that has not reported it yet.
        """
        ends = {broker: self.log_end_of(broker) for broker in brokers if self.is_there(broker)}
        return {broker: end for broker, end in ends.items() if end != OFFLINE}

    @property
    def offline(self) -> tuple[int, ...]:
        """The present replicas whose brokers have reported that their logs are offline."""
        return tuple(broker for broker in self.replicas if self.is_there(broker) and self.log_end_of(broker) == OFFLINE)


def outcome(election: Election) -> Outcome:
    """Decide whether the partition's state changes, and how.

    The first case that applies decides: the leader stays; otherwise a steady replica of the ISR (registered without a
    break) becomes leader, otherwise a returned replica of the ISR (registered again without loss), otherwise an unsure
    replica of the ISR (may have lost records), otherwise a replica outside the ISR. If none of these cases applies, the
    partition has no leader.
    """
    state = election.state
    steady = tuple(broker for broker in state.isr if election.is_steady(broker))
    staying = tuple(broker for broker in steady if not election.is_stopping(broker))
    if state.leader in (staying or steady):
        return _leader_stays(election, staying or steady)
    if len(staying) < len(steady):
        election = election._replace(unclean=False)  # the stopping broker will return with all records
    if len(election.replicas) == 1:
        election = election._replace(log_end_of=_not_asked)  # the only replica leads, however complete its log is
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
    """Return the new state of the partition; None if the state stays unchanged, or if brokers must report their log
    ends first. See `outcome`.
    """
    decided = outcome(election)
    return decided if isinstance(decided, Decision) else None


def preferred_state(election: Election) -> PartitionState | None:
    """Return the state in which the preferred leader, the first of the replicas, leads; None if this replica leads
    already, or could lead only with a loss of records.
    """
    state, preferred = election.state, election.replicas[0]
    staying = tuple(b for b in state.isr if election.is_steady(b) and not election.is_stopping(b))
    if state.leader == preferred or preferred not in staying:
        return None
    return _elected(election, (preferred,), staying).state


# --- the cases of an election, in order of preference ----------------------------------------------------------------


def _leader_stays(election: Election, in_sync: tuple[int, ...]) -> Decision | None:
    """Keep a leader that has been registered without a break. Replicas that were absent leave the ISR, without a new
    leader epoch.
    """
    if in_sync == election.state.isr:
        return None
    return Decision(replace(election.state, isr=in_sync, controller_epoch=election.controller_epoch))


def _sure_replicas(election: Election, *, has_staying: bool) -> dict[int, LogEnd | None]:
    """Return the log ends of the ISR replicas that are present, have lost nothing, and are not known to be offline. A
    log end is None if its broker must be asked first.

    A steady replica is elected without requesting log ends, unless the previous leader has given the partition up.
    """
    state = election.state
    present = [broker for broker in state.isr if election.is_there(broker) and not election.is_unsure(broker)]
    must_ask = state.leader == NO_LEADER or (not has_staying and len(state.isr) > 1)
    ends = {broker: election.log_end_of(broker) if must_ask else UNKNOWN for broker in present}
    return {broker: end for broker, end in ends.items() if end != OFFLINE}


def _clean(
    election: Election, sure: Mapping[int, LogEnd], staying: Collection[int], in_sync: Collection[int]
) -> Decision:
    """Elect a steady replica (registered without a break, so that it has lost no records) as soon as one steady replica
    has reported an open log. Returned replicas, and replicas that have not reported their log ends yet, stay in the
    ISR.
    """
    return _most_complete(election, {broker: end for broker, end in sure.items() if broker in staying}, in_sync)


def _from_a_returned_replica(election: Election, sure: Mapping[int, LogEnd]) -> Decision:
    """Elect a returned replica, because no steady replica is left."""
    return _most_complete(election, sure, sure)


def _most_complete(election: Election, candidates: Mapping[int, LogEnd], sure: Collection[int]) -> Decision:
    """Elect the candidate with the most complete log; all `sure` replicas stay in sync.

    Each candidate should have all acknowledged records. If all candidates have reported their log ends, the log ends
    are still compared, because a shorter log may have lost records unnoticed.
    """
    ends = set(candidates.values())
    best = candidates if UNKNOWN in ends else [broker for broker, end in candidates.items() if end == max(ends)]
    return _elected(election, tuple(best), tuple(sure))


def _from_an_unsure_replica(election: Election) -> Decision | Undecided | None:
    """Elect the present replica with the most records, inside or outside the ISR, because every replica of the ISR may
    have lost records.

    A replica of the ISR that may have all records may be absent or offline; the election then waits for it without a
    limit, and the result is None. While `waits_for_absent` is True, the election also waits for every other replica
    that cannot lead now, because all replicas of the ISR may have returned with empty disks.
    """
    unsure = election.unsure
    in_sync = election.log_ends(unsure)
    if not in_sync or any(broker not in unsure for broker in election.state.isr):
        return None
    contenders = _contenders(election, in_sync)
    if isinstance(contenders, Undecided):
        return contenders
    # If a replica of the ISR cannot report its log end, replicas outside the ISR are no candidates, because the replica
    # of the ISR may have more records.
    counting = unsure if UNKNOWN in in_sync.values() else election.replicas
    absent = tuple(broker for broker in counting if broker not in contenders)
    if absent and election.waits_for_absent:
        return Undecided(absent=absent, offline=election.offline)
    return _with_the_most(election, contenders, in_sync)


def _unclean(election: Election) -> Decision | Undecided | None:
    """Elect the present replica with the most records, even if an absent replica of the ISR has more records. Returns
    None if no replica is present."""
    in_sync = election.log_ends(election.unsure)
    contenders = _contenders(election, in_sync)
    if isinstance(contenders, Undecided):
        return contenders
    return _with_the_most(election, contenders, in_sync) if contenders else None


def _without_a_leader(election: Election) -> Outcome:
    """Decide for a partition that no replica can lead. The state is written with no leader. If a replica of the ISR may
    have lost records, nothing is written, because after a write this replica would count as complete.
    """
    state = election.state
    if election.unsure or state.leader == NO_LEADER:
        return Undecided(offline=election.offline) if election.offline else None
    epoch = state.leader_epoch + 1
    return Decision(replace(state, leader=NO_LEADER, leader_epoch=epoch, controller_epoch=election.controller_epoch))


# --- helpers that several cases of an election use -------------------------------------------------------------------


def _contenders(election: Election, in_sync: Mapping[int, LogEnd | None]) -> dict[int, LogEnd | None] | Undecided:
    """Return the replicas that may lead after a loss, with their log ends; Undecided if their brokers must be asked
    first.

    `in_sync`: the present replicas of the ISR that may have lost records. If a replica in `in_sync` cannot report its
    log end, replicas outside the ISR are no candidates, because the replica in `in_sync` may have more records.
    """
    contenders = dict(in_sync) if UNKNOWN in in_sync.values() else election.log_ends(election.replicas)
    unasked = tuple(broker for broker, end in contenders.items() if end is None)
    return Undecided(ask=unasked) if unasked else contenders


def _with_the_most(election: Election, contenders: Mapping[int, LogEnd | None], in_sync: Collection[int]) -> Decision:
    """Elect the contender with the most records, preferably a member of the ISR. Replicas of the ISR with equally many
    records stay in sync: their logs are the same.

    If no contender has reported its log end, the elected contender becomes the only member of the ISR, because the logs
    of the other contenders may differ from its log.
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
    """Elect the first candidate in the order of the assignment; with an empty `isr` the new leader is the only member
    of the ISR."""
    leader = next(broker for broker in election.replicas if broker in candidates)
    elected = replace(
        election.state,
        leader=leader,
        leader_epoch=election.state.leader_epoch + 1,
        isr=isr or (leader,),
        controller_epoch=election.controller_epoch,
    )
    return Decision(elected)
