"""The files that a log stores beside its batches must agree with its batches; this is checked at the end, in every
replica.

- producers: the epoch, last sequence and open transaction of each producer equal those found by reading all batches
- aborted: the transaction index lists each transaction that an ABORT marker has ended
- markers: each transaction has its marker before its producer writes batches in a later epoch
- leader epochs: each batch is in the range of the leader epoch that it names
- positions: a read from the first offset of a batch returns this batch
- times: a search for the timestamp of a batch finds the first batch whose timestamp is at least as large

Without this judge, wrong data beside a follower's log would be noticed only after the follower becomes leader, and a
restart would repair some of the errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_broker.config.broker_keys import PRODUCER_ID_EXPIRATION_MS
from oncelog_broker.log.producers.recent_ends import ENDS
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch, batches
from oncelog_protocol.records.control import ControlType, read_marker
from oncelog_protocol.records.sequence import increment_sequence
from oncelog_simulation.disk import unnoticed
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.running import Running, running

if TYPE_CHECKING:
    from oncelog_simulation.world import World

READ_BYTES: Final = 1 << 20
EXPIRY_SLACK_MS: Final = 3_600_000
"""Milliseconds by which a producer may expire early or late: clocks of machines differ, and brokers look for expired
producers only from time to time.
"""
DISK_FAILURES: Final = frozenset(
    {
        *("disk full", "EIO on read", "EIO on write", "EIO on fsync", "directory fails", "disks in turn"),
        *("emptied disk", "older disk"),
    }
)
"""Faults after which a log may have been opened again while its broker ran."""
MOST_READS: Final = 8
"""Limit on the number of batches of a log for which the judge makes a lookup by offset."""


@dataclass
class Walked:
    """The result of reading all batches of a log in order."""

    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Epoch and last sequence by producer id; the sequence is -1 if the epoch has no batch."""
    last_ms: dict[int, int] = field(default_factory=dict)
    """Timestamp of the last batch or marker by producer id."""
    with_data: set[int] = field(default_factory=set)
    open: dict[int, int] = field(default_factory=dict)
    """First offset of the open transaction by producer id."""
    aborted: set[tuple[int, int]] = field(default_factory=set)
    """Producer id and offset of each ABORT marker."""
    without_marker: list[tuple[int, int]] = field(default_factory=list)
    """Producer id and first offset of each transaction after which the producer wrote in a later epoch although no
    marker had ended the transaction.
    """
    _epochs_of_open: dict[int, int] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Leader epoch and first offset of each change of the epoch."""
    offsets: list[int] = field(default_factory=list)
    times: list[tuple[int, int, int]] = field(default_factory=list)
    """Largest timestamp, first offset and last offset of each batch that has records."""

    def take(self, batch: RecordBatch) -> None:
        """Process the next batch of the log."""
        self.offsets.append(batch.base_offset)
        if batch.records_count:
            self.times.append((batch.max_timestamp, batch.base_offset, batch.last_offset))
        if not self.epochs or self.epochs[-1][0] != batch.partition_leader_epoch:
            self.epochs.append((batch.partition_leader_epoch, batch.base_offset))
        if not batch.has_producer_id:
            return
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        self.last_ms[producer_id] = batch.max_timestamp
        if not batch.is_control:
            last = -1
            if batch.base_sequence >= 0:
                last = increment_sequence(batch.base_sequence, batch.last_offset - batch.base_offset)
            self.producers[producer_id] = epoch, last
            self.with_data.add(producer_id)
            if batch.is_transactional:
                if self._epochs_of_open.setdefault(producer_id, epoch) != epoch:
                    self.without_marker.append((producer_id, self.open[producer_id]))
                    self._epochs_of_open[producer_id] = epoch
                self.open.setdefault(producer_id, batch.base_offset)
            return
        known = self.producers.get(producer_id)
        if known is None or known[0] != epoch:
            self.producers[producer_id] = epoch, -1
        marker = read_marker(batch) if batch.records_count else None
        if marker is None:
            return
        began = self.open.pop(producer_id, None)
        self._epochs_of_open.pop(producer_id, None)
        if began is not None and marker.control_type is ControlType.ABORT:
            self.aborted.add((producer_id, batch.base_offset))


class Logs:
    """Reads all logs after the workloads have ended."""

    name = "logs"

    def __init__(self, committed: Committed) -> None:
        self._committed = committed

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        """Yield the violations in all replicas; nothing while a disk is damaged."""
        if world.rotted:
            return ()
        return [
            f"{partition.log.name}: broker {broker.number} {what}"
            for broker in running(world)
            for partition in broker.hosted()
            if not partition.log.is_offline and not partition.log.state.is_truncating
            for what in wrong_in(partition, _expiry(world, broker), may_lack_markers=bool(self._committed.excused))
        ]


class Expiry(NamedTuple):
    """The timestamps of the last batch of a producer at which the producer may or must have expired."""

    may_be_gone_ms: float = float("-inf")
    must_be_gone_ms: float = float("-inf")


NEVER: Final = Expiry()
"""No producer may have expired."""


def _expiry(world: World, broker: Running) -> Expiry:
    """Return which producers may have expired on this broker (producer.id.expiration.ms). A producer expires only if
    the broker has seen no batch of it for so long since the log was opened, so a producer must be gone only on a broker
    that has run for longer, and whose disk has not failed. It may be late by a fraction of the limit
    (`recent_ends.ENDS`).
    """
    machine = broker.machine
    assert machine.broker is not None
    limit_ms, now_ms = machine.broker.config[PRODUCER_ID_EXPIRATION_MS], machine.clock.now_ms()
    newest = now_ms - limit_ms
    late_ms = EXPIRY_SLACK_MS + limit_ms / ENDS
    has_run_long = (world.now - machine.serves_since) * 1000 > limit_ms + late_ms
    must = newest - late_ms if has_run_long and not set(world.struck) & DISK_FAILURES else float("-inf")
    return Expiry(newest + EXPIRY_SLACK_MS, must)


def wrong_in(partition: Partition, expiry: Expiry = NEVER, *, may_lack_markers: bool = False) -> Iterator[str]:
    """Yield the stored data that contradict the log's batches. `may_lack_markers`: a power cut has destroyed committed
    records, perhaps including markers and the coordinators' state about them.
    """
    log = partition.log
    walked = _walk(partition)
    if walked is None:
        yield "cannot be read"
        return
    # The log may begin in the middle of its first batch, and offsets below its start cannot be read.
    start = log.log_start_offset
    is_whole = start == 0 and not log.config.is_compacted and log.state.cleaner_checkpoint is None
    yield from _wrong_producers(partition, walked, expiry, is_whole=is_whole)
    indexed = {(each.producer_id, each.last_offset) for each in log.producers.aborted.all()}
    if is_whole and indexed != walked.aborted:
        yield f"has in its index the aborted transactions {sorted(indexed)}, in its batches {sorted(walked.aborted)}"
    for producer_id, began_at in () if may_lack_markers else walked.without_marker:
        yield f"has a transaction of producer {producer_id} since {began_at} without a marker"
    for epoch, offset in walked.epochs:
        noted = log.leader_epochs.epoch_for_offset(max(offset, start))
        if epoch >= 0 and noted != epoch:
            yield f"notes leader epoch {noted} for offset {offset}, whose batch has {epoch}"
    for offset in walked.offsets[:: max(1, len(walked.offsets) // MOST_READS)]:
        with unnoticed():
            view = log.reader.read(max(offset, start), 1, upper_bound=log.log_end_offset, min_one_batch=True)
        first = next(iter(batches(bytes(view))), None)
        if first is None or first.base_offset != offset:
            yield f"reads another batch than the one at offset {offset}"
    if is_whole:
        yield from _wrong_times(partition, walked)


def _wrong_times(partition: Partition, walked: Walked) -> Iterator[str]:
    """Yield the timestamps for which a search finds another batch than reading all batches does."""
    log = partition.log
    for timestamp, _, _ in walked.times[:: max(1, len(walked.times) // MOST_READS)]:
        first, last = next((first, last) for most, first, last in walked.times if most >= timestamp)
        with unnoticed():
            found = run_steps(log.reader.offset_for_timestamp(timestamp, upper_bound=log.log_end_offset))
        if found is None or not first <= found.offset <= last:
            yield f"finds {found} for the timestamp {timestamp}, which occurs first in the batch at {first}"


def _wrong_producers(partition: Partition, walked: Walked, expiry: Expiry, *, is_whole: bool) -> Iterator[str]:
    start = partition.log.log_start_offset
    known = {each.producer_id: each for each in partition.log.producers.state.producers()}
    for producer_id, (epoch, last) in walked.producers.items():
        state = known.get(producer_id)
        last_ms = walked.last_ms[producer_id]
        if state is None and last_ms <= expiry.may_be_gone_ms and producer_id not in walked.open:
            continue
        if state is None:
            yield f"does not know producer {producer_id}, which has written or ended something"
        elif last_ms < expiry.must_be_gone_ms and producer_id not in walked.open:
            yield f"still knows producer {producer_id}, whose last batch has the timestamp {last_ms}"
        elif state.epoch != epoch:
            yield f"knows producer {producer_id} in epoch {state.epoch}, whose last batch has {epoch}"
        elif producer_id in walked.with_data and is_whole and state.last_sequence != last:
            yield f"knows sequence {state.last_sequence} of producer {producer_id}, whose last one is {last}"
    still_open = {each: state.transaction_first_offset for each, state in known.items()}
    for producer_id, state_first in still_open.items():
        first = walked.open.get(producer_id, -1)
        if state_first == first or 0 <= state_first < start or max(state_first, first) < start:
            continue  # the batches with which a transaction began may be deleted
        if is_whole or first >= 0 or state_first >= 0:
            yield f"has a transaction of producer {producer_id} open since {state_first}; its batches say {first}"


def _walk(partition: Partition) -> Walked | None:
    log, walked = partition.log, Walked()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            with unnoticed():
                view = log.reader.read(offset, READ_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
            found = list(batches(bytes(view)))
        except (KafkaError, CorruptBatch, OSError):
            return None
        if not found:
            return None
        for batch in found:
            if batch.next_offset > offset:
                walked.take(batch)
        offset = found[-1].next_offset
    return walked
