"""What a judge saw of each broker's partitions at its last look, so that the next look costs little if nothing has
changed: judges look after each turn of a broker, and most turns change no partition.

During a run, each assignment to an attribute of a partition, of its log's state or of its ISR is counted
(`assignments_counted`). Without a new assignment, and with the same partitions, no fact has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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

Facts = tuple[Any, ...]
"""The attributes of a partition that one judge compares with their values at its last look."""
COUNTED: Final = (Replica, InSync, LogContent, LogState)
"""Classes whose attributes contain the facts. Partitions are replicas."""
DIRECTOR: Final = "director"


class LastLook:
    """The facts of each broker's partitions at the last look. The facts are attributes of the classes in COUNTED."""

    def __init__(self, facts: Callable[[Partition], Facts]) -> None:
        self._facts = facts
        self._assigned: dict[int, tuple[int, int]] = {}
        """The number of assignments by each broker and by the director at the last look, by broker id."""
        self._hosted: dict[int, list[Partition]] = {}
        """The partitions of each broker at the last look, by broker id."""
        self._known: dict[Partition, Facts] = {}
        """The facts of each partition that any look has seen, even if the broker has not hosted it at the last look."""

    def changed(
        self, world: World, machine: BrokerMachine, partitions: Iterable[Partition]
    ) -> list[tuple[Partition, Facts, Facts | None]]:
        """Return the partitions of a broker that are new or whose facts have changed since the last look. Each comes
        with its facts now, and with its facts at the last look (None if the partition is new). Remembers the facts of
        now.
        """
        hosted, number = list(partitions), machine.number
        if world.assigned is not None:
            assigned = world.assigned[machine.name], world.assigned[DIRECTOR]
            if assigned == self._assigned.get(number) and hosted == self._hosted[number]:
                return []
            self._assigned[number], self._hosted[number] = assigned, hosted
        known, changed = self._known, []
        for partition in hosted:
            facts, before = self._facts(partition), known.get(partition)
            if before != facts:
                known[partition] = facts
                changed.append((partition, facts, before))
        return changed


@contextmanager
def assignments_counted(world: World) -> Iterator[None]:
    """Count in `world.assigned` how often each host's process sets an attribute of the classes in COUNTED, until the
    end of the `with` statement.
    """
    counts = world.assigned = Counter()
    loop, assign = world.loop, object.__setattr__

    def counting(owner: object, name: str, value: object) -> None:
        assign(owner, name, value)
        counts[loop.current.host] += 1

    for each in COUNTED:
        each.__setattr__ = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        for each in COUNTED:
            del each.__setattr__
        world.assigned = None
