"""What a log counts as synced is on the disk of the simulated machine, and no producer snapshot describes records that
a truncation has removed.

- The synced offset and the recovery point of a log are at most the end of the records that would survive a power cut.
- With group commit (`flush.messages=1` on all brokers, at all times since the start), all records below the high
  watermark of the leader are on the disk of each replica in sync.

A power cut alone rarely shows such an error: the broker of the machine copies the missing records from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.segments.segment import LOG_SUFFIX, file_prefix
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.records.batch import CorruptBatch, batches
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.last_look import Facts, LastLook
from oncelog_simulation.storage import Inode, Storage

if TYPE_CHECKING:
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

SNAPSHOT_SUFFIX = ".snapshot"


class Durable:
    """Checks the partitions of a broker whose synced offset or high watermark has moved."""

    name = "durable"
    sees_only_partitions = True

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._last = LastLook(_facts)

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Yield the violations among the changes of this turn."""
        if machine.broker is None or world.rotted:
            return ()
        hosted = machine.broker.parts.replication.replicas.partitions()
        return [
            what
            for partition, now, before in self._last.changed(world, machine, hosted)
            if not partition.log.is_offline and not partition.log.is_paused and not partition.log.state.is_truncating
            for what in self._wrong(world, machine, partition, now, before)
        ]

    def _wrong(
        self, world: World, machine: BrokerMachine, partition: Partition, now: Facts, before: Facts | None
    ) -> Iterator[str]:
        log = partition.log
        synced = max(log.state.synced_offset, log.state.recovery_point)
        end = durable_end(machine.storage, log)
        if synced > end:
            yield f"{log.name}: broker {machine.number} counts all below {synced} as synced, and has {end} on its disk"
        if before is not None and before[:3] != now[:3]:
            yield from _late_snapshots(machine, log)
        if partition.leads and partition.followers and self._committed.is_synced(partition.topic):
            for replica in self._committed.in_sync(world, partition.topic, partition.index):
                other = world.brokers[f"broker-{replica.broker_id}"]
                if replica.topic_id != partition.topic_id:
                    continue  # the topic was created again, and one of the brokers does not know that yet
                if replica.log.is_offline or replica.log.is_paused or replica.log.state.is_truncating:
                    continue
                if (there := durable_end(other.storage, replica.log)) < partition.high_watermark:
                    yield (
                        f"{log.name}: the high watermark is {partition.high_watermark}, and broker {other.number}, "
                        f"which is in sync, has only {there} on its disk"
                    )

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        return ()


def _facts(partition: Partition) -> Facts:
    """Return the log, the number of its truncations, and the offsets that must be on a disk."""
    log = partition.log
    return (
        log,
        log.trimmer.generation,
        log.state.is_truncating,
        log.state.synced_offset,
        log.state.recovery_point,
        partition.high_watermark,
    )


def _late_snapshots(machine: BrokerMachine, log: PartitionLog) -> Iterator[str]:
    directory = machine.storage.find(log.directory)
    for name in sorted(getattr(directory, "entries", ())):
        prefix = name.removesuffix(SNAPSHOT_SUFFIX)
        if prefix != name and prefix.isdecimal() and int(prefix) > log.log_end_offset:
            end = log.log_end_offset
            yield f"{log.name}: broker {machine.number} has a snapshot at {int(prefix)}, and ends at {end}"


def durable_end(storage: Storage, log: PartitionLog) -> int:
    """Return the end of the records that are on the disk: the log end if all are. Files whose fsync has failed count as
    synced: later processes read the records, and a later fsync succeeds without writing them, as on Linux.
    """
    for segment in log.local.segments:
        path = f"{log.directory}/{file_prefix(segment.base_offset)}{LOG_SUFFIX}"
        node = storage.find(path)
        if not isinstance(node, Inode) or node.has_lost_writes:
            continue
        if (size := node.synced_size) < len(node.data):
            return _end_of(bytes(node.data[:size]), segment.base_offset)
    return log.local.log_end_offset


def _end_of(content: bytes, base_offset: int) -> int:
    end = base_offset
    try:
        for batch in batches(content):
            end = batch.next_offset
    except CorruptBatch:
        pass  # the last batch is not complete
    return end
