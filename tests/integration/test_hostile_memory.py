"""What hostile connections, however many, can take of a broker's memory: the budgets, and a little for each of them."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from raw_client import FETCH_VERSION, PRODUCE_VERSION, RawClient, frame, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

MB = 1024**2
REQUEST_BUDGET = 8 * MB
ANSWER_BUDGET = 8 * MB
LARGEST_REQUEST = 4 * MB
PER_CONNECTION = 150_000
"""Its first buffer, unread answers below the high water mark, objects."""
SLACK = 12 * MB
"""What the broker takes for its own work, and one answer that is made before it is counted."""
PARTITIONS = 50
RECORD = 110_000
"""Small enough to be copied when it is read."""
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 5))
QUIET_ROUNDS = 20
ROUND_SECONDS = 0.02
OF_EACH_KIND = 10
"""Connections from each address."""


def anonymous_bytes(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


class Hostile:
    """Connections that send what they are told, as far as the broker takes it, and read nothing."""

    def __init__(self, port: int, opened: ExitStack) -> None:
        self._port = port
        self._opened = opened
        self._left: dict[socket.socket, memoryview] = {}

    def connect(self, address: str, data: bytes) -> None:
        client = self._opened.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.bind((address, 0))
        client.connect(("127.0.0.1", self._port))
        client.setblocking(False)
        self._left[client] = memoryview(data)

    def press_on(self) -> int:
        """How many bytes more are taken."""
        taken = 0
        for client, left in self._left.items():
            try:
                while left:
                    sent = client.send(left)
                    left = left[sent:]
                    taken += sent
            except (BlockingIOError, ConnectionError):
                pass
            self._left[client] = left
        return taken


def fetch_of_all(topic: str) -> bytes:
    asked = FetchRequest.FetchTopic
    partitions = [
        asked.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=RECORD + 1000)
        for index in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=2**30, topics=[asked(topic=topic, partitions=partitions)]
    )
    return frame(request, ApiKey.FETCH, FETCH_VERSION)


def settings_explained(topic: str) -> bytes:
    """Some 500 bytes that are answered with some ten thousand."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return frame(request, ApiKey.DESCRIBE_CONFIGS, 4)


def batch(size: int) -> bytearray:
    return build_batch([Record(0, 1_700_000_000_000, None, b"v" * size, [])], compression=Compression.NONE)


def write(honest: RawClient) -> None:
    answer = honest.call(produce_request("t", 0, batch(300_000)), ApiKey.PRODUCE, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.measured
@pytest.mark.parametrize("beside_an_honest_one", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_n_hostile_connections_take_the_budgets_and_little_more(tmp_path: Path, beside_an_honest_one: bool) -> None:
    """It is over when the broker has neither read nor kept more for a while. In a soak an honest client needs what they
    hold: it waits until some of them are cut off, and others come in their place."""
    settings = {
        "queued.max.request.bytes": str(REQUEST_BUDGET),
        "queued.max.response.bytes": str(ANSWER_BUDGET),
        "socket.request.max.bytes": str(LARGEST_REQUEST),
    }
    with BrokerProcess(tmp_path / "data", settings) as broker, ExitStack() as opened, RawClient(broker.port) as honest:
        honest.create_topic("t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            honest.call(produce_request("t", index, batch(RECORD)), ApiKey.PRODUCE, PRODUCE_VERSION)
        before = anonymous_bytes(broker)
        hostile = Hostile(broker.port, opened)
        upload = frame(produce_request("t", 0, batch(LARGEST_REQUEST - 1000)), ApiKey.PRODUCE, PRODUCE_VERSION)
        for address in ADDRESSES:
            for _ in range(OF_EACH_KIND):
                hostile.connect(address, upload[: -MB // 2])
                hostile.connect(address, fetch_of_all("t"))
                hostile.connect(address, settings_explained("t") * 200)
        most = quiet_rounds = 0
        while quiet_rounds < QUIET_ROUNDS:
            taken = hostile.press_on()
            if beside_an_honest_one:
                write(honest)
            kept = anonymous_bytes(broker)
            quiet_rounds = 0 if taken or kept > most else quiet_rounds + 1
            most = max(most, kept)
            time.sleep(ROUND_SECONDS)
        connections = 3 * OF_EACH_KIND * len(ADDRESSES)
        allowed = REQUEST_BUDGET + LARGEST_REQUEST + ANSWER_BUDGET + connections * PER_CONNECTION + SLACK
        assert most - before < allowed, f"{(most - before) // MB} MB taken, {allowed // MB} MB allowed"
