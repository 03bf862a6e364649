"""Tests that a parent process which does not read the broker's standard error blocks no client."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from broker_process import BrokerProcess
from raw_client import RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

REFUSED_CONNECTIONS = 1000
"""The number of refused connections: their log lines, of some 100 bytes each, exceed the capacity of a pipe."""


class UnreadBroker(BrokerProcess):
    """A broker whose standard error is a pipe that its parent process keeps open but does not read."""

    def start(self, fail_points: str = "") -> BrokerProcess:
        os.mkfifo(self.log)
        self.unread = os.open(self.log, os.O_RDWR)
        return super().start(fail_points)


def test_clients_are_served_while_nobody_reads_the_log(tmp_path: Path) -> None:
    broker = UnreadBroker(tmp_path / "data", {"max.connections": "1"})
    with broker, RawClient(broker.port) as client:
        client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
        for _ in range(REFUSED_CONNECTIONS):
            with socket.create_connection(("127.0.0.1", broker.port)) as refused:
                try:
                    assert refused.recv(1) == b""
                except ConnectionResetError:
                    pass
        assert client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0).error_code == 0
        assert broker.stop() == 0
        assert b"connection refused" in os.read(broker.unread, 65536)
    os.close(broker.unread)
