"""Tests a limit of open files that is far too low: connections are refused, no log goes offline, and open logs leave
descriptors for connections.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

from broker_process import BrokerProcess
from raw_client import PRODUCE_VERSION, RawClient, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

OPEN_FILES = 200
CONNECTIONS = 400


def produce(client: RawClient) -> ErrorCode:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"v" * 500, [])], compression=Compression.NONE)
    answer = client.call(produce_request("orders", 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def is_refused(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_a_flood_of_connections_takes_no_log_offline(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "2000"}, open_files=OPEN_FILES)
    with broker, ExitStack() as opened, RawClient(broker.port) as client:
        client.create_topic("orders")
        flood = [opened.enter_context(socket.create_connection(("127.0.0.1", broker.port))) for _ in range(CONNECTIONS)]
        # While as many connections as possible are open, the broker must still roll segments and create topics.
        assert {produce(client) for _ in range(60)} == {ErrorCode.NONE}
        client.create_topic("another", partitions=3)
        refused = sum(map(is_refused, flood))
        assert CONNECTIONS - OPEN_FILES < refused < CONNECTIONS - OPEN_FILES // 4
    log = broker.log.read_text()
    assert "the limit of open files is much too low for max.connections" in log
    assert "offline" not in log


def test_more_partitions_than_descriptors_leave_connections_their_own(tmp_path: Path) -> None:
    """Each open log once kept its own descriptor, so creating logs on a running broker left no descriptors for new
    connections.
    """
    broker = BrokerProcess(tmp_path / "data", open_files=OPEN_FILES)
    with broker:
        for number in range(3):
            with RawClient(broker.port) as client:
                client.create_topic(f"many{number}", partitions=OPEN_FILES // 2)
        with RawClient(broker.port) as client:
            client.create_topic("orders")
            assert produce(client) == ErrorCode.NONE
            for partition in range(OPEN_FILES // 2):
                assert client.list_offset("many0", partition)[0] == 0
        descriptors = len(os.listdir(f"/proc/{broker.pid}/fd"))
        log = broker.log.read_text()
    assert descriptors < OPEN_FILES
    assert "offline" not in log
    assert "connection refused" not in log
