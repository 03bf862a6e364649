"""Measures what one live broker needs for each partition, connection, transactional id and member, and what it writes
to the disk for each record: the figures of docs/guides/sizing.md.

Implements the part `sizing` of `run.py`; `kept.py` writes the stored figures into the guide.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import broker_cost as cost
import psutil
from broker_process import BrokerProcess
from groups import groups_cost
from raw import RawClient, prepared
from table import Add
from transaction_load import GROUP, Batch, RawProducer, find_coordinator, one_after_another

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.produce import ProduceRequest

IDLE_SECONDS: Final = 5.0
TOPIC_PARTITIONS: Final = 500
"""Partitions of each of the topics under test."""
WINDOW: Final = 16
API_VERSIONS_VERSION, INIT_VERSION, OFFSET_FETCH_VERSION, FIND_VERSION = 3, 4, 5, 3


def measure(add: Add, scale: int) -> None:
    """Measure the whole part; the amount of work is divided by `scale`."""
    with tempfile.TemporaryDirectory() as directory:
        partitions(add, Path(directory) / "partitions", 4000 // scale)
        with (
            BrokerProcess(Path(directory) / "data") as broker,
            contextlib.closing(RawClient(broker.port)) as client,
        ):
            connections(add, broker, 500 // scale)
            producers(add, client, broker.pid, 10_000 // scale)
            members(add, client, broker.pid, 2000 // scale)
            requests(add, client, broker.pid, 5000 // scale)
            disk(add, client, broker, 1000 // scale)


# --- partitions


def partitions(add: Add, data: Path, count: int) -> None:
    """Measure `count` partitions of a broker without a cluster: memory, open files, idle CPU, and starts."""
    broker = BrokerProcess(data)
    with broker:
        spent_at_start = cost.cpu_seconds(broker.pid)
        add("an empty broker: start", spent_at_start, "CPU s")
        add("an empty broker: memory", cost.resident_megabytes(broker.pid), "MB")
        idle_without = idle_cpu(broker.pid)
        add("an empty broker: idle", idle_without * 1e6, "CPU us/s")
        memory, files = cost.resident_megabytes(broker.pid), open_files(broker.pid)
        with contextlib.closing(RawClient(broker.port)) as client:
            spent = cost.measured(broker.pid, lambda: (_create(client, count), 0))
            add("an empty partition: memory", (cost.resident_megabytes(broker.pid) - memory) / count * 1000, "KB")
            add("an empty partition: open files", (open_files(broker.pid) - files) / count, "files")
            add("an empty partition: its creation", spent.cpu_us_per_request, "CPU us")
            idle = (idle_cpu(broker.pid) - idle_without) / count * 1e6
            add("an idle partition of a broker without a cluster", idle, "CPU us/s")
            _fill(client, count)
            resident = (cost.resident_megabytes(broker.pid) - memory) / count * 1000
            add("a partition with a record: memory", resident, "KB")
            add("a partition with a record: open files", (open_files(broker.pid) - files) / count, "files")
    for what in ("start after a clean stop", "start after kill -9, with a new record in each"):
        broker.start()
        spent_more = cost.cpu_seconds(broker.pid) - spent_at_start
        add(f"a partition with a record: {what}", spent_more / count * 1e6, "CPU us")
        with contextlib.closing(RawClient(broker.port)) as client:
            _fill(client, count)
        broker.kill()


def _create(client: RawClient, count: int) -> int:
    """Create topics with `count` partitions together; returns when the last partition has a leader."""
    for first in range(0, count, TOPIC_PARTITIONS):
        cost.create_topic(client, f"sizing-{first}", min(TOPIC_PARTITIONS, count - first))
    _list_offsets(client, count)
    return count


def _topics(count: int) -> Iterator[tuple[str, int]]:
    for first in range(0, count, TOPIC_PARTITIONS):
        yield f"sizing-{first}", min(TOPIC_PARTITIONS, count - first)


def _list_offsets(client: RawClient, count: int) -> None:
    """Wait until each partition has a leader."""
    wanted = ListOffsetsRequest.ListOffsetsTopic
    for name, partitions in _topics(count):
        each = [wanted.ListOffsetsPartition(partition_index=n, timestamp=LATEST_TIMESTAMP) for n in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name=name, partitions=each)])
        deadline = time.monotonic() + cost.LEADER_SECONDS
        while time.monotonic() < deadline:
            answer = client.call(request, ApiKey.LIST_OFFSETS, cost.LIST_OFFSETS_VERSION)
            if not any(partition.error_code for partition in answer.topics[0].partitions):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{name} has partitions without a leader")


def _fill(client: RawClient, count: int) -> None:
    """Write a record to each partition."""
    data, batch = ProduceRequest.TopicProduceData, cost.batch(100, 100)
    for name, partitions in _topics(count):
        each = [data.PartitionProduceData(index=index, records=batch) for index in range(partitions)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name=name, partition_data=each)])
        answer = client.call(request, ApiKey.PRODUCE, cost.PRODUCE_VERSION)
        if any(partition.error_code for partition in answer.responses[0].partition_responses):
            raise RuntimeError(f"a record for {name} was refused")


# --- connections, producers, members


def connections(add: Add, broker: BrokerProcess, count: int) -> None:
    """Measure connections that have sent one request, and send no more."""
    idle_without, memory = idle_cpu(broker.pid), cost.resident_megabytes(broker.pid)
    clients: list[RawClient] = []
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")

    def connect() -> tuple[int, int]:
        for _ in range(count):
            clients.append(RawClient(broker.port))
            clients[-1].call(request, ApiKey.API_VERSIONS, API_VERSIONS_VERSION)
        return count, 0

    spent = cost.measured(broker.pid, connect)
    add("a connection: memory", (cost.resident_megabytes(broker.pid) - memory) / count * 1000, "KB")
    add("a connection: accepting it, and ApiVersions", spent.cpu_us_per_request, "CPU us")
    add("an idle connection", (idle_cpu(broker.pid) - idle_without) / count * 1e6, "CPU us/s")
    for client in clients:
        client.close()


def producers(add: Add, client: RawClient, pid: int, count: int) -> None:
    """Measure transactional ids whose producers have begun no transaction."""
    find_coordinator(client, "sizing", 1)
    frames = [
        prepared(
            InitProducerIdRequest(transactional_id=f"sizing-{number}", transaction_timeout_ms=60_000),
            ApiKey.INIT_PRODUCER_ID,
            INIT_VERSION,
        )
        for number in range(count)
    ]
    memory = cost.resident_megabytes(pid)
    spent = cost.measured(pid, lambda: _answered(client, frames))
    add("a transactional id: memory", (cost.resident_megabytes(pid) - memory) / count * 1000, "KB")
    add("InitProducerId of a new transactional id", spent.cpu_us_per_request, "CPU us")


def members(add: Add, client: RawClient, pid: int, count: int) -> None:
    """Measure groups with one member each."""
    spent = groups_cost(client, pid, count, count * 5)
    add("a group with one member and one offset: memory", spent.kilobytes_per_group, "KB")
    add("a member joins a group of its own (JoinGroup twice, SyncGroup)", spent.join_us, "CPU us")
    add("Heartbeat", spent.heartbeat_us, "CPU us")
    add("OffsetCommit of one partition", spent.commit_us, "CPU us")


# --- requests


def requests(add: Add, client: RawClient, pid: int, count: int) -> None:
    """Measure requests of several kinds, WINDOW of them in flight, and produce and fetch."""
    cost.create_topic(client, "many", 100)
    topics = MetadataRequest.MetadataRequestTopic
    offsets = ListOffsetsRequest.ListOffsetsTopic
    latest = offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)
    fetched = OffsetFetchRequest.OffsetFetchRequestTopic
    kinds: dict[str, tuple[Any, ApiKey, int]] = {
        "ApiVersions": (
            ApiVersionsRequest(client_software_name="bench", client_software_version="1"),
            ApiKey.API_VERSIONS,
            API_VERSIONS_VERSION,
        ),
        "Metadata of a topic with 100 partitions": (
            MetadataRequest(topics=[topics(name="many")]),
            ApiKey.METADATA,
            cost.METADATA_VERSION,
        ),
        "ListOffsets of one partition": (
            ListOffsetsRequest(replica_id=-1, topics=[offsets(name="many", partitions=[latest])]),
            ApiKey.LIST_OFFSETS,
            cost.LIST_OFFSETS_VERSION,
        ),
        "FindCoordinator": (FindCoordinatorRequest(key="group-1"), ApiKey.FIND_COORDINATOR, FIND_VERSION),
        "OffsetFetch of one partition": (
            OffsetFetchRequest(group_id="group-1", topics=[fetched(name="groups", partition_indexes=[0])]),
            ApiKey.OFFSET_FETCH,
            OFFSET_FETCH_VERSION,
        ),
        "InitProducerId without a transactional id": (
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            ApiKey.INIT_PRODUCER_ID,
            INIT_VERSION,
        ),
    }
    for name, (request, api, version) in kinds.items():
        frame = prepared(request, api, version)
        add(name, _best(lambda frame=frame: _answered(client, [frame] * count), pid), "CPU us")
    cost.recycled_topic(client, "sizing")
    for what, size, records in (("1 record of 100 B", 100, 100), ("a batch of 16 KB", 16_384, 1000)):
        batch = cost.batch(size, records)
        frame = cost.produce_request("sizing", batch)
        spent = min(
            cost.produce_cost(client, pid, frame, len(batch), count, WINDOW).cpu_us_per_request for _ in range(3)
        )
        add(f"Produce of {what}", spent, "CPU us")
    frames, total = cost.readable_log(client, "read", cost.batch(65_536, 1000))
    spent = min(cost.fetch_cost(client, pid, frames, total, 2).cpu_us_per_request for _ in range(3))
    add("Fetch of 1 MB", spent, "CPU us")


def _best(work: Callable[[], tuple[int, int]], pid: int) -> float:
    """Return the least CPU for each request of three rounds, because other processes can only make a round worse."""
    return min(cost.measured(pid, work).cpu_us_per_request for _ in range(3))


def _answered(client: RawClient, frames: list[bytes]) -> tuple[int, int]:
    for _ in client.pipeline_all(frames, WINDOW):
        pass
    return len(frames), 0


# --- the disk


def disk(add: Add, client: RawClient, broker: BrokerProcess, count: int) -> None:
    """Measure the bytes in the logs for records, commits and transactions."""
    cost.create_topic(client, "written")
    for records, what in ((1, "alone in its batch"), (15, "of 15 in a batch")):
        before = log_bytes(broker.data, "written-")
        batch = Batch(records, 1000)
        producer = RawProducer(client, "written", [0], batch, 0)
        _answered(client, [producer.produce() for _ in range(count)])
        written = log_bytes(broker.data, "written-") - before
        add(f"a record of 1,000 B {what}: bytes in the log", written / count / records, "B")
    find_coordinator(client, "sizing", GROUP)
    committing = RawProducer(client, "written", [0], Batch(1, 100), 0, group="sizing")
    before = log_bytes(broker.data, "__consumer_offsets-")
    _answered(client, [committing.commit_offset() for _ in range(count)])
    written = log_bytes(broker.data, "__consumer_offsets-") - before
    add("OffsetCommit of one partition: bytes in the log", written / count, "B")
    producer = RawProducer(client, "written", [0], Batch(1, 100), 2, "sizing-disk")
    logs = {"its partition": "written-", "__transaction_state": "__transaction_state-"}
    sizes = {name: log_bytes(broker.data, prefix) for name, prefix in logs.items()}
    spent = cost.measured(broker.pid, lambda: (_ended(client, producer, count), 0))
    add("a transaction of one record (V2: Produce, EndTxn)", spent.cpu_us_per_request, "CPU us")
    for name, prefix in logs.items():
        written = log_bytes(broker.data, prefix) - sizes[name]
        add(f"a transaction with one record of 100 B: bytes in {name}", written / count, "B")


def _ended(client: RawClient, producer: RawProducer, count: int) -> int:
    return len(one_after_another(client, [producer.transaction() for _ in range(count)]))


def log_bytes(data: Path, prefix: str) -> int:
    """Return the bytes of all records in the partitions whose names begin with `prefix`."""
    return sum(file.stat().st_size for file in data.glob(f"{prefix}*/*.log"))


# --- the process


def idle_cpu(pid: int) -> float:
    """Return the CPU seconds of a process in each second in which no client sends anything."""
    time.sleep(1)
    before, began = cost.cpu_seconds(pid), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (cost.cpu_seconds(pid) - before) / (time.perf_counter() - began)


def open_files(pid: int) -> int:
    return int(psutil.Process(pid).num_fds())
