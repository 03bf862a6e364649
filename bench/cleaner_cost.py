"""Measures the cost of compaction for the broker, and the delay that it causes for other requests.

A topic is filled while its cleanup policy is `delete`, and then becomes compacted, so the cleaner starts when the
measurement begins. The log is a series of closed segments; its size after the cleaning is read from its files.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from broker_cost import check_produced, cpu_seconds, create_topic, produce_request
from broker_process import BrokerProcess
from raw import RawClient, prepared

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

RECORDS_PER_BATCH = 1000
VALUE_BYTES = 30
SEGMENT_BYTES = 1 << 20
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "200", "auto.create.topics.enable": "false"}
PING_PAUSE_SECONDS = 0.001
SEED = 10_000
TIMEOUT_SECONDS = 120
TOPIC_RESOURCE = 2
SET = 0


@dataclass
class Cleaning:
    """The result of one cleaning: its cost for the broker, the remaining fraction of bytes, and the delay of other
    requests.
    """

    cpu_seconds: float
    seconds: float
    left: float
    slowest_ms: float
    p999_ms: float
    slowest_idle_ms: float
    longest_stall_ms: float


def measured_cleaning(client: RawClient, broker: BrokerProcess, topic: str, records: int, keys: int) -> Cleaning:
    """Fill `topic`, make it compacted, and wait until the broker's log file reports that the topic is cleaned, and how
    long the longest slice of this work was.
    """
    line = re.compile(rf"compacted partition={topic}-0 .* longest_slice_ms=([\d.]+)")
    create_topic(client, topic, **{"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "0"})
    fill(client, topic, records, keys)
    directory = broker.data / f"{topic}-0"
    size = log_bytes(directory)
    cpu, started = cpu_seconds(broker.pid), time.perf_counter()
    set_config(client, topic, "cleanup.policy", "compact")
    answers = []
    while (found := line.search(broker.log.read_text())) is None:
        answers.append(ping(client))
        if time.perf_counter() - started > TIMEOUT_SECONDS:
            raise RuntimeError(f"not compacted after {TIMEOUT_SECONDS} s; the broker's log: {broker.log}")
    seconds, spent = time.perf_counter() - started, cpu_seconds(broker.pid) - cpu
    # The cost of the same pings without a cleaning is subtracted.
    cpu, started = cpu_seconds(broker.pid), time.perf_counter()
    idle = [ping(client) for _ in answers]
    idle_cpu_per_ping = (cpu_seconds(broker.pid) - cpu) / len(answers)
    answers.sort()
    return Cleaning(
        cpu_seconds=spent - idle_cpu_per_ping * len(answers),
        seconds=seconds,
        left=log_bytes(directory) / size,
        slowest_ms=answers[-1] * 1000,
        p999_ms=answers[int(len(answers) * 0.999)] * 1000,
        slowest_idle_ms=max(idle) * 1000,
        longest_stall_ms=float(found[1]),
    )


def fill(client: RawClient, topic: str, records: int, keys: int) -> None:
    rng = random.Random(SEED)
    now = time.time_ns() // 1_000_000
    for first in range(0, records, RECORDS_PER_BATCH):
        batch = build_batch(
            [
                Record(0, now, b"key-%08d" % rng.randrange(keys), b"%0*d" % (VALUE_BYTES, first + n), [])
                for n in range(RECORDS_PER_BATCH)
            ],
            compression=Compression.LZ4,
        )
        for frame in client.pipeline(produce_request(topic, bytes(batch)), 1, 1):
            check_produced(frame)


def ping(client: RawClient) -> float:
    """Return the seconds until the response to a request that needs only the event loop."""
    started = time.perf_counter()
    client.socket.sendall(PING)
    client.read_frame()
    taken = time.perf_counter() - started
    time.sleep(PING_PAUSE_SECONDS)
    return taken


def set_config(client: RawClient, topic: str, key: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[
            IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
                name=key, config_operation=SET, value=value
            )
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = client.call(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    if response.responses[0].error_code:
        raise RuntimeError(f"cannot set {key}: {response.responses[0].error_message}")


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


PING = prepared(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), ApiKey.API_VERSIONS, 3)
