"""Shared by the tests of the log: creates batches, disks that count or fail, and logs with small settings."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_protocol.records.batch import RecordBatch, batches
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record, read_records

NOW = 1_700_000_000_000
"""The initial time of a ManualClock in ms."""

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=4096)
"""Settings with about a dozen batches of `make_batch` per segment, and an index entry for every second or third batch.
"""


def make_batch(
    *values: bytes,
    timestamp: int = NOW,
    timestamps: Iterable[int] | None = None,
    key: bytes | None = b"k",
    compression: Compression = Compression.NONE,
    base_offset: int = 0,
    **header: Any,
) -> bytearray:
    """Return a batch with one record for each value. A batch with a single record has about 150 bytes."""
    values = values or (b"v" * 70,)
    times = list(timestamps) if timestamps is not None else [timestamp] * len(values)
    records = [Record(n, time, key, value, []) for n, (value, time) in enumerate(zip(values, times, strict=True))]
    return build_batch(records, compression=compression, base_offset=base_offset, **header)


def open_log(directory: Any, config: LogConfig = SMALL, **options: Any) -> PartitionLog:
    options.setdefault("disk", RealDisk())
    options.setdefault("clock", ManualClock(NOW))
    return PartitionLog.open(str(directory), topic="orders", partition=0, config=config, **options)


def append(log: PartitionLog, *values: bytes, epoch: int = 0, **options: Any) -> int:
    """Append one batch; return its base offset."""
    return log.append_as_leader(make_batch(*values, **options), leader_epoch=epoch)[0]


def fill(log: PartitionLog, count: int, *, start: int = 0, **options: Any) -> None:
    """Append `count` batches of one record each; the record values are consecutive numbers."""
    for number in range(start, start + count):
        append(log, b"%070d" % number, **options)


def contents(log: PartitionLog, *, start: int | None = None, max_bytes: int = 1000) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of all records, read as a consumer reads them."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    while view := log.reader.read(offset, max_bytes, upper_bound=log.log_end_offset, min_one_batch=True):
        for batch in batches(bytes(view)):
            assert batch.crc_is_valid()
            found += [(r.offset, r.value) for r in read_records(batch) if r.offset >= log.log_start_offset]
            offset = batch.next_offset
    return found


def locations(path: Any) -> list[RecordBatch]:
    """Return the batches in a `.log` file."""
    with open(path, "rb") as file:
        return list(batches(file.read()))


def log_files(directory: Any) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(".log"))


class CountingFile(RealFile):
    __slots__ = ("disk",)

    def read(self, position: int, size: int) -> memoryview:
        view = super().read(position, size)
        self.disk.bytes_read += len(view)
        return view

    def append(self, *buffers: Any) -> int:
        self.disk.writes += 1
        return super().append(*buffers)


class CountingDisk(RealDisk):
    """Counts the bytes read through `File.read`, and the number of writes."""

    __slots__ = ("bytes_read", "writes")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.writes = 0

    def open(self, path: str, *, create: bool = False) -> CountingFile:
        file = CountingFile(path, create=create)
        file.disk = self
        return file


class FaultyFile(RealFile):
    __slots__ = ("disk",)

    def append(self, *buffers: Any) -> int:
        fault = self.disk.append_fault
        if fault is not None and self.path.endswith(self.disk.suffix):
            if self.disk.torn_bytes:
                # Write some of the bytes without updating the File object's length, as if the process crashed during a
                # write.
                os.pwrite(self._fd, bytes(buffers[0])[: self.disk.torn_bytes], self.size)
            raise OSError(fault, os.strerror(fault))
        return super().append(*buffers)

    def sync(self) -> None:
        if self.disk.sync_fault is not None and self.path.endswith(self.disk.suffix):
            raise OSError(self.disk.sync_fault, os.strerror(self.disk.sync_fault))
        super().sync()


class FaultyDisk(RealDisk):
    """A disk on which appends or fsyncs of files with `suffix` fail while a test enables the fault."""

    __slots__ = ("append_fault", "suffix", "sync_fault", "torn_bytes")

    def __init__(self) -> None:
        self.append_fault: int | None = None
        self.sync_fault: int | None = None
        self.torn_bytes = 0
        self.suffix = ".log"

    def full(self, torn_bytes: int = 0) -> None:
        self.append_fault, self.torn_bytes = errno.ENOSPC, torn_bytes

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        file = FaultyFile(path, create=create)
        file.disk = self
        return file


class StoppedFile(RealFile):
    __slots__ = ("disk",)

    def append(self, *buffers: Any) -> int:
        if self.disk.is_stopping():
            # A killed process leaves some of the bytes that it was writing; here, the first half.
            half = b"".join(map(bytes, buffers))
            os.pwrite(self._fd, half[: len(half) // 2], self.size)
        self.disk.step()
        return super().append(*buffers)

    def truncate(self, size: int) -> None:
        self.disk.step()
        super().truncate(size)

    def sync(self) -> None:
        self.disk.step()
        super().sync()


class StoppingDisk(RealDisk):
    """A disk that permits a number of changes and refuses later ones, like the disk of a killed process."""

    __slots__ = ("changes", "stop_at")

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.changes = 0

    def is_stopping(self) -> bool:
        return self.changes == self.stop_at

    def step(self) -> None:
        if self.stop_at is not None and self.changes >= self.stop_at:
            raise OSError(errno.EIO, "the process is dead")
        self.changes += 1

    def open(self, path: str, *, create: bool = False) -> StoppedFile:
        if create and not os.path.exists(path):
            self.step()
        file = StoppedFile(path, create=create)
        file.disk = self
        return file

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if os.path.exists(path):
            self.step()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.step()
        super().sync_directory(path)

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        self.step()
        super().replace_file(path, data, is_durable=is_durable, private=private)

    def replace_files(self, contents: Mapping[str, bytes]) -> None:
        for path in contents:  # a kill leaves some of the files replaced, each of them entirely
            self.step()
            super().replace_files({path: contents[path]})
