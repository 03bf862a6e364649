"""The simulated network: hosts with addresses, links between them, and the faults of links.

While a link is cut, packets wait, as if TCP retransmitted them, and arrive after the repair; if the repair takes too
long, the stream breaks at both ends. `links` implements the links, and `streams` the TCP streams.

`Fabric` knows all hosts and links, and implements the loop's `create_connection`. `HostNetwork` is a broker's
implementation of `runtime.network`.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from oncelog_broker.runtime.accepting import Pace
from oncelog_simulation.links import LATE_SHARE, Link
from oncelog_simulation.loop import SimulatedLoop
from oncelog_simulation.process import Process
from oncelog_simulation.streams import Pipe, SimulatedHost, StreamTransport

CONNECT_SECONDS: Final = 20.0
"""Seconds after which an attempt to connect to a host that does not respond fails."""
GIVE_UP_SECONDS: Final = (8.0, 40.0)
"""Minimum and maximum seconds between the cut of a link and the moment at which TCP breaks a stream whose packets are
not acknowledged.
"""
RESEND_SECONDS: Final = 1.5
"""Maximum seconds until packets that waited for a repaired link are retransmitted."""


Factory = Callable[[], asyncio.BaseProtocol]


class SimulatedListening:
    """A bound port of a host; implements `runtime.network.Listening`."""

    def __init__(self, fabric: Fabric, host: SimulatedHost, process: Process, port: int, factory: Factory) -> None:
        self._fabric = fabric
        self._host = host
        self.process = process
        self.port = port
        self.factory = factory
        self.is_accepting = False
        self.backlog: list[Callable[[], None]] = []
        """Connections that wait until the listener accepts them."""

    async def start(self) -> None:
        self.is_accepting = True
        backlog, self.backlog = self.backlog, []
        for accept in backlog:
            accept()

    async def close(self) -> None:
        self.is_accepting = False
        self.backlog.clear()
        self._fabric.release(self._host, self)


class Fabric:
    """All hosts of a world and the links between them."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.late_share = LATE_SHARE
        """The fraction of late packets for links that are created from now on."""
        self.hosts: dict[str, SimulatedHost] = {}
        """The hosts by name."""
        self._by_address: dict[str, SimulatedHost] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._host_of: dict[Process, SimulatedHost] = {}
        self._listening: dict[tuple[str, int], SimulatedListening] = {}
        """Listening sockets by host and port."""
        loop.connector = self.connect
        loop.resolver = self.resolve

    # --- hosts

    def add_host(self, name: str, address: str) -> SimulatedHost:
        host = self.hosts[name] = self._by_address[address] = SimulatedHost(name, address)
        return host

    def place(self, process: Process, host: SimulatedHost) -> None:
        """Record on which host a process runs."""
        self._host_of[process] = host

    def host_of(self, process: Process) -> SimulatedHost:
        return self._host_of[process]

    def resolve(self, name: str | None) -> str | None:
        """Return the address of a host, given its name or address; None if the host does not exist."""
        if name in self.hosts:
            return self.hosts[str(name)].address
        return name if name in self._by_address else None

    def link(self, source: str, target: str) -> Link:
        """Return the link from one host to another, given their names."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self.random, self.late_share)
        return found

    # --- faults of hosts and links

    def cut(self, source: str, target: str) -> None:
        """Stop delivering packets that `source` sends to `target`."""
        link = self.link(source, target)
        if link.is_cut:
            return
        link.is_cut = True
        for transport in list(self.hosts[source].transports):
            if transport.peer_host.name == target:
                self._give_up_later(transport, lambda: link.is_cut)

    def _give_up_later(self, transport: StreamTransport, is_still: Callable[[], bool]) -> None:
        least, most = GIVE_UP_SECONDS
        self.loop.happen(self.loop.now + self.random.uniform(least, most), transport.give_up_if, is_still)

    def mend(self, source: str, target: str) -> None:
        """Deliver packets again; packets that waited arrive after some time."""
        link = self.link(source, target)
        if link.is_cut:
            link.is_cut = False
            if self.hosts[target].is_up:
                self._send_again(link)

    def mend_all(self) -> None:
        for source, target in self._links:
            self.mend(source, target)
            self.link(source, target).slowness = 1.0

    def drop_process(self, host: SimulatedHost, process: Process) -> None:
        """Close the ports and streams of a process that has died, as the host's kernel does."""
        for place, listening in list(self._listening.items()):
            if listening.process is process:
                del self._listening[place]
        for transport in [each for each in host.transports if each.process is process]:
            transport.die(with_reset=self.random.random() < 0.5)

    def drop_host(self, host: SimulatedHost) -> None:
        """Cut the host's power: no peer is notified. A peer that sends to an old stream gets a reset when the host has
        power again.
        """
        host.is_up = False
        for place in [place for place in self._listening if place[0] == host.name]:
            del self._listening[place]
        for transport in list(host.transports):
            transport.vanish()
            self._give_up_later(transport.other, lambda: not host.is_up)

    def raise_host(self, host: SimulatedHost) -> None:
        """Restore the host's power."""
        host.is_up = True
        for (_, target), link in self._links.items():
            if target == host.name and not link.is_cut:
                self._send_again(link)

    def _send_again(self, link: Link) -> None:
        waiting, link.waiting = link.waiting, {}
        for stuck in waiting:
            stuck.send_again(self.random.random() * RESEND_SECONDS)

    def bind(self, process: Process, port: int, factory: Factory) -> SimulatedListening:
        """Bind a port of the host on which the process runs; port 0 means any free port. Raises OSError if the port is
        in use.
        """
        host = self._host_of[process]
        port = port or host.free_port()
        if (host.name, port) in self._listening:
            raise OSError(errno.EADDRINUSE, f"{host.address}:{port} is in use")
        listening = self._listening[host.name, port] = SimulatedListening(self, host, process, port, factory)
        return listening

    def release(self, host: SimulatedHost, listening: SimulatedListening) -> None:
        """Free the port, if it still belongs to `listening`."""
        if self._listening.get((host.name, listening.port)) is listening:
            del self._listening[host.name, listening.port]

    def forget(self) -> None:
        """Release all streams and processes, because the world ends."""
        for host in self.hosts.values():
            host.transports.clear()
        self._listening.clear()
        self._links.clear()
        self._host_of.clear()

    # --- connecting

    async def connect(self, factory: Factory, name: Any, port: Any, **options: Any) -> tuple[asyncio.Transport, Any]:
        """Like `loop.create_connection`. Raises OSError."""
        if options.get("ssl"):
            raise NotImplementedError("the simulated network has no TLS")
        loop, process = self.loop, self.loop.current
        process.check_alive()
        source = self._host_of[process]
        address = self.resolve(name)
        if address is None:
            raise OSError(errno.EHOSTUNREACH, f"no host has the address {name}")
        target = self._by_address[address]
        opened: asyncio.Future[StreamTransport] = loop.create_future()

        def arrive() -> None:
            """Deliver the first packet to the other host, if the link is not cut."""
            if self.link(source.name, target.name).is_cut or not target.is_up:
                if not opened.done():
                    loop.happen(loop.now + RESEND_SECONDS, arrive)
                return
            listening = self._listening.get((target.name, int(port)))
            if listening is None:
                answer(None)
            elif listening.is_accepting:
                accept(listening)
            else:
                listening.backlog.append(lambda: accept(listening))

        def accept(listening: SimulatedListening) -> None:
            near, far = self._make_pair(source, process, target, listening.process, int(port))
            loop.post(listening.process, far.open, listening.factory)
            answer(near)

        def answer(near: StreamTransport | None) -> None:
            back = self.link(target.name, source.name)
            if back.is_cut:
                loop.happen(loop.now + RESEND_SECONDS, answer, near)
            else:
                loop.call_in(process, loop.now + back.latency(), arrived, near)

        def arrived(near: StreamTransport | None) -> None:
            if opened.done():
                if near is not None:
                    near.abort()
            elif near is None:
                opened.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, f"connecting to {name}:{port}"))
            else:
                opened.set_result(near)

        loop.happen(loop.virtual() + self.link(source.name, target.name).latency(), arrive)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                near = await opened
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        protocol = factory()
        near.open(lambda: protocol)
        return near, protocol

    def _make_pair(
        self, source: SimulatedHost, process: Process, target: SimulatedHost, listener: Process, port: int
    ) -> tuple[StreamTransport, StreamTransport]:
        there, back = self.link(source.name, target.name), self.link(target.name, source.name)
        places = (source.address, source.free_port()), (target.address, port)
        near = StreamTransport(self.loop, process, source, target, places[0], places[1], self.random)
        far = StreamTransport(self.loop, listener, target, source, places[1], places[0], self.random)
        near.pipe = Pipe(self.loop, there, far, self.random)
        far.pipe = Pipe(self.loop, back, near, self.random)
        near.other, far.other = far, near
        for transport, host, link in ((near, source, there), (far, target, back)):
            host.transports[transport] = None
            if link.is_cut:
                self._give_up_later(transport, partial(getattr, link, "is_cut"))
        if not process.is_alive:
            near.die(with_reset=True)
        if not listener.is_alive:
            far.die(with_reset=True)
        return near, far


class HostNetwork:
    """Implements `runtime.network.Network` for one process."""

    __slots__ = ("_fabric",)

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    async def listen(
        self,
        host: str | None,
        port: int,
        factory: Callable[[], asyncio.BufferedProtocol],
        *,
        backlog: int,
        pace: Pace | None = None,
        is_shared: bool = False,
    ) -> SimulatedListening:
        assert not is_shared, "a simulated process has its ports for itself"
        process = self._fabric.loop.current
        process.check_alive()
        return self._fabric.bind(process, port, factory)

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, **tls: Any
    ) -> object:
        return await self._fabric.connect(factory, host, port, **tls)
