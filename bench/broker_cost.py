"""Measures the cost of a request for the broker: the CPU time of its process while a raw client keeps it busy.

Touching fresh memory, including the page cache, is very expensive on virtual machines, so the working set is small and
recycled. Retention keeps the log under test to a few small segments, and a warm-up touches its pages before anything is
measured.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
from raw import RawClient, decoded, prepared

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

PRODUCE_VERSION = 9
FETCH_VERSION = 12
METADATA_VERSION = 9
CREATE_TOPICS_VERSION = 5
DELETE_TOPICS_VERSION = 5
LIST_OFFSETS_VERSION = 7
LEADER_SECONDS = 20.0
SEGMENT_BYTES = 32 << 20
RETENTION_BYTES = 32 << 20
RECYCLED = {
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.bytes": str(RETENTION_BYTES),
    "file.delete.delay.ms": "0",
    "max.message.bytes": str(4 << 20),
}
"""Settings of a topic whose log is at most one segment larger than RETENTION_BYTES."""


@dataclass(slots=True)
class Cost:
    """The cost of a load: the broker has served `requests` requests with `wire_bytes` bytes of record data in `seconds`
    seconds, and has used `cpu_seconds` of CPU for them.
    """

    requests: int
    wire_bytes: int
    seconds: float
    cpu_seconds: float

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_seconds / self.requests * 1e6

    @property
    def gb_per_cpu_second(self) -> float:
        return self.wire_bytes / self.cpu_seconds / 1e9


def cpu_seconds(pid: int) -> float:
    """Return the user and system time in seconds of all threads of a process so far, from the scheduler's own
    accounting in nanoseconds.
    """
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/schedstat") as schedstat:
            total += int(schedstat.read().split()[0])
    return total / 1e9


@contextlib.contextmanager
def pinned(pid: int, *, together: bool) -> Iterator[None]:
    """Keep the broker on one core and this process on another core; with `together`, keep both on the same core.

    On a virtual machine, waking a sleeping core costs the waking process tens of microseconds in the hypervisor. Waking
    the core is not work of the broker. The cost of a request is therefore measured with both processes on one core; the
    cost on separate cores is also shown.
    """
    cores = sorted(os.sched_getaffinity(0))
    threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    try:
        for thread in threads:
            os.sched_setaffinity(thread, {cores[0]})
        os.sched_setaffinity(0, {cores[0] if together else cores[-1]})
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


def measured(pid: int, work: Callable[[], tuple[int, int]]) -> Cost:
    """Run `work`, which returns (requests, bytes), and return its cost for the process `pid`."""
    cpu, started = cpu_seconds(pid), time.perf_counter()
    requests, wire_bytes = work()
    return Cost(requests, wire_bytes, time.perf_counter() - started, cpu_seconds(pid) - cpu)


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    ask_for_topic(client, name, partitions, **configs)
    wait_for_leader(client, name)


def ask_for_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic. Do not wait until this broker leads it, because other brokers may lead some of its partitions."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    response = client.call(CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
    if response.topics[0].error_code:
        raise RuntimeError(f"cannot create {name}: error {response.topics[0].error_code}")


def delete_topic(client: RawClient, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    answer = client.call(request, ApiKey.DELETE_TOPICS, DELETE_TOPICS_VERSION)
    if answer.responses[0].error_code:
        raise RuntimeError(f"cannot delete {name}: error {answer.responses[0].error_code}")


def wait_for_leader(client: RawClient, topic: str) -> None:
    """Wait until the broker is the leader of partition 0, which takes a moment with Apache Kafka."""
    wanted = ListOffsetsRequest.ListOffsetsTopic
    partition = wanted.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name=topic, partitions=[partition])])
    deadline = time.monotonic() + LEADER_SECONDS
    while time.monotonic() < deadline:
        answer = client.call(request, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)
        if not answer.topics[0].partitions[0].error_code:
            return
        time.sleep(0.01)
    raise RuntimeError(f"{topic} has no leader")


def recycled_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic whose log is at most one segment larger than RETENTION_BYTES."""
    create_topic(client, name, partitions, **RECYCLED, **configs)


def batch(size: int, record_bytes: int, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch of about `size` bytes on the wire, whose records have `record_bytes` of half-random text."""
    value = (bytes(range(32, 127)) * (record_bytes // 95 + 1))[:record_bytes]
    count = max(1, size // (record_bytes + 8))
    now = time.time_ns() // 1_000_000
    while True:
        made = build_batch(
            [Record(0, now, None, value[i % 50 :] + value[: i % 50], []) for i in range(count)],
            compression=compression,
        )
        if compression is Compression.NONE or len(made) >= size * 0.9:
            return bytes(made)
        count = int(count * max(1.2, size / len(made)))


def produce_request(topic: str, records: bytes, acks: int = -1) -> bytes:
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return prepared(request, ApiKey.PRODUCE, PRODUCE_VERSION)


def check_produced(frame: bytes) -> None:
    answer = decoded(frame, ApiKey.PRODUCE, PRODUCE_VERSION).responses[0].partition_responses[0]
    if answer.error_code:
        raise RuntimeError(f"produce failed: error {answer.error_code} {answer.error_message}")


def produce_cost(client: RawClient, pid: int, request: bytes, size: int, count: int, window: int) -> Cost:
    """Measure `count` prepared Produce requests with `size` bytes of record data each, `window` of them in flight."""

    def work() -> tuple[int, int]:
        frame = b""
        for frame in client.pipeline(request, count, window):
            pass
        check_produced(frame)
        return count, count * size

    return measured(pid, work)


def fetch_request(topic: str, offset: int, max_bytes: int) -> bytes:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    return prepared(request, ApiKey.FETCH, FETCH_VERSION)


def readable_log(client: RawClient, topic: str, batch: bytes) -> tuple[list[bytes], int]:
    """Fill a new topic with a log of about 16 MB; return the requests that read it, 1 MB or one batch each, and the
    total bytes.
    """
    create_topic(client, topic, **{"max.message.bytes": str(4 << 20)})
    count = max(2, (16 << 20) // len(batch))
    for frame in client.pipeline(produce_request(topic, batch), count, 4):
        check_produced(frame)
    per_request = max(1, (1 << 20) // len(batch))
    records = int.from_bytes(batch[57:61], "big")
    requests = [
        fetch_request(topic, first * records, per_request * len(batch))
        for first in range(0, count - per_request + 1, per_request)
    ]
    return requests, len(requests) * per_request * len(batch)


def fetch_cost(client: RawClient, pid: int, requests: list[bytes], total_bytes: int, rounds: int) -> Cost:
    """Measure reading the same ranges `rounds` times into one scratch buffer."""
    scratch = memoryview(bytearray(8 << 20))

    def work() -> tuple[int, int]:
        received = 0
        for _ in range(rounds):
            for request in requests:
                client.socket.sendall(request)
                received += client.skip_frame(scratch)
        if received < total_bytes * rounds:
            raise RuntimeError(f"fetched {received} bytes, expected at least {total_bytes * rounds}")
        return rounds * len(requests), total_bytes * rounds

    return measured(pid, work)


def auto_create(client: RawClient, topic: str) -> None:
    """Request metadata with auto-creation, like a producer's first request."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    answer: Any = client.call(request, ApiKey.METADATA, METADATA_VERSION)
    if answer.topics[0].error_code:
        raise RuntimeError(f"{topic} was not created: error {answer.topics[0].error_code}")


def resident_megabytes(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1e6
