"""The last stable offset of a log that was just opened or truncated agrees with the log's batches: it is at most the
first offset of each transaction that has records, but no marker, below the replica's high watermark.

The judge `committed` compares the last stable offset with what leaders have exposed, so it checks a replica only while
its high watermark is the highest one of all. A restarted replica begins with an older high watermark, and a truncated
one keeps markers that are not replicated: this judge reads the batches of such a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog_broker.replication.partition import Partition
from oncelog_simulation.judges.committed import batches_of
from oncelog_simulation.judges.last_look import Facts, LastLook

if TYPE_CHECKING:
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World


class Unstable:
    """Checks the partitions of a broker whose log was opened or truncated since the last look."""

    name = "unstable"
    sees_only_partitions = True

    def __init__(self) -> None:
        self._last = LastLook(_facts)

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Yield the violations among the changes of this turn."""
        if machine.broker is None or world.rotted:
            return ()
        hosted = machine.broker.parts.replication.replicas.partitions()
        return [
            f"{partition.log.name}: broker {machine.number} has opened or truncated its log, and has the last stable "
            f"offset {partition.last_stable_offset}, but a transaction since {first} has no marker below the high "
            f"watermark {partition.high_watermark}"
            for partition, _, _ in self._last.changed(world, machine, hosted)
            if (first := first_undecided(partition)) is not None
            and partition.last_stable_offset > max(first, partition.log.log_start_offset)
        ]

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        return ()


def first_undecided(partition: Partition) -> int | None:
    """Return the first offset of the oldest transaction that has records, but no marker, below the high watermark. None
    if there is no such transaction, or if the log cannot be read or was compacted, so that its batches prove nothing.
    """
    log, high_watermark = partition.log, partition.high_watermark
    if log.is_offline or log.is_paused or log.state.is_truncating:
        return None
    if log.config.is_compacted or log.state.cleaner_checkpoint is not None:
        return None
    begun: dict[int, int] = {}
    for batch in batches_of(partition, log.log_start_offset) or ():
        if batch.base_offset >= high_watermark:
            break
        if batch.is_control:
            begun.pop(batch.producer_id, None)
        elif batch.is_transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
    return min(begun.values(), default=None)


def _facts(partition: Partition) -> Facts:
    """Return the log, the number of its truncations, and whether it can be judged now."""
    log = partition.log
    return log, log.trimmer.generation, log.state.is_truncating, log.is_offline
