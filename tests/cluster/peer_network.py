"""Simulates the network between brokers: each broker advertises to the others the port of a proxy, and the proxy delays
the bytes that a test selects.

Delayed bytes are not lost: as in a real network, they arrive after the fault, unless their connection has ended before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from struct import Struct
from typing import Self

from recording_clients import Loop
from tests.support.loop_turns import settle

from oncelog_broker.replication.peers import Purpose

HEADER = Struct(">ihhih")
"""The beginning of a request: size, API key, version, correlation id, length of the following client id."""
CHUNK = 65_536

Way = tuple[int, int]
"""A direction of requests between two brokers: the id of the broker that sends requests, and the id of the broker that
responds.
"""


class PeerNetwork:
    """The proxies between brokers, which run in a separate thread; a context manager that starts and stops them."""

    def __init__(self, ports: dict[int, int]) -> None:
        """`ports` maps each broker to the port on which it listens for the other brokers."""
        self._targets = ports
        self._loop = Loop()
        self._gates: dict[tuple[Way, Purpose], asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], int] = {}
        """Maps the task of each connection to the connection's target broker."""
        self.ports: dict[int, int] = {}
        """Broker id -> the port that this broker must advertise."""

    def __enter__(self) -> Self:
        self._loop.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._stop())
        self._loop.close()

    # --- faults

    def hold(self, *ways: Way, purposes: Collection[Purpose] = tuple(Purpose)) -> None:
        """Delay all bytes in these directions, in requests and responses of these purposes."""
        self._loop.run(self._set(ways, purposes, is_open=False))

    def let_pass(self, *ways: Way) -> None:
        self._loop.run(self._set(ways, Purpose, is_open=True))

    @contextmanager
    def held(self, *ways: Way, purposes: Collection[Purpose] = tuple(Purpose)) -> Iterator[None]:
        self.hold(*ways, purposes=purposes)
        try:
            yield
        finally:
            self.let_pass(*ways)

    def lose(self, target: int) -> None:
        """Close the connections to the broker `target`, whose process has died, and drop the delayed bytes of these
        connections.
        """
        self._loop.run(self._end([task for task, to in list(self._connections.items()) if to == target]))

    async def _set(self, ways: Iterable[Way], purposes: Iterable[Purpose], *, is_open: bool) -> None:
        for way, purpose in product(ways, purposes):
            gate = self._gate(way, purpose)
            if is_open:
                gate.set()
            else:
                gate.clear()

    def _gate(self, way: Way, purpose: Purpose) -> asyncio.Event:
        gate = self._gates.get((way, purpose))
        if gate is None:
            gate = self._gates[way, purpose] = asyncio.Event()
            gate.set()
        return gate

    # --- bytes

    async def _start(self) -> None:
        for target, port in self._targets.items():

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target, port: int = port
            ) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._connections[task] = target
                try:
                    await self._serve(reader, writer, target, port)
                except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    pass
                finally:
                    del self._connections[task]
                    writer.transport.abort()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self.ports[target] = server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        await settle()
        await self._end(list(self._connections))
        await settle()

    async def _end(self, connections: Collection[asyncio.Task[None]]) -> None:
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, port: int) -> None:
        header = await reader.readexactly(HEADER.size)
        name = await reader.readexactly(HEADER.unpack(header)[-1])
        _, source, purpose = name.decode().split("-")  # broker-1-fetch
        gate = self._gate((int(source), target), Purpose(purpose))
        await gate.wait()
        from_target, to_target = await asyncio.open_connection("127.0.0.1", port)
        to_target.write(header + name)
        ways = [
            asyncio.ensure_future(_pass(reader, to_target, gate)),
            asyncio.ensure_future(_pass(from_target, writer, gate)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_target.transport.abort()  # close both sides immediately, because a second cancellation may follow
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """The end of a connection is forwarded immediately, even while bytes are delayed, because a test must distinguish a
    dying process from a network fault.
    """
    while data := await reader.read(CHUNK):
        if not gate.is_set():
            await gate.wait()
        writer.write(data)
        await writer.drain()
