"""Tests how much memory of the broker hostile connections can use in total: the budgets, plus a little for each
connection.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from hostile.logins import AUTHORITY
from hostile.logins import SETTINGS as SECURED
from hostile.scene import read_away
from raw_client import FETCH_VERSION, PRODUCE_VERSION, RawClient, frame, produce_request

from oncelog_broker.server.net.tls_transport import UNCOUNTED_BYTES
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
"""Bytes that each connection may use: its first buffer, unread responses below the high-water mark, and objects."""
PER_TLS_CONNECTION = PER_CONNECTION + 30_000 + UNCOUNTED_BYTES
"""Bytes that each TLS connection may use: its first buffer, unread responses, objects, and OpenSSL's state with the
bytes in it.
"""
SLACK = 12 * MB
"""Bytes that the broker may use for its own work, and for one response that is built before it is counted."""
PARTITIONS = 50
RECORD = 110_000
"""The size of a record in bytes, small enough that the broker copies the record when reading it."""
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 5))
QUIET_ROUNDS = 20
ROUND_SECONDS = 0.02
OF_EACH_KIND = 10
"""How many connections of each kind come from each address."""
OF_EACH_KIND_WITH_TLS = 20
"""The number of TLS connections of each kind from each address, which is so high that the additional memory of TLS
connections is measurable.
"""


def anonymous_bytes(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


SENT_AT_ONCE = 64 * 1024
"""If the socket has not accepted some TLS bytes, exactly the same bytes must be sent again, so the data are sent in
pieces of this size.
"""


class Hostile:
    """Connections that send as many bytes as the broker accepts, and read no response."""

    def __init__(
        self, port: int, opened: ExitStack, tls: ssl.SSLContext | None = None, first: bytes | None = None
    ) -> None:
        """`first` is a request that each connection sends first, and whose response it reads."""
        self._port = port
        self._opened = opened
        self._tls = tls
        self._first = first
        self._left: dict[socket.socket, memoryview] = {}

    def connect(self, address: str, data: bytes) -> None:
        client = socket.socket()
        client.bind((address, 0))
        client.connect(("127.0.0.1", self._port))
        if self._tls is not None:
            client = self._tls.wrap_socket(client, server_hostname="localhost")
        self._opened.enter_context(client)
        if self._first is not None:
            client.sendall(self._first)
            read_away(client)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        self._left[client] = memoryview(data)

    def press_on(self) -> int:
        """Send more bytes on all connections, and return how many bytes were accepted."""
        taken = 0
        for client, left in self._left.items():
            try:
                while left:
                    sent = client.send(left[:SENT_AT_ONCE])
                    left = left[sent:]
                    taken += sent
            except (BlockingIOError, ConnectionError, ssl.SSLError):
                pass
            self._left[client] = left
        return taken


def fetch_of_all(topic: str, max_bytes: int = 2**30) -> bytes:
    asked = FetchRequest.FetchTopic
    partitions = [
        asked.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=RECORD + 1000)
        for index in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[asked(topic=topic, partitions=partitions)]
    )
    return frame(request, ApiKey.FETCH, FETCH_VERSION)


def settings_explained(topic: str) -> bytes:
    """Return a request of some 500 bytes whose response has some ten thousand bytes."""
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
@pytest.mark.parametrize("with_tls", [False, True])
def test_n_hostile_connections_take_the_budgets_and_little_more(
    tmp_path: Path, with_tls: bool, beside_an_honest_one: bool
) -> None:
    """The test ends when the broker has neither read more bytes nor allocated more memory for a while. In a soak an
    honest client needs the same memory, and waits until the broker disconnects some hostile connections; these then
    connect again.
    """
    settings = {
        **(SECURED if with_tls else {}),
        "queued.max.request.bytes": str(REQUEST_BUDGET),
        "queued.max.response.bytes": str(ANSWER_BUDGET),
        "socket.request.max.bytes": str(LARGEST_REQUEST),
    }
    with BrokerProcess(tmp_path / "data", settings) as broker, ExitStack() as opened, RawClient(broker.port) as honest:
        honest.create_topic("t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            honest.call(produce_request("t", index, batch(RECORD)), ApiKey.PRODUCE, PRODUCE_VERSION)
        anonymous = anonymous_bytes(broker)
        hostile = Hostile(broker.port, opened)
        if with_tls:
            port = int(re.findall(r"127\.0\.0\.1:(\d+)", broker.start_line)[1])
            context = ssl.create_default_context(cadata=AUTHORITY.pem)
            hostile = Hostile(port, opened, context, fetch_of_all("t", MB // 2))
        upload = frame(produce_request("t", 0, batch(LARGEST_REQUEST - 1000)), ApiKey.PRODUCE, PRODUCE_VERSION)
        of_each_kind = OF_EACH_KIND_WITH_TLS if with_tls else OF_EACH_KIND
        for address in ADDRESSES:
            for _ in range(of_each_kind):
                hostile.connect(address, upload[: -MB // 2])
                hostile.connect(address, fetch_of_all("t"))
                hostile.connect(address, settings_explained("t") * 2000)
        most = quiet_rounds = 0
        while quiet_rounds < QUIET_ROUNDS:
            taken = hostile.press_on()
            if beside_an_honest_one:
                write(honest)
            kept = anonymous_bytes(broker)
            quiet_rounds = 0 if taken or kept > most else quiet_rounds + 1
            most = max(most, kept)
            time.sleep(ROUND_SECONDS)
        connections = 3 * of_each_kind * len(ADDRESSES)
        each = PER_TLS_CONNECTION if with_tls else PER_CONNECTION
        allowed = REQUEST_BUDGET + LARGEST_REQUEST + ANSWER_BUDGET + connections * each + SLACK
        assert most - anonymous < allowed, f"{(most - anonymous) // MB} MB taken, {allowed // MB} MB allowed"
