"""A connection ends although its client does not read."""

from __future__ import annotations

import asyncio
import socket

import pytest
from starlette.types import Receive, Scope, Send

from oncelog_console.guard import Guard
from oncelog_console.serving import FewConnections, Serving, listening_socket

PATIENCE_SECONDS = 60


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response that never ends."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


async def test_a_client_that_never_reads_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_console.guard.SEND_SECONDS", 0.2)
    monkeypatch.setattr("oncelog_console.serving.HEAD_SECONDS", 0.2)
    listening = listening_socket("127.0.0.1", 0)
    ready, lost = asyncio.Event(), asyncio.Event()
    server = Serving(Guard(endless), ready.set)
    server.config.lifespan = "off"
    connection_lost = FewConnections.connection_lost

    def noted(connection: FewConnections, error: Exception | None) -> None:
        connection_lost(connection, error)
        lost.set()

    monkeypatch.setattr(FewConnections, "connection_lost", noted)
    serving = asyncio.ensure_future(server._serve(sockets=[listening]))
    client = socket.create_connection(listening.getsockname())
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE_SECONDS)
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(lost.wait(), PATIENCE_SECONDS)
        assert not server.server_state.connections
    finally:
        client.close()
        server.should_exit = True
        await serving
        listening.close()
