"""Committed records remain: every in-sync replica has, batch for batch, the records that any leader has exposed below
its high watermark.

This judge checks at all times while the cluster runs: if an in-sync replica lacks a committed record, the next election
may lose the record, even if no fault makes the loss visible yet. The metadata store itself says which replicas are in
sync, at the moment of each write. After each turn of a broker, the judge checks the partitions whose high watermark has
moved or whose log was truncated, so it notices even an error that lasts only a millisecond. The judge also checks:

- log start <= last stable offset <= high watermark <= log end, in each replica.
- The leader counts each replica as in sync that the metadata store has in the ISR, because the next election may choose
  it; and a replica joins the ISR only with all records below the start of the leader epoch.
- When a client gets the acknowledgement of a record, some leader has exposed a high watermark above the record.
- No follower has a high watermark beyond the highest offset that a leader has exposed.
- The last stable offset of a leader is at most the first offset of each open transaction. A transaction is open if it
  has records, but no marker, below the high watermark (`undecided`).

A power cut may destroy records that no other replica has. After a power cut, each partition without another running
in-sync replica is *excused*: its log may be shorter now, and the responses that its clients got are not judged. If the
struck replica is not in sync, this is so only if all in-sync replicas have lost their power before.
Partitions with group commit (`flush.messages=1` on all brokers, at all times since the start) are never excused,
because their replicas report and acknowledge only records that are on their disks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch, batches
from oncelog_simulation.disk import unnoticed
from oncelog_simulation.judges.last_look import Facts, LastLook
from oncelog_simulation.judges.running import Running, running
from oncelog_simulation.judges.truth import Key, TrueState, Truth
from oncelog_simulation.workloads.notes import Notes
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

FLUSH_SETTING: Final = "log.flush.interval.messages"
FLUSH_OVERRIDE: Final = "flush.messages"
GROUP_COMMIT: Final = "1"
"""The value of both settings that turns on group commit: records are acknowledged only when they are on the disk."""
READ_BYTES: Final = 1 << 20
"""Limit in bytes on one read of a log."""


class Batch(NamedTuple):
    """The fields of a batch header that identify the batch. Two batches with the same CRC are taken to have the same
    records.
    """

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False


class Prefix:
    """The committed part of one partition: its batches in offset order."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        """The first offset; earlier batches were deleted before the judge saw them."""
        self.end = 0
        self.shown_by = 0
        """The id of the broker that exposed the last of the batches."""
        self.undecided: dict[int, int] = {}
        """For each producer id, the first offset of its open transaction, which has no marker among these batches."""
        self.unread_end = 0
        """The highest offset that a leader has exposed while its log could not be read, because it was being moved, or
        because the leader died in the same turn.
        """
        self.is_cut = False
        """Whether some records are known to be lost; the offsets that brokers expose are then no longer judged."""

    def extend(self, found: Iterable[Batch], high_watermark: int, broker: int) -> None:
        """Add the batches that a leader has exposed, up to its high watermark."""
        new = [batch for batch in found if self.end <= batch.base_offset and batch.next_offset <= high_watermark]
        if not new or new[0].base_offset > self.end:
            self.batches, self.start = [], new[0].base_offset if new else high_watermark
            self.undecided.clear()
        self.batches += new
        for batch in new:
            if batch.is_control:
                self.undecided.pop(batch.producer_id, None)
            elif batch.is_transactional:
                self.undecided.setdefault(batch.producer_id, batch.base_offset)
        self.end, self.shown_by = high_watermark, broker

    def cut(self, end: int) -> None:
        """Drop all batches that end above `end`; the loss of their records was already reported."""
        self.is_cut = True
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.end = min(self.end, end)

    def between(self, start: int, end: int) -> list[Batch]:
        """Return the batches that lie entirely between the two offsets."""
        first = bisect_left(self.batches, (start,))
        return [batch for batch in self.batches[first:] if batch.next_offset <= end]


class _Checked(NamedTuple):
    """The offset up to which a log was compared, and the log's state at that time."""

    log: object
    generation: int
    up_to: int


