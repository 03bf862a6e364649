"""Random walks over two logs, which are killed at any write and compared with a model that never forgets (E16, E25, S50
to S56).

Each walk is generated from a seed. Its steps produce, commit, abort, roll, flush, delete and compact; they kill the
process or cut the power, and start again. After a start the logs must have all synced records, all known producers of
the remaining
records, and the same committed records. At the end, the walk damages files other than the records.

`make soak` runs more walks, about 40 per second. A failure prints the steps of its walk, whose seed repeats the walk
exactly.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from random import Random

import pytest
from tests.support.crashing_disk import CrashingDisk, Killed
from tests.support.log_model import (
    Known,
    Written,
    committed_records,
    consumed,
    facts_of,
    facts_of_log,
    last_stable_offset,
    producers_after,
    table_of,
)
from tests.support.storage import NOW

from oncelog_broker.log.compaction.compaction import Compaction
from oncelog_broker.log.compaction.segment_summary import cleanable_range_of
from oncelog_broker.log.config import COMPACT, LogConfig
from oncelog_broker.log.directories import data_directory
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.pending_flush import PendingFlush
from oncelog_broker.log.producers.snapshot import SnapshotCorrupt, parse_snapshot
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker
from oncelog_protocol.records.record import Record

WALKS = [range(first, first + 25) for first in range(0, 150, 25)]
SOAK = [range(first, first + 500) for first in range(150, 10_150, 500)]
STEPS = 150

EVENTS = LogConfig(
    segment_bytes=900, index_interval_bytes=150, retention_ms=500, file_delete_delay_ms=100, retention_bytes=4000
)
TABLE = dataclasses.replace(EVENTS, cleanup_policy=frozenset({COMPACT}), delete_retention_ms=300)
CONFIGS = {"events": EVENTS, "table": TABLE}
TOPIC_IDS = {"events": bytes(range(16)), "table": None}
"""Topic ids of the logs; the log of "table" was written by a release without topic ids."""

IDEMPOTENT = (1, 2)
V1 = (11, 12)
V2 = (21, 22)
BYTES_PER_KEY = 216


@pytest.fixture(autouse=True)
def two_logs_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stop sync the file system, if the disk of the walk can do this."""
    monkeypatch.setattr(data_directory, "MANY_LOGS", 1)


