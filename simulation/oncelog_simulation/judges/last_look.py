"""What a judge saw of each broker's partitions at its last look, so that the next look costs little if nothing has
changed: judges look after each turn of a broker, and most turns change no partition.

During a run, each assignment to an attribute of a partition, of its log's state or of its ISR is noted
(`assignments_noted`). Without a new assignment, and with the same partitions, no fact has changed; otherwise a look
reads only the facts of the partitions whose objects are among the owners of the assigned attributes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.log_state import LogState
from oncelog_broker.replication.isr import InSync
from oncelog_broker.replication.replica import Replica

if TYPE_CHECKING:
    from oncelog_broker.replication.partition import Partition
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

Assignments = Mapping[str, list[int]]
"""For each host, the owners (by `id`) of the attributes that its processes have assigned so far, in order."""
Facts = tuple[Any, ...]
"""The attributes of a partition that one judge compares with their values at its last look."""
NOTED: Final = (Replica, InSync, LogContent, LogState)
"""Classes whose attributes contain the facts. Partitions are replicas."""
DIRECTOR: Final = "director"
OTHER: Final = -1
"""Stands for the index of a partition whose changes do not matter."""


class _Hosted:
    """The partitions of one broker at the last look, and how far the assignments had come."""

    def __init__(self, partitions: list[Partition], others: Iterable[Partition]) -> None:
        self.partitions = partitions
        self.own = 0
        """The number of assignments by the broker's host at the last look."""
        self.directors = 0
        """The number of assignments by the director at the last look."""
        self._index_of: dict[int, int] = {}
        """For each object (by `id`) that contains facts of a partition, the index of the partition. An entry may remain
        when the object has been replaced; then the partition is only read once too often.
        """
        for each in others:
            self._add(each, OTHER)
        for index, each in enumerate(partitions):
            self._add(each, index)

    def _add(self, partition: Partition, index: int) -> None:
        log, index_of = partition.log, self._index_of
        for owner in (partition, partition.in_sync, log.state, log._content):
            index_of[id(owner)] = index

    def assigned_since(self, own: list[int], directors: list[int]) -> list[Partition] | None:
        """Return the partitions whose attributes were assigned since the last look, in the order of the hosted
        partitions; None if an owner is not known.
        """
        found: set[int] = set()
        for owner in {*own[self.own :], *directors[self.directors :]}:
            index = self._index_of.get(owner)
            if index is None:
                return None
            found.add(index)
        found.discard(OTHER)
        self.own, self.directors = len(own), len(directors)
        changed = [self.partitions[index] for index in sorted(found)]
        for index, partition in zip(sorted(found), changed, strict=True):
            self._add(partition, index)  # the assigned attribute may be the log
        return changed


class LastLook:
    """The facts of each broker's partitions at the last look. The facts are attributes of the classes in NOTED."""

    def __init__(self, facts: Callable[[Partition], Facts]) -> None:
        self._facts = facts
        self._hosted: dict[int, _Hosted] = {}
        """The partitions of each broker at the last look, by broker id."""
        self._known: dict[Partition, Facts] = {}
        """The facts of each partition that any look has seen, even if the broker has not hosted it at the last look."""

    def changed(
        self, world: World, machine: BrokerMachine, partitions: Iterable[Partition], others: Iterable[Partition] = ()
    ) -> list[tuple[Partition, Facts, Facts | None]]:
        """Return the partitions of a broker that are new or whose facts have changed since the last look. Each comes
        with its facts now, and with its facts at the last look (None if the partition is new). Remembers the facts of
        now. `others`: further partitions of the broker, whose changes do not matter.
        """
        hosted = list(partitions)
        looked = hosted if world.assigned is None else self._assigned(world.assigned, machine, hosted, others)
        known, changed = self._known, []
        for partition in looked:
            facts, before = self._facts(partition), known.get(partition)
            if before != facts:
                known[partition] = facts
                changed.append((partition, facts, before))
        return changed

    def _assigned(
        self, assigned: Assignments, machine: BrokerMachine, hosted: list[Partition], others: Iterable[Partition]
    ) -> list[Partition]:
        """Return the partitions whose facts may have changed since the last look."""
        own, directors = assigned[machine.name], assigned[DIRECTOR]
        before = self._hosted.get(machine.number)
        if before is not None and hosted == before.partitions:
            found = before.assigned_since(own, directors)
            if found is not None:
                return found
        now = self._hosted[machine.number] = _Hosted(hosted, others)
        now.own, now.directors = len(own), len(directors)
        return hosted


@contextmanager
def assignments_noted(world: World) -> Iterator[None]:
    """Note in `world.assigned` the owner of each attribute of the classes in NOTED that a process sets, by the host of
    the process, until the end of the `with` statement.
    """
    assigned = world.assigned = defaultdict(list)
    loop, assign = world.loop, object.__setattr__

    def noting(owner: object, name: str, value: object) -> None:
        assign(owner, name, value)
        assigned[loop.current.host].append(id(owner))

    for each in NOTED:
        each.__setattr__ = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        for each in NOTED:
            del each.__setattr__
        world.assigned = None
