"""What was committed stays: every replica in sync has, batch for batch, what any leader has shown below its high
watermark.

That is looked at while the cluster runs, and not only when a fault brings it to light: an in-sync replica that lacks a
committed record loses it with the next election.

Power cuts may take away what no other replica has. When power was cut, each partition of which no other in-sync replica
was at work is *excused*: what it held may be shorter now, and what its clients were told does not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_broker.metadata.model.image import PartitionState
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch, batches
from oncelog_simulation.judges.running import Running, newest_state, running
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

READ_BYTES: Final = 1 << 20
"""At most so many bytes of a log are read at a time."""


class Batch(NamedTuple):
    """One batch, as its header tells it. The CRC stands for the rest."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


class Prefix:
    """What was committed of one partition: batches in the order of their offsets."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        """What lies before was deleted before anybody looked at it."""
        self.end = 0
        self.shown_by = 0
        """The broker that has shown the last of it."""

    def extend(self, found: Iterable[Batch], high_watermark: int, broker: int) -> None:
        """A leader has shown these batches, up to its high watermark."""
        new = [batch for batch in found if self.end <= batch.base_offset and batch.next_offset <= high_watermark]
        if not new or new[0].base_offset > self.end:
            self.batches, self.start = [], new[0].base_offset if new else high_watermark
        self.batches += new
        self.end, self.shown_by = high_watermark, broker

    def cut(self, end: int) -> None:
        """Nothing that lies behind `end` counts any more."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.end = min(self.end, end)

    def between(self, start: int, end: int) -> list[Batch]:
        """Its batches that lie wholly between the two offsets."""
        first = bisect_left(self.batches, (start,))
        return [batch for batch in self.batches[first:] if batch.next_offset <= end]


class _Checked(NamedTuple):
    """How far a log has been compared, and in which state of it."""

    log: object
    generation: int
    up_to: int