class Committed:
    """Checks all hosted partitions. `excused`: partitions whose records a power cut may have destroyed."""

    name = "committed"
    sees_only_partitions = True

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        notes.history.on_acknowledged = self._on_acknowledged
        notes.history.exposed = lambda place: self._shown.get(place, 0)
        self._truth = Truth()
        self._prefixes: dict[Key, Prefix] = {}
        self._checked: dict[tuple[int, bytes, int], _Checked] = {}
        self._last = LastLook(_facts)
        self._truncating: dict[int, list[Partition]] = {}
        """Partitions whose log was being truncated when they had changed; they are checked when the truncation has
        finished. By broker id.
        """
        self._power_cuts: dict[int, int] = {}
        """The number of handled power cuts, by broker id."""
        self._power_cuts_seen = 0
        self._bereft: set[tuple[int, Key]] = set()
        """Replicas (broker id, partition) whose machine has lost its power since the replica last had all records."""
        self._always_synced = True
        """Whether all brokers have had group commit as the default of all topics since the start."""
        self._overridden: set[str] = set()
        """Topics that were without group commit at some time."""
        self._configs: object = None
        """The topic settings that were checked last. Metadata images with unchanged topic settings share one object, so
        comparing the identity suffices.
        """
        self.excused: set[Place] = set()
        self._compared: tuple[Facts, dict[Partition, Facts]] = ((), {})
        """The facts about the cluster, and about each hosted partition, at the last comparison of all replicas. The
        result of `_look_at` depends only on these facts and on the records below the log ends.
        """
        self._ended: dict[int, int] = {}
        """The `id` of the broker object of the last process whose death was handled, by broker id."""
        self._is_unread = False
        """Whether a log could not be read in a comparison, so that the next one must read it."""
        self._shown: dict[Place, int] = {}
        """The highest high watermark of any replica of the partition so far."""
        self._too_early: list[str] = []
        """The violations that acknowledgements have shown since the last call of `look_closely`."""
        self._uncounted: dict[Key, int] = {}
        """The write of each partition's state for which `_check_counted` has reported a violation."""

    # --- methods that the simulated world calls

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Handle power cuts immediately, while it is known which other brokers were running; and check the partitions
        whose ISR has changed.
        """
        if self._always_synced:
            self._look_for_unsynced(machine)
        if world.power_cuts != self._power_cuts_seen:
            self._notice_power_cuts(world)
        changed, wrong = dict[Key, str](), list[str]()
        if world.store.zxid != self._truth.zxid:
            before = self._truth.states
            written = sorted(set(self._truth.update(world)))
            wrong += (what for key in written if key in before for what in self._wrong_joins(world, key, before[key]))
            changed = {key: self._truth.states[key].topic for key in written}
        if machine.broker is None:
            self._learn_from_dead(machine)
        else:
            moved = self._moved(world, machine, machine.broker.parts.replication.replicas.partitions())
            changed |= {_key(partition): partition.topic for partition in moved}
        return [*wrong, *self._look_at(world, changed)] if changed else wrong

    def _wrong_joins(self, world: World, key: Key, before: TrueState) -> Iterator[str]:
        """Yield the replicas that have joined the ISR without all records below the start of the leader epoch."""
        state = self._truth.states[key]
        hosted = {
            broker.number: broker.parts.replication.replicas.hosted(state.topic, key[1]) for broker in running(world)
        }
        leader = hosted.get(state.leader)
        if (
            leader is None
            or not leader.leads
            or leader.leader_epoch != state.leader_epoch
            or state.topic in self._notes.careless
        ):
            return
        for joined in sorted(set(state.isr) - set(before.isr)):
            log = None if (replica := hosted.get(joined)) is None else replica.log
            if log is None or log.is_offline or log.state.is_truncating:
                continue
            if log.log_end_offset < leader.epoch_start_offset:
                yield (
                    f"{log.name}: broker {joined} has joined the ISR and ends at {log.log_end_offset}, but the leader "
                    f"epoch begins at {leader.epoch_start_offset}"
                )

    def _look_for_unsynced(self, machine: BrokerMachine) -> None:
        """Record which topics have settings without group commit."""
        if machine.settings.get(FLUSH_SETTING) != GROUP_COMMIT:
            self._always_synced = False
        elif machine.broker is not None:
            configs = machine.broker.parts.membership.metadata.image.topic_configs
            if configs is not self._configs:
                self._configs = configs
                self._overridden.update(
                    topic
                    for topic, overrides in configs.items()
                    if overrides.get(FLUSH_OVERRIDE, GROUP_COMMIT) != GROUP_COMMIT
                )

    def _moved(self, world: World, machine: BrokerMachine, hosted: Iterable[Partition]) -> list[Partition]:
        """Return the partitions whose high watermark has moved, or whose log was truncated, since they were last
        checked.
        """
        moved = [partition for partition, _, _ in self._last.changed(world, machine, hosted)]
        if self._truncating:
            moved += self._truncating.pop(machine.number, ())
        truncating = [partition for partition in moved if partition.log.state.is_truncating]
        if truncating:
            self._truncating[machine.number] = truncating
            return [partition for partition in moved if partition not in truncating]
        return moved

    def _notice_power_cuts(self, world: World) -> None:
        self._power_cuts_seen = world.power_cuts
        for machine in world.brokers.values():
            if machine.power_cuts != self._power_cuts.get(machine.number, 0):
                self._power_cuts[machine.number] = machine.power_cuts
                self._on_power_cut(world, machine.number)

    def look_closely(self, world: World) -> Iterable[str]:
        """Compare the records of each in-sync replica with the exposed records, unless nothing on which the result
        depends has changed since the last comparison.
        """
        early, self._too_early = self._too_early, []
        yield from early
        self._truth.update(world)
        brokers, states = running(world), self._truth.states
        around = (
            self._truth.zxid,
            len(self.excused),
            [(broker.number, broker.parts.membership.member.broker_epoch) for broker in brokers],
        )
        facts = {each: _close_facts_of(each) for broker in brokers for each in broker.hosted()}
        (around_before, before), self._compared = self._compared, (around, facts)
        if around != around_before or self._is_unread:
            before = {}
        elif facts == before:
            return
        self._is_unread = False
        changed = {_key(each): each.topic for each, now in facts.items() if before.get(each) != now}
        yield from self._look_at(world, {key: topic for key, topic in changed.items() if key in states})

    async def conclude(self, world: World) -> Iterable[str]:
        """Compare a last time, after the workloads have ended."""
        return list(self.look_closely(world))

    def is_synced(self, topic: str) -> bool:
        """Return whether all replicas of the topic have had group commit at all times."""
        return self._always_synced and topic not in self._overridden

    def in_sync(self, world: World, topic: str, index: int) -> list[Partition]:
        """Return the replicas of a partition that are in sync and running."""
        hosted = [(broker, broker.parts.replication.replicas.hosted(topic, index)) for broker in running(world)]
        return [each for broker, each in hosted if each is not None and self._counts(broker, each)]

    def is_leader(self, broker: Running, topic: str, index: int) -> bool:
        """Return whether the metadata store names this broker, which has a replica, as the leader of a partition."""
        partition = broker.parts.replication.replicas.hosted(topic, index)
        state = None if partition is None else self._truth.states.get(_key(partition))
        return state is not None and state.leader == broker.number

    # --- inside

    def _on_acknowledged(self, place: Place, offset: int) -> None:
        """Handle the acknowledgement of a record, which a client has just got. The broker that sent it had replicated
        the record before, and this judge has seen the high watermark of that broker since.
        """
        if place.topic not in self._notes.careless and place not in self.excused:
            shown = self._shown.get(place, 0)
            if offset >= shown:
                self._too_early.append(
                    f"{place}: offset {offset} was acknowledged, but all high watermarks were at most {shown}"
                )

    def _look_at(self, world: World, keys: Mapping[Key, str]) -> Iterator[str]:
        """Check all replicas of some partitions. `keys` has the topics of the partitions."""
        careless, by_key = self._notes.careless, sorted(keys.items())
        hosted = [
            (broker, each)
            for broker in running(world)
            for (topic_id, index), topic in by_key
            if topic not in careless
            and (each := broker.parts.replication.replicas.hosted(topic, index)) is not None
            and each.topic_id == topic_id
        ]
        for broker, partition in hosted:
            place = Place(partition.topic, partition.index)
            # followers count, too, because a leader may resign in the turn in which it acknowledges a record
            self._shown[place] = max(self._shown.get(place, 0), partition.high_watermark)
            if (broker.number, _key(partition)) in self._bereft and self._has_all(partition):
                self._bereft.discard((broker.number, _key(partition)))
            if partition.leads or self._may_have_led(broker, partition):
                self._learn(broker, partition, is_readable=not _is_damaged(world, broker, partition))
        for broker, partition in hosted:
            if partition.leads:
                yield from self._check_counted(broker, partition)
            yield from self._check_shown(broker, partition)
            if not _is_damaged(world, broker, partition):
                yield from self._compare(broker, partition)

    def _may_have_led(self, broker: Running, partition: Partition) -> bool:
        """Return whether the broker is the leader in the metadata store: it may have raised its high watermark and then
        resigned in one turn, as at a controlled shutdown.
        """
        state = self._truth.states.get(_key(partition))
        return state is not None and (state.leader, state.leader_epoch) == (broker.number, partition.leader_epoch)

    def _check_counted(self, broker: Running, partition: Partition) -> Iterator[str]:
        """Yield a violation if the leader does not count a replica that is in sync according to the metadata store."""
        key = _key(partition)
        state = self._truth.states.get(key)
        if state is None or (state.leader, state.leader_epoch) != (broker.number, partition.leader_epoch):
            return
        uncounted = sorted(set(state.isr) - partition.in_sync.maximal)
        if uncounted and self._uncounted.get(key) != state.written:
            self._uncounted[key] = state.written
            yield f"{partition.log.name}: broker {broker.number} leads and does not count {uncounted}, in the ISR"

    def _check_shown(self, broker: Running, partition: Partition) -> Iterator[str]:
        """Yield the violations among the offsets (log start, last stable offset, high watermark) that this broker
        exposes.
        """
        place = Place(partition.topic, partition.index)
        prefix = self._prefixes.get(_key(partition))
        if prefix is None or prefix.is_cut or place in self.excused or partition.log.is_offline:
            return
        log = partition.log
        offsets = (log.log_start_offset, partition.last_stable_offset, partition.high_watermark, log.log_end_offset)
        if not log.state.is_truncating and list(offsets) != sorted(offsets):
            yield f"{log.name}: broker {broker.number} has log start, LSO, high watermark and log end at {offsets}"
            prefix.is_cut = True  # so that this is reported only once
        if partition.high_watermark > prefix.end:
            if partition.high_watermark <= prefix.unread_end:
                return  # a leader has exposed it while its log could not be read; the next leader's log has the records
            if partition.leads or self._may_have_led(broker, partition):
                return  # its log could not be read in this look, for example because it is being moved
            yield (
                f"{partition.log.name}: broker {broker.number} follows and has the high watermark "
                f"{partition.high_watermark}, but no leader has shown more than {prefix.end}"
            )
            prefix.end = partition.high_watermark  # so that this is reported only once
        elif partition.high_watermark == prefix.end and self._counts(broker, partition):
            # where the first records of a transaction were deleted, it begins with the first record that is left
            left = (offset for offset in prefix.undecided.values() if offset >= log.log_start_offset)
            first = min(left, default=prefix.end)
            if partition.last_stable_offset > first:
                yield (
                    f"{partition.log.name}: broker {broker.number} has the last stable offset "
                    f"{partition.last_stable_offset}, but a transaction since {first} has no marker below the high "
                    f"watermark {prefix.end}"
                )
                prefix.undecided.clear()  # so that this is reported only once

    def _on_power_cut(self, world: World, number: int) -> None:
        brokers = running(world)
        for key, state in self._truth.states.items():
            place = Place(state.topic, key[1])
            if self.is_synced(state.topic) or state.topic in self._notes.careless:
                continue
            self._bereft.add((number, key))
            is_last = number in state.isr or all((member, key) in self._bereft for member in state.isr)
            if is_last and place not in self.excused and not self._has_other(brokers, key, number):
                world.note("judge", "excuses a partition: a power cut hit all in-sync replicas", partition=str(place))
                self.excused.add(place)
                self._notes.may_hang = True
                self._prefixes.pop(key, None)

    def _has_other(self, brokers: list[Running], key: Key, number: int) -> bool:
        """Return whether another in-sync replica is running and has all committed records."""
        state = self._truth.states[key]
        for broker in brokers:
            partition = broker.parts.replication.replicas.hosted(state.topic, key[1])
            if broker.number == number or broker.number not in state.isr or partition is None:
                continue
            if self._has_all(partition):
                return True
        return False

    def _has_all(self, partition: Partition) -> bool:
        """Return whether the replica's log can be used, and reaches the end of the exposed records."""
        prefix = self._prefixes.get(_key(partition))
        return not partition.log.is_offline and (prefix is None or partition.log.log_end_offset >= prefix.end)

    def _learn(self, broker: Running, partition: Partition, *, is_readable: bool) -> None:
        """Add what a leader has exposed since the last look. If its log is damaged or offline, its records are unknown,
        but its high watermark may rise nevertheless, because an in-sync replica that lacked records left the ISR.
        """
        place = Place(partition.topic, partition.index)
        prefix = self._prefixes.setdefault(_key(partition), Prefix())
        if partition.high_watermark > prefix.end and place not in self.excused:
            is_readable = is_readable and not partition.log.is_offline
            found = batches_of(partition, prefix.end) if is_readable else ()
            if found is None:
                self._is_unread = True
                prefix.unread_end = max(prefix.unread_end, partition.high_watermark)
            else:
                prefix.extend(found, partition.high_watermark, broker.number)

    def _learn_from_dead(self, machine: BrokerMachine) -> None:
        """Note what a broker has exposed in the turn in which its process died. The responses of this turn that were
        sent before arrive, but a dead process reads no log.
        """
        ended = machine.ended_broker()
        if ended is None or self._ended.get(machine.number) == id(ended):
            return
        self._ended[machine.number] = id(ended)
        broker = Running(machine, ended.parts)
        for partition in broker.hosted():
            place, key = Place(partition.topic, partition.index), _key(partition)
            if partition.topic in self._notes.careless or place in self.excused:
                continue
            self._shown[place] = max(self._shown.get(place, 0), partition.high_watermark)
            if partition.leads or self._may_have_led(broker, partition):
                prefix = self._prefixes.setdefault(key, Prefix())
                prefix.unread_end = max(prefix.unread_end, partition.high_watermark)

    def _compare(self, broker: Running, partition: Partition) -> Iterator[str]:
        prefix, log = self._prefixes.get(_key(partition)), partition.log
        if prefix is None or log.is_offline or log.state.is_truncating:
            return
        if self._is_known_to_agree(broker, partition, prefix) or not self._counts(broker, partition):
            return
        if log.log_end_offset < prefix.end:
            yield (
                f"{log.name}: broker {broker.number} is in sync and ends at {log.log_end_offset}, but broker "
                f"{prefix.shown_by} has shown all below {prefix.end}"
            )
            prefix.cut(log.log_end_offset)  # so that this is reported only once
            return
        if not log.config.is_compacted and log.state.cleaner_checkpoint is None:
            yield from self._compare_batches(broker, partition, prefix)

    def _is_known_to_agree(self, broker: Running, partition: Partition, prefix: Prefix) -> bool:
        """Return whether neither the replica's log nor the exposed records have changed since the last comparison."""
        checked = self._checked.get((broker.number, *_key(partition)))
        log = partition.log
        return (
            checked is not None
            and checked.log is log
            and checked.generation == log.trimmer.generation
            and checked.up_to == prefix.end <= log.log_end_offset
        )

    def _counts(self, broker: Running, partition: Partition) -> bool:
        """Return whether this replica is in sync, and its broker has been registered without a break since the
        partition's state was written.
        """
        state = self._truth.states.get(_key(partition))
        registered = self._truth.registered.get(broker.number)
        return (
            state is not None
            and broker.number in state.isr
            and registered is not None
            and registered <= state.written
            and broker.parts.membership.member.broker_epoch == registered
        )

    def _compare_batches(self, broker: Running, partition: Partition, prefix: Prefix) -> Iterator[str]:
        log, key = partition.log, (broker.number, *_key(partition))
        checked = self._checked.get(key)
        start = max(log.log_start_offset, prefix.start)
        if checked is not None and checked.log is log and checked.generation == log.trimmer.generation:
            start = max(start, checked.up_to)
        end = prefix.end
        if start < end:
            found = batches_of(partition, start)
            if found is None:
                self._is_unread = True
                return
            ours = [batch for batch in found if start <= batch.base_offset and batch.next_offset <= end]
            theirs = prefix.between(start, end)
            if ours != theirs:
                where = min((batch.base_offset for batch in set(ours) ^ set(theirs)), default=start)
                yield (
                    f"{log.name}: broker {broker.number} is in sync and holds other records from {where} on than "
                    f"broker {prefix.shown_by} has shown, below {end}"
                )
        self._checked[key] = _Checked(log, log.trimmer.generation, end)


