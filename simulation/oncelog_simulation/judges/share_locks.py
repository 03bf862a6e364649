"""A record of a share group is acquired by one member at a time, each delivery is counted, and a lock is released when
it has expired or its owner's session has ended.

The judge looks at the state of the share partitions after each turn of a broker. Judging only the clients' view would
not suffice: a record that was delivered to two members looks like a record whose lock had expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_simulation.workloads.notes import Holder, Notes
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition
    from oncelog_broker.sharing.share_partitions import SharePartitions
    from oncelog_broker.sharing.share_sessions import ShareSessions
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

EXPIRY_SECONDS: Final = 2.0
"""Virtual seconds in which a running broker must notice that a lock has expired."""


class Held(NamedTuple):
    """Offsets with the same state, from `first` to `last`, both included."""

    first: int
    last: int
    owner: str
    """The id of the member that has acquired the records; "" if no member has."""
    deliveries: int
    deadline: float
    """Monotonic seconds of the broker at which the lock expires."""
    is_acknowledged: bool
    """Whether the owner has acknowledged the records while the outcome is not written yet."""


NEVER: Final = Held(0, 0, "", 0, 0.0, is_acknowledged=False)
"""The state of a record that was never delivered."""


class ShareLocks:
    """Checks the share partitions of each broker."""

    name = "share locks"
    sees_only_partitions = False

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._seen: dict[int, dict[HostedSharePartition, tuple[Held, ...]]] = {}
        """For each broker, the state of its share partitions at the last check."""
        self._expired: dict[tuple[HostedSharePartition, Held], float] = {}
        """Locks that have expired and are not released yet, each with the virtual time at which the judge noticed."""
        self._left: dict[tuple[HostedSharePartition, Held], float] = {}
        """Locks of members without a session, each with the virtual time at which the judge noticed."""
        self._acknowledged: set[tuple[HostedSharePartition, int, str]] = set()
        """Share partition, offset and owner of each record that its owner has acknowledged, whether or not the outcome
        was written.
        """

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Yield the violations among the state changes of this turn."""
        running = None if machine.broker is None else machine.broker.parts.coordinators.present
        if running is None:
            return ()
        shares = running.share_partitions
        before, now = self._seen.get(machine.number), {hosted: _held(hosted) for hosted in shares.all()}
        if before == now or not (before or now):
            return ()
        self._seen[machine.number] = now
        wrong: list[str] = []
        before = before or {}
        for hosted, held in now.items():
            if hosted in before and before[hosted] != held:
                wrong += changes_that_are_wrong(machine, shares, hosted, before[hosted], held)
            self._note_holders(world, hosted, held)
        return wrong

    def _note_holders(self, world: World, hosted: HostedSharePartition, held: tuple[Held, ...]) -> None:
        place, holders = Place(hosted.partition.topic, hosted.partition.index), self._notes.holders
        starts = self._notes.share_starts
        starts[place] = max(starts.get(place, 0), hosted.share.start_offset)
        for each in held:
            for offset in range(each.first, each.last + 1) if each.owner else ():
                if each.is_acknowledged:
                    self._acknowledged.add((hosted, offset, each.owner))
                known = holders.get((place, offset))
                if known is None or (
                    hosted.leader_epoch >= known.leader_epoch
                    and (hosted.leader_epoch, each.owner) != (known.leader_epoch, known.member_id)
                ):
                    holders[place, offset] = Holder(each.owner, hosted.leader_epoch, world.now)

    def look_closely(self, world: World) -> Iterable[str]:
        """Yield the locks that are still not released although they expired, or their owner's session ended, some time
        ago.
        """
        expired: dict[tuple[HostedSharePartition, Held], float] = {}
        left: dict[tuple[HostedSharePartition, Held], float] = {}
        wrong = []
        for machine in world.brokers.values():
            if machine.broker is None or machine.process is None or machine.process.is_paused:
                continue
            now = machine.clock.monotonic()
            running = machine.broker.parts.coordinators.present
            if running is None:
                continue
            sessions = running.share_partitions.sessions
            for hosted in running.share_partitions.all():
                for held in _held(hosted) if hosted.is_current else ():
                    if self._is_left(hosted, held, sessions):
                        since = left[hosted, held] = self._left.get((hosted, held), world.now)
                        if world.now - since > EXPIRY_SECONDS:
                            wrong.append(
                                f"{hosted.key.text}: broker {machine.number} leaves {held} with a member whose session "
                                "has ended"
                            )
                            left[hosted, held] = float("inf")  # so that this is reported only once
                    if held.owner and not held.is_acknowledged and held.deadline <= now:
                        since = expired[hosted, held] = self._expired.get((hosted, held), world.now)
                        if world.now - since > EXPIRY_SECONDS * world.plan.leisure:
                            wrong.append(f"{hosted.key.text}: broker {machine.number} leaves {held} with its owner")
                            expired[hosted, held] = float("inf")  # so that this is reported only once
        self._expired, self._left = expired, left
        return wrong

    def _is_left(self, hosted: HostedSharePartition, held: Held, sessions: ShareSessions) -> bool:
        """Return whether a member without a session has the records. If the member has acknowledged them, and the write
        of the outcome has failed, they stay acquired until the lock expires.
        """
        return (
            bool(held.owner)
            and not held.is_acknowledged
            and (hosted.key.group_id, held.owner) not in sessions._sessions
            and (hosted, held.first, held.owner) not in self._acknowledged
        )

    async def conclude(self, world: World) -> Iterable[str]:
        return ()


def _held(hosted: HostedSharePartition) -> tuple[Held, ...]:
    return tuple(
        Held(run.first, run.last, run.owner, run.deliveries, run.deadline, run.becomes is not None)
        for run in hosted.share.runs.runs
    )


def changes_that_are_wrong(
    machine: BrokerMachine,
    shares: SharePartitions,
    hosted: HostedSharePartition,
    before: tuple[Held, ...],
    now: tuple[Held, ...],
) -> Iterator[str]:
    """Yield the violations in the changes of one share partition."""
    was = {offset: held for held in before for offset in range(held.first, held.last + 1)}
    for held in now:
        for offset in range(held.first, held.last + 1):
            old = was.get(offset, NEVER)
            where = f"{hosted.key.text} at offset {offset}: broker {machine.number}"
            if held.deliveries < old.deliveries:
                yield f"{where} counts {held.deliveries} deliveries after {old.deliveries}"
            # If a lock expires before the outcome of an acknowledgement is written, the lock's deadline becomes 0.
            is_new = bool(held.owner) and (held.owner != old.owner or held.deadline > old.deadline)
            if is_new and held.deliveries <= old.deliveries:
                yield f"{where} does not count the delivery to {held.owner}"
            if is_new and old.owner not in ("", held.owner) and _is_locked(machine, shares, hosted, old):
                yield f"{where} has handed the record of {old.owner} to {held.owner}"


def _is_locked(machine: BrokerMachine, shares: SharePartitions, hosted: HostedSharePartition, held: Held) -> bool:
    """Return whether the owner's lock has not expired, and the owner has neither acknowledged the records nor ended its
    session.
    """
    has_session = (hosted.key.group_id, held.owner) in shares.sessions._sessions
    return has_session and not held.is_acknowledged and held.deadline > machine.clock.monotonic()