class Committed:
    """Looks at all hosted partitions. `excused`: partitions whose records a power cut may have taken."""

    name = "committed"

    def __init__(self) -> None:
        self._prefixes: dict[tuple[bytes, int], Prefix] = {}
        self._checked: dict[tuple[int, bytes, int], _Checked] = {}
        self._power_cuts: dict[int, int] = {}
        self.excused: set[Place] = set()

    # --- what the world asks

    def look(self, world: World) -> Iterable[str]:
        """Notice power cuts at once, while it is known who else was at work."""
        for machine in world.brokers.values():
            if machine.power_cuts != self._power_cuts.get(machine.number, 0):
                self._power_cuts[machine.number] = machine.power_cuts
                self._on_power_cut(world, machine.number)
        return ()

    def look_closely(self, world: World) -> Iterable[str]:
        """Compare every in-sync replica with what was shown."""
        brokers = running(world)
        for broker in brokers:
            for partition in list(broker.hosted()):
                if partition.leads:
                    self._learn(broker, partition)
        for broker in brokers:
            for partition in list(broker.hosted()):
                yield from self._compare(brokers, broker, partition)

    async def conclude(self, world: World) -> Iterable[str]:
        """Once more, when all is over."""
        return list(self.look_closely(world))

    # --- inside

    def _on_power_cut(self, world: World, number: int) -> None:
        brokers = running(world)
        for broker in brokers:
            for name, topic in broker.image.topics.items():
                for index in topic.partitions:
                    place = Place(name, index)
                    found = newest_state(brokers, name, topic.topic_id, index)
                    if found is None or number not in found[0].replicas or place in self.excused:
                        continue
                    if not self._has_other(brokers, name, topic.topic_id, index, found[0], number):
                        self._excuse(world, topic.topic_id, place)
        if not brokers:
            for topic_id, index in self._prefixes:
                self._prefixes[topic_id, index] = Prefix()
            self.excused |= {Place("", index) for _, index in self._prefixes}

    def _has_other(
        self, brokers: list[Running], name: str, topic_id: bytes, index: int, state: PartitionState, number: int
    ) -> bool:
        """Whether another replica in sync is at work and has all that was committed."""
        prefix = self._prefixes.get((topic_id, index))
        for broker in brokers:
            partition = broker.parts.replication.replicas.hosted(name, index)
            if broker.number == number or broker.number not in state.isr or partition is None:
                continue
            if not partition.log.is_offline and (prefix is None or partition.log.log_end_offset >= prefix.end):
                return True
        return False

    def _excuse(self, world: World, topic_id: bytes, place: Place) -> None:
        world.note("judge", "excuses a partition: a power cut took all that is in sync", partition=str(place))
        self.excused.add(place)
        self._prefixes.pop((topic_id, place.index), None)

    def _learn(self, broker: Running, partition: Partition) -> None:
        place = Place(partition.topic, partition.index)
        prefix = self._prefixes.setdefault(_key(partition), Prefix())
        if partition.high_watermark > prefix.end and place not in self.excused and not partition.log.is_offline:
            found = batches_of(partition, prefix.end)
            prefix.extend(found, partition.high_watermark, broker.number)

    def _compare(self, brokers: list[Running], broker: Running, partition: Partition) -> Iterator[str]:
        key = _key(partition)
        prefix, log = self._prefixes.get(key), partition.log
        if prefix is None or log.is_offline or log.state.is_truncating:
            return
        if Place(partition.topic, partition.index) in self.excused or self._is_known_to_agree(
            broker, partition, prefix
        ):
            return
        found = newest_state(brokers, partition.topic, partition.topic_id, partition.index)
        if found is None or not self._counts(broker, partition, found[0], brokers[found[1]]):
            return
        if log.log_end_offset < prefix.end:
            yield (
                f"{log.name}: broker {broker.number} is in sync and ends at {log.log_end_offset}, but broker "
                f"{prefix.shown_by} has shown all below {prefix.end}"
            )
            prefix.cut(log.log_end_offset)  # once is enough
            return
        if not log.config.is_compacted and log.state.cleaner_checkpoint is None:
            yield from self._compare_batches(broker, partition, prefix)

    def _is_known_to_agree(self, broker: Running, partition: Partition, prefix: Prefix) -> bool:
        """Whether neither the log nor what it must hold has changed since they were compared."""
        checked = self._checked.get((broker.number, *_key(partition)))
        log = partition.log
        return (
            checked is not None
            and checked.log is log
            and checked.generation == log.trimmer.generation
            and checked.up_to == prefix.end <= log.log_end_offset
        )

    def _counts(self, broker: Running, partition: Partition, state: PartitionState, knowing: Running) -> bool:
        """Whether this replica is in sync by the newest state, has heard so, and was there all the time."""
        me = knowing.image.brokers.get(broker.number)
        return (
            broker.number in state.isr
            and partition.leader_epoch == state.leader_epoch
            and (not partition.leads or broker.number in partition.isr)
            and me is not None
            and me.epoch <= state.written
            and broker.parts.membership.member.broker_epoch == me.epoch
        )

    def _compare_batches(self, broker: Running, partition: Partition, prefix: Prefix) -> Iterator[str]:
        log, key = partition.log, (broker.number, *_key(partition))
        checked = self._checked.get(key)
        start = max(log.log_start_offset, prefix.start)
        if checked is not None and checked.log is log and checked.generation == log.trimmer.generation:
            start = max(start, checked.up_to)
        end = prefix.end
        if start < end:
            ours = [batch for batch in batches_of(partition, start) if start <= batch.base_offset]
            ours = [batch for batch in ours if batch.next_offset <= end]
            theirs = prefix.between(start, end)
            if ours != theirs:
                where = min(batch.base_offset for batch in set(ours) ^ set(theirs))
                yield (
                    f"{log.name}: broker {broker.number} is in sync and holds other records from {where} on than "
                    f"broker {prefix.shown_by} has shown, below {end}"
                )
        self._checked[key] = _Checked(log, log.trimmer.generation, end)


def _key(partition: Partition) -> tuple[bytes, int]:
    return partition.topic_id, partition.index


def batches_of(partition: Partition, start: int) -> list[Batch]:
    """All batches of a log that end behind `start`; as far as they can be read."""
    log, found = partition.log, list[Batch]()
    offset = max(start, log.log_start_offset)
    while offset < log.log_end_offset:
        try:
            view = log.reader.read(offset, READ_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
            read = [
                Batch(each.base_offset, each.next_offset, each.partition_leader_epoch, each.crc)
                for each in batches(bytes(view))
            ]
        except (KafkaError, CorruptBatch, OSError):
            return found
        if not read:
            return found
        found += [batch for batch in read if batch.next_offset > offset]
        offset = read[-1].next_offset
    return found
