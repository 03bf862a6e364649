"""Metrics of the process: CPU, memory, files, disks, free space, and the idle share of its event loop.

Linux provides these values in /proc; on other systems, unknown values are omitted.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Final

from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source

families = Families()

PAGE_BYTES: Final = resource.getpagesize()
IDLE: Final = "Idle share of the broker's request thread since the last scrape, 0 to 1."


def _of_process(kind: str, name: str, text: str, read: Callable[[], float]) -> None:
    """Declare a metric of the process, which is omitted if `read` finds no value."""
    declare = families.counter if kind == "counter" else families.gauge

    @declare(name, text)
    def sample(_: Source) -> Samples:
        try:
            yield Sample(NO_LABELS, read())
        except (OSError, ValueError, IndexError, StopIteration):
            return


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> float:
    with open("/proc/self/statm") as statm:
        return float(statm.read().split()[1]) * PAGE_BYTES


def _io_bytes(field: str) -> float:
    with open("/proc/self/io") as io:
        return next(float(line.split()[1]) for line in io if line.startswith(f"{field}:"))


_of_process("counter", "process_cpu_seconds_total", "CPU time of the broker, user and system.", _cpu_seconds)
_of_process("gauge", "process_resident_memory_bytes", "Memory, mapped files included.", _resident_bytes)


@families.gauge("process_open_fds", "Open file descriptors.")
def open_files(source: Source) -> Samples:
    if source.open_files is not None:
        yield Sample(NO_LABELS, source.open_files)


_of_process(
    "gauge",
    "process_max_fds",
    "The limit of open file descriptors.",
    lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
)
_of_process(
    "gauge",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "Bytes read from disks, not from the page cache.",
    lambda: _io_bytes("read_bytes"),
)
_of_process(
    "gauge",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "Bytes written to disks.",
    lambda: _io_bytes("write_bytes"),
)


@families.gauge(
    "oncelog_data_directory_total_bytes", "Size of the file system that a data directory is on, in bytes.", "directory"
)
def data_directory_total(source: Source) -> Samples:
    for directory, (total, _) in source.rooms.items():
        yield Sample({"directory": directory}, total)


@families.gauge(
    "oncelog_data_directory_free_bytes",
    "Bytes that the broker may still write to the file system of a data directory.",
    "directory",
)
def data_directory_free(source: Source) -> Samples:
    for directory, (_, free) in source.rooms.items():
        yield Sample({"directory": directory}, free)


@families.gauge("kafka_network_socketserver_networkprocessoravgidle_percent", IDLE)
def network_idle(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.loop.idle_fraction())


@families.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", IDLE)
def handlers_idle(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.loop.idle_fraction())