class Side:
    """One log, and what the model knows about the log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: PartitionLog
        self.history: list[Written] = []
        self.uncertain: Written | None = None
        """The batch whose append was interrupted, and which therefore may or may not be in the log; None if no append
        was interrupted.
        """
        self.synced = 0
        """No power cut may lose records below this offset."""
        self.flushing: PendingFlush | None = None
        self.emptied_at = 0
        """The log start at which the log continued after a power cut: the log start was on disk, but the last records
        below the log start were lost. The offset is 0 until a power cut has lost such records.
        """

    @property
    def end(self) -> int:
        return max(self.history[-1].end if self.history else 0, self.emptied_at)

    @property
    def producers(self) -> dict[int, Known]:
        return producers_after(self.history)


class Walk:
    """One random walk over both logs. `run` raises AssertionError if an invariant fails."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = CrashingDisk(self.random)
        self.disk.syncs_file_system = seed % 2 == 1
        self.clock = ManualClock(NOW)
        self.sides = [Side(name) for name in CONFIGS]
        self.counter = 0
        self.path: list[str] = []
        """The steps so far, which a failure prints."""
        self.start()

    def start(self) -> None:
        """Open both logs from the simulated disk. Raises Killed."""
        self.manager = LogManager.open(
            ["/data"],
            node_id=1,
            cluster_id="c",
            disk=self.disk,
            clock=self.clock,
            config_of=CONFIGS.__getitem__,
        )
        assert not self.manager.failures
        opening = self.manager.begin_opening([WantedLog(name, 0, TOPIC_IDS[name], CONFIGS[name]) for name in CONFIGS])
        opening.run()
        for side, log in zip(self.sides, self.manager.finish_opening(opening), strict=True):
            assert isinstance(log, PartitionLog), log
            side.log, side.flushing = log, None
            log.producers.state.on_high_watermark(log.log_end_offset)

    def run(self) -> None:
        for _ in range(STEPS):
            side = self.random.choice(self.sides)
            step = self.random.choices(ALL_STEPS, WEIGHTS)[0]
            self.path.append(f"{step.__name__} {side.name}")
            try:
                step(self, side)
                side.log.producers.state.on_high_watermark(side.log.log_end_offset)
            except Killed:
                self.come_back()
        self.disk.changes_left = None
        for side in self.sides:
            self.check(side)
        self.damage()

    # --- steps of the walk -------------------------------------------------------------------------------------------

    def pairs(self) -> tuple[tuple[bytes, bytes | None], ...]:
        self.counter += 1
        return tuple(
            (b"k%d" % self.random.randrange(12), b"%d.%d" % (self.counter, n) if self.random.random() < 0.9 else None)
            for n in range(self.random.randint(1, 4))
        )

    def append(self, side: Side, batch: Written, version: int = 0) -> None:
        """Append a batch; if the append is interrupted, remember that the batch may be in the log."""
        side.uncertain = batch
        assert self.send(side, batch, version) == batch.base
        side.history.append(batch)
        side.uncertain = None

    def send(self, side: Side, batch: Written, version: int) -> int:
        now = self.clock.now_ms()
        records = [Record(n, now, key, value, []) for n, (key, value) in enumerate(batch.pairs)]
        built = build_batch(
            records,
            producer_id=batch.pid,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            transactional=batch.transactional,
        )
        return side.log.append_as_leader(built, leader_epoch=0, transaction_version=version)[0]

    def plain(self, side: Side) -> None:
        self.append(side, Written(side.end, self.pairs()))

    def produce(self, side: Side) -> None:
        pid = self.random.choice(IDEMPOTENT + V1 + V2)
        known = side.producers.get(pid, Known())
        transactional = pid not in IDEMPOTENT
        epoch = max(known.epoch, 0)
        batch = Written(side.end, self.pairs(), pid, epoch, known.next_sequence, transactional)
        self.append(side, batch, 2 if pid in V2 else 0)

    def retry(self, side: Side) -> None:
        """Send one of the last five batches again. The log returns the old offset, unless the batch's transaction has
        ended.
        """
        sent = [(batch, known.first_offset) for known in side.producers.values() for batch in known.window]
        if sent:
            batch, first_offset = self.random.choice(sent)
            if not batch.transactional or (first_offset is not None and first_offset <= batch.base):
                assert self.send(side, batch, 0) == batch.base
            else:
                with pytest.raises(KafkaError, match=ErrorCode.UNKNOWN_PRODUCER_ID.name):
                    self.send(side, batch, 0)
            assert side.log.log_end_offset == side.end

    def skip(self, side: Side) -> None:
        """Send a batch of a known producer without the batch before, so that the sequence numbers have a gap."""
        known = {pid: producer for pid, producer in side.producers.items() if producer.window}
        if known:
            pid = self.random.choice(sorted(known))
            batch = Written(
                side.end, self.pairs(), pid, known[pid].epoch, known[pid].next_sequence + 1, pid not in IDEMPOTENT
            )
            with pytest.raises(KafkaError, match=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
                self.send(side, batch, 0)

    def end_transaction(self, side: Side) -> None:
        open_ones = {pid: known for pid, known in side.producers.items() if known.first_offset is not None}
        if not open_ones:
            return
        pid = self.random.choice(sorted(open_ones))
        known = open_ones[pid]
        outcome = self.random.choice([ControlType.COMMIT, ControlType.ABORT])
        is_fence = self.random.random() < 0.1
        epoch = known.epoch + (1 if pid in V2 or is_fence else 0)
        coordinator_epoch = max(known.coordinator_epoch, 0) + (self.random.random() < 0.1)
        marker = Written(side.end, (), pid, epoch, outcome=outcome, coordinator_epoch=coordinator_epoch)
        side.uncertain = marker
        offset = side.log.append_marker(
            EndTransactionMarker(outcome, coordinator_epoch),
            producer_id=pid,
            producer_epoch=epoch,
            leader_epoch=0,
            transaction_version=2 if pid in V2 else 0,
        )
        assert offset == marker.base
        side.history.append(marker)
        side.uncertain = None

    def roll(self, side: Side) -> None:
        side.log.trimmer.roll()

    def flush(self, side: Side) -> None:
        up_to = self.random.choice([side.log.log_end_offset, side.log.segment_base_offsets[-1]])
        side.log.flusher.flush(up_to)
        side.synced = max(side.synced, up_to)

    def begin_flush(self, side: Side) -> None:
        if side.flushing is None:
            side.flushing = side.log.flusher.prepare_flush()

    def end_flush(self, side: Side) -> None:
        if side.flushing is not None:
            side.flushing.sync()
            side.log.flusher.finish_flush(side.flushing)
            side.synced = max(side.synced, side.flushing.up_to)
            side.flushing = None

    def sync_records(self, side: Side) -> None:
        """Sync the records alone, as group commit does before it acknowledges them."""
        pending = side.log.flusher.prepare_sync()
        if pending is not None:
            pending.sync()
            side.log.flusher.finish_sync(pending)
        assert side.log.state.synced_offset == side.log.log_end_offset
        side.synced = side.log.log_end_offset

    def delete_records(self, side: Side) -> None:
        log = side.log
        log.trimmer.delete_records_before(self.random.randint(log.log_start_offset, log.log_end_offset))

    def retention(self, side: Side) -> None:
        self.clock.advance_ms(self.random.choice([0, 50, 1000]))
        side.log.trimmer.apply_retention(self.clock.now_ms())

    def purge(self, side: Side) -> None:
        self.clock.advance_ms(self.random.choice([0, 200]))
        self.manager.purge_deleted(self.clock.monotonic())

    def checkpoint(self, side: Side) -> None:
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_log_start_offsets()

    def compact(self, side: Side) -> None:
        """Compact the log as the cleaner does; other steps may run in between."""
        log, now_ms = side.log, self.clock.now_ms()
        if not log.config.is_compacted:
            return
        stable = log.reader.last_stable_offset(log.log_end_offset)
        cleanable = cleanable_range_of(log, upper_bound=stable, now_ms=now_ms)
        if cleanable.dirty_bytes == 0:
            return
        log.flusher.flush()
        self.checkpoint(side)
        side.synced = log.log_end_offset
        compaction = Compaction(
            log,
            disk=self.disk,
            first_dirty=cleanable.first_dirty,
            end=cleanable.end,
            now_ms=now_ms,
            offset_map_bytes=BYTES_PER_KEY * self.random.choice([2, 5, 1000]),
            producer_id_expiration_ms=10**12,
            all_replicas_have_it=True,
        )
        if log.state.cleaner_checkpoint is None:
            log.state.cleaner_checkpoint = cleanable.first_dirty
        self.manager.checkpoint_before_compaction(log)
        steps = compaction.steps()
        if self.random.random() < 0.3:
            for _ in range(self.random.randint(0, 20)):
                if (job := next(steps, None)) is not None:
                    steps.send(job())
            self.random.choice(MEANWHILE)(self, side)
        try:
            clean_up_to = run_steps(steps)
        except FileNotFoundError:
            return  # retention has removed a segment meanwhile, and the cleaner will try again
        if clean_up_to is not None:
            log.state.cleaner_checkpoint = clean_up_to
            self.manager.checkpoint_after_compaction(log)

    def look(self, side: Side) -> None:
        self.check(side)

    def restart(self, side: Side) -> None:
        self.manager.close()
        self.start()
        for each in self.sides:
            self.check(each)
            each.synced = each.end

    def kill_soon(self, side: Side) -> None:
        if self.disk.changes_left is None:
            self.disk.changes_left = self.random.randint(0, 25)

    # --- restarting --------------------------------------------------------------------------------------------------

    def come_back(self) -> None:
        """Start again until no kill interrupts the startup, then compare the content of the logs with the model."""
        lost_power = False
        while True:
            if self.random.random() < 0.5:
                self.disk.kill()
                self.path.append("kill")
            else:
                self.disk.cut_power()
                self.path.append("power cut")
                lost_power = True
            if self.random.random() < 0.3:
                self.disk.changes_left = self.random.randint(0, 25)
            try:
                self.start()
                break
            except Killed:
                continue
        self.disk.changes_left = None
        for side in self.sides:
            self.find_out(side, lost_power=lost_power)
            self.check(side)

    def find_out(self, side: Side, *, lost_power: bool) -> None:
        """Find out which batches the log has after the startup."""
        before, end = side.history, side.log.log_end_offset
        if side.uncertain is not None and end >= side.uncertain.end:
            before = [*before, side.uncertain]
        side.uncertain = None
        side.history = [batch for batch in before if batch.end <= end]
        assert lost_power or side.history == before, "a kill loses nothing"
        assert end >= side.synced
        log = side.log
        if side.end != end or (lost_power and log.log_start_offset == end and log.size_bytes == 0):
            self.find_out_what_was_lost_below_the_start(side)

    def find_out_what_was_lost_below_the_start(self, side: Side) -> None:
        log = side.log
        assert (log.log_start_offset, log.size_bytes) == (log.log_end_offset, 0)
        side.emptied_at = log.log_end_offset
        known = facts_of_log(log)
        while facts_of(side.producers) != known:
            assert side.history and side.history[-1].base >= side.synced
            side.history.pop()

    # --- invariants --------------------------------------------------------------------------------------------------

    def check(self, side: Side) -> None:
        log = side.log
        assert log.log_end_offset == side.end
        assert facts_of_log(log) == facts_of(side.producers)
        stable = last_stable_offset(side.history, log.log_start_offset, side.end)
        assert log.reader.last_stable_offset(side.end) == stable
        self.check_shown(side, stable)

    def check_shown(self, side: Side, stable: int) -> None:
        log = side.log
        shown = consumed(log, stable, self.random.choice([1, 300, 5000]))
        wanted = committed_records(side.history, log.log_start_offset, stable)
        if log.config.is_compacted:
            assert not set(shown) - set(wanted), "shown, though not committed"
            assert table_of(shown) == table_of(wanted)
        else:
            assert shown == wanted

    def damage(self) -> None:
        """Stop, damage files other than the records, and start. The producer state must follow from the records and the
        intact snapshots, and must contain nothing that is false.
        """
        if self.random.random() < 0.5:
            self.manager.close()
        kinds = [(".snapshot",), (".window",), (".txnindex",), (".index",), (".timeindex",)]
        for _ in range(self.random.randint(1, 5)):
            paths = self.disk.paths(*self.random.choice(kinds))
            if paths:
                path = self.random.choice(paths)
                self.path.append(f"damage {path}")
                # The test damages a transaction index only by cutting off its end, because Kafka's format has neither a
                # count nor a CRC that would reveal other damage.
                self.disk.damage(path, only_torn=path.endswith(".txnindex"))
        left = {side.name: self.snapshots(side) for side in self.sides}
        self.start()
        for side in self.sides:
            log = side.log
            first = log.segment_base_offsets[0]
            found = max((offset for offset in left[side.name] if first <= offset <= side.end), default=None)
            history = side.history if found is not None else [b for b in side.history if b.base >= first]
            known, wanted = facts_of_log(log), facts_of(producers_after(history))
            compare_after_damage(known, wanted, is_compacted=log.config.is_compacted)
            self.check_shown(side, min(log.reader.last_stable_offset(side.end), log.log_end_offset))

    def snapshots(self, side: Side) -> list[int]:
        """Return the offsets of the intact producer snapshots of this log."""
        found = []
        for path in self.disk.paths(".snapshot"):
            if path.startswith(f"/data/{side.name}-0/"):
                try:
                    parse_snapshot(self.disk.read_file(path))
                    found.append(int(os.path.basename(path)[:20]))
                except SnapshotCorrupt:
                    pass
        return found


def compare_after_damage(
    known: dict[int, tuple[object, ...]], wanted: dict[int, tuple[object, ...]], *, is_compacted: bool
) -> None:
    """Check that the last batch of each producer is known, and that no fact about earlier batches or transactions is
    wrong.
    """
    for pid, (epoch, _, first_offset, window) in wanted.items():
        if pid not in known:
            assert is_compacted, pid
            continue
        found_epoch, _, found_first_offset, found_window = known[pid]
        assert found_first_offset == first_offset, pid
        if found_epoch != epoch:
            # The producer epoch came from a marker that compaction removed, so the epoch was stored only in the
            # snapshot that is now damaged.
            assert is_compacted, pid
            continue
        assert found_window[:1] == window[:1] or is_compacted, pid
        # If compaction removed some of the producer's last batches, the window of known batches may contain older
        # batches in their place.
        assert set(found_window) <= set(window) or is_compacted, pid
    assert known.keys() <= wanted.keys()


Step = Callable[[Walk, Side], None]
STEP_WEIGHTS: dict[Step, int] = {
    Walk.plain: 6,
    Walk.produce: 24,
    Walk.retry: 5,
    Walk.skip: 1,
    Walk.end_transaction: 20,
    Walk.roll: 7,
    Walk.flush: 5,
    Walk.begin_flush: 3,
    Walk.end_flush: 4,
    Walk.sync_records: 6,
    Walk.delete_records: 2,
    Walk.retention: 2,
    Walk.purge: 2,
    Walk.checkpoint: 3,
    Walk.compact: 14,
    Walk.look: 3,
    Walk.restart: 1,
    Walk.kill_soon: 3,
}
ALL_STEPS, WEIGHTS = list(STEP_WEIGHTS), list(STEP_WEIGHTS.values())
MEANWHILE: list[Step] = [
    Walk.produce,
    Walk.end_transaction,
    Walk.roll,
    Walk.flush,
    Walk.sync_records,
    Walk.delete_records,
    Walk.checkpoint,
]


@pytest.mark.parametrize("seeds", [*WALKS, *(pytest.param(seeds, marks=pytest.mark.soak) for seeds in SOAK)], ids=str)
def test_e16_e25_producers_and_transactions_survive_whatever_the_log_survives(seeds: range) -> None:
    for seed in seeds:
        walk = Walk(seed)
        try:
            walk.run()
        except BaseException as error:
            error.add_note(f"in walk {seed}: {'; '.join(walk.path)}")
            raise
