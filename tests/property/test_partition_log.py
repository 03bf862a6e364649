"""PartitionLog behaves like a plain list under appends, reads, rolls, flushes, crashes, deletions and truncations in
any order.
"""

import dataclasses
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.storage import NOW, make_batch

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.record import read_records

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, segment_index_bytes=64)
"""The segments are so small that a segment has room for a few batches, and the indexes become full."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch in the model: the values of its records (`values`) and the timestamps of its records."""

    base_offset: int
    values: tuple[bytes, ...]
    timestamps: tuple[int, ...]
    epoch: int
    size: int

    @property
    def next_offset(self):
        return self.base_offset + len(self.values)


DELTAS = st.lists(st.integers(-50, 100), min_size=4, max_size=4)
"""Timestamps in ms for up to four records, around the time of the clock."""


class LogMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="oncelog-log-")
        self.clock = ManualClock(NOW)
        self.batches = []
        self.start = self.end = 0
        self.flushed = 0
        self.epoch = 0
        self.counter = 0
        self.log = self.open()

    def open(self, **options):
        return PartitionLog.open(
            self.directory,
            topic="orders",
            partition=0,
            config=CONFIG,
            disk=RealDisk(),
            clock=self.clock,
            **options,
        )

    def teardown(self):
        self.log.close()
        shutil.rmtree(self.directory)

    @initialize(epoch=st.integers(0, 3))
    def begin(self, epoch):
        self.epoch = epoch

    # --- steps

    @rule(count=st.integers(1, 4), size=st.integers(0, 90), deltas=DELTAS)
    def append(self, count, size, deltas):
        self.counter += 1
        values = tuple(b"%d:%d" % (self.counter, n) + b"x" * size for n in range(count))
        times = tuple(self.clock.now_ms() + delta for delta in deltas[:count])
        batch = make_batch(*values, timestamps=times)
        assert self.log.append_as_leader(batch, leader_epoch=self.epoch) == (self.end, -1)
        self.batches.append(Batch(self.end, values, times, self.epoch, len(batch)))
        self.end += count

    @rule(gap=st.integers(0, 3), count=st.integers(1, 3))
    def append_as_follower(self, gap, count):
        records = bytearray()
        for _ in range(count):
            self.counter += 1
            values, times = (b"f%d" % self.counter,), (self.clock.now_ms(),)
            batch = make_batch(*values, timestamps=times, base_offset=self.end + gap, partition_leader_epoch=self.epoch)
            self.batches.append(Batch(self.end + gap, values, times, self.epoch, len(batch)))
            self.end += gap + 1
            records += batch
        self.log.append_as_follower(records)

    @rule(ms=st.integers(1, 1000))
    def time_passes(self, ms):
        self.clock.advance_ms(ms)

    @rule()
    def new_leader(self):
        self.epoch += 1

    @rule()
    def roll(self):
        self.log.trimmer.roll()

    @rule(data=st.data())
    def flush(self, data):
        up_to = data.draw(st.sampled_from([self.end, *(b.next_offset for b in self.batches)]))
        self.log.flusher.flush(up_to)
        self.flushed = max(self.flushed, up_to)

    @rule(clean=st.booleans())
    def reopen(self, clean):
        """Reopen the log after a clean shutdown or a kill, which both lose no written record."""
        if clean:
            self.log.close()
            self.flushed = self.end
        else:
            self.log.abandon()
        self.log = self.open(recovery_point=self.flushed, log_start_offset=self.start, clean_shutdown=clean)

    @rule(lost=st.integers(1, 400), zeros=st.booleans(), indexes=st.booleans())
    def power_cut(self, lost, zeros, indexes):
        """Simulate a power cut: the end of the unflushed records is lost or overwritten with zeros, and the indexes may
        be lost.
        """
        self.log.abandon()
        # before the first append there is no segment file
        name = max((name for name in os.listdir(self.directory) if name.endswith(".log")), default=f"{0:020d}.log")
        path = os.path.join(self.directory, name)
        base = int(name[:20])
        durable = sum(b.size for b in self.batches if base <= b.base_offset and b.next_offset <= self.flushed)
        with open(path, "ab+") as file:
            file.seek(0)
            before = file.read()
        size = len(before)
        left = max(durable, size - lost)
        os.truncate(path, left)
        if zeros:
            os.truncate(path, size)
        if indexes:
            for suffix in (".index", ".timeindex"):
                if os.path.exists(path.replace(".log", suffix)):
                    os.unlink(path.replace(".log", suffix))
        kept, position = [b for b in self.batches if b.base_offset < base], 0
        for batch in self.batches:
            if batch.base_offset >= base:
                position += batch.size
                if position <= left or (zeros and not any(before[left:position])):
                    kept.append(batch)  # the batch is complete, or the lost end had consisted of zeros anyway
        self.log = self.open(recovery_point=self.flushed, log_start_offset=self.start)
        self.batches = kept
        self.end = self.log.log_end_offset
        # A gap in the offsets that a follower received is lost if the batch after the gap is lost.
        assert max(self.flushed, kept[-1].next_offset if kept else 0, self.start) <= self.end
        assert self.end in {base, self.start, self.flushed, kept[-1].next_offset if kept else 0}

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction):
        offset = self.start + int((self.end - self.start) * fraction)
        assert self.log.trimmer.delete_records_before(offset) == offset
        self.start = max(self.start, offset)

    @rule(fraction=st.floats(0, 1))
    @precondition(lambda self: self.end > self.start)
    def truncate(self, fraction):
        offset = self.start + int((self.end - self.start) * fraction)
        self.log.trimmer.truncate_to(offset)
        if offset <= self.start:
            self.batches, self.start, self.end = [], offset, offset
        elif offset < self.end:
            self.batches = [b for b in self.batches if b.next_offset <= offset]
            last = self.batches[-1].next_offset if self.batches else 0
            self.end = self.log.log_end_offset
            assert self.end in {last, self.log.segment_base_offsets[-1]}
            assert last <= self.end <= offset
        self.start = min(self.start, self.end)
        self.flushed = min(self.flushed, self.end)
        assert self.log.recovery_point <= self.end

    @rule(offset=st.integers(0, 300))
    def truncate_fully(self, offset):
        self.log.trimmer.truncate_fully_and_start_at(offset)
        self.batches, self.start, self.end, self.flushed = [], offset, offset, offset

    # --- invariants

    @rule(data=st.data(), max_bytes=st.integers(0, 1500), min_one_batch=st.booleans())
    def read(self, data, max_bytes, min_one_batch):
        offset = data.draw(st.integers(self.start, self.end))
        bound = data.draw(st.integers(self.start, self.end))
        view = self.log.reader.read(offset, max_bytes, upper_bound=bound, min_one_batch=min_one_batch)
        found = list(batches(bytes(view)))
        wanted = [b for b in self.batches if b.next_offset > offset and b.next_offset <= bound]
        assert [b.base_offset for b in found] == [b.base_offset for b in wanted[: len(found)]]
        assert len(view) <= max_bytes or (min_one_batch and len(found) == 1)
        fits = bool(wanted) and wanted[0].size <= max_bytes
        in_order = [b for b in self.batches if b.next_offset > offset][:1] == wanted[:1]
        assert bool(found) == (in_order and bool(wanted) and offset < bound and (min_one_batch or fits))

    @rule(data=st.data())
    def read_out_of_range(self, data):
        offset = data.draw(st.sampled_from([self.start - 1, self.end + 1]))
        try:
            self.log.reader.read(offset, 100, upper_bound=self.end, min_one_batch=True)
        except KafkaError as error:
            assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            raise AssertionError(f"offset {offset} was served")

    @rule(data=st.data())
    def look_up_by_time(self, data):
        times = [t for b in self.batches for t in b.timestamps] or [NOW]
        timestamp = data.draw(st.sampled_from(times)) + data.draw(st.integers(-1, 1))
        found = run_steps(self.log.reader.offset_for_timestamp(timestamp, upper_bound=self.end))
        assert (found and found[:2]) == next(
            (
                (b.base_offset + n, t)
                for b in self.batches
                for n, t in enumerate(b.timestamps)
                if t >= timestamp and b.base_offset + n >= self.start
            ),
            None,
        )

    @invariant()
    def offsets_agree(self):
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.recovery_point <= log.log_end_offset
        assert log.segment_base_offsets == sorted(set(log.segment_base_offsets))
        epochs = log.leader_epochs.entries
        assert list(epochs) == sorted(epochs)
        assert all(entry.start_offset <= self.end for entry in epochs)
        for batch in self.batches:
            if batch.base_offset >= self.start:
                assert log.leader_epochs.epoch_for_offset(batch.base_offset) == batch.epoch

    @rule()
    def contents_agree(self):
        found, offset = [], self.start
        while view := self.log.reader.read(offset, 300, upper_bound=self.end, min_one_batch=True):
            for batch in batches(bytes(view)):
                found += [(r.offset, r.value) for r in read_records(batch) if r.offset >= self.start]
                offset = batch.next_offset
        assert found == [
            (b.base_offset + n, v)
            for b in self.batches
            for n, v in enumerate(b.values)
            if b.base_offset + n >= self.start
        ]


TestLog = LogMachine.TestCase
TestLog.settings = settings(examples(30, of=60), stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow])