def _is_damaged(world: World, broker: Running, partition: Partition) -> bool:
    """Return whether a bit of this log has changed on the broker's disk, so that its batches prove nothing."""
    return partition.log.name in world.rotted.get(broker.machine.name, ())


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.index


def _close_facts_of(partition: Partition) -> Facts:
    log = partition.log
    state = log.state
    return (
        log,
        partition.leader,
        partition.is_resigned,
        partition.high_watermark,
        partition.last_stable_offset,
        state.log_start_offset,
        log.local.log_end_offset,
        log.trimmer.generation,
        state.offline_reason,
        state.is_truncating,
        state.config.is_compacted,
        state.cleaner_checkpoint,
    )


def _facts(partition: Partition) -> Facts:
    """Return the high watermark, the number of truncations of the log, and the replicas that the leader counts."""
    return partition.high_watermark, partition.log.trimmer.generation, partition.in_sync.maximal


def batches_of(partition: Partition, start: int) -> list[Batch] | None:
    """Return all batches of a log whose last offset is at or above `start`; None if the disk cannot be read now."""
    log, found = partition.log, list[Batch]()
    offset = max(start, log.log_start_offset)
    while offset < log.log_end_offset:
        try:
            with unnoticed():
                view = log.reader.read(offset, READ_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
            read = [
                Batch(
                    each.base_offset,
                    each.next_offset,
                    each.partition_leader_epoch,
                    each.crc,
                    each.producer_id,
                    each.is_transactional,
                    each.is_control,
                )
                for each in batches(bytes(view))
            ]
        except (KafkaError, CorruptBatch, OSError):
            return None
        if not read:
            return None
        found += [batch for batch in read if batch.next_offset > offset]
        offset = read[-1].next_offset
    return found
