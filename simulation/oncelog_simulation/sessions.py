"""The client's side of a simulated ZooKeeper session: replaces kazoo for the broker's `ZooKeeperStore`.

`EnsembleSession` replaces `zk_client.ZooKeeperSession`; the store that uses the session, with its lease, heartbeats and
watches, is the broker's real store. `EnsembleOpening` opens a store over such a session.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from kazoo import exceptions as kazoo

from oncelog_broker.identity.note import StoreKind
from oncelog_broker.metadata.stores.store import MetadataStore, SessionKey
from oncelog_broker.metadata.stores.zookeeper.access import OPEN_ACCESS, ZooKeeperAccess
from oncelog_broker.metadata.stores.zookeeper.session import Connected, SessionListener
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_broker.runtime.clock import Clock
from oncelog_simulation.ensemble import (
    Accepted,
    Answer,
    Changed,
    ChangedTogether,
    Close,
    Connection,
    Ensemble,
    Expired,
    Hello,
    Ping,
    Request,
)
from oncelog_simulation.process import Process
from oncelog_simulation.streams import Pipe, SimulatedHost

RETRY_SECONDS: Final = 0.05
"""Initial seconds between two attempts to connect, as in kazoo."""
MAX_RETRY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 2.0
"""Seconds that closing a session waits, as in the real session."""
PING_SHARE: Final = 1 / 3
"""Interval of pings as a fraction of the session timeout. As with kazoo's thread, pings are sent even if the event loop
is blocked.
"""


class ClientEnd:
    """The client's end of a connection, which receives a server's packets."""

    def __init__(self, session: EnsembleSession, host: SimulatedHost) -> None:
        self._session: EnsembleSession | None = session
        self._loop = session.loop
        self.process = session.process
        self.host = host
        self.pipe: Pipe
        """The pipe to the server."""
        self.is_gone = False

    def arrived(self, packet: Any) -> None:
        if not self.is_gone and self._session is not None:
            self._loop.post(self.process, self._session.received, self, packet)

    def send(self, packet: Any) -> None:
        if not self.is_gone and self.process.is_alive:
            self.pipe.send(packet)

    def drop(self) -> None:
        self.is_gone = True
        self.pipe.drop()

    def release(self) -> None:
        """Release the session of a process that is dead. The server keeps a reference to this end until it ends the
        session.
        """
        assert not self.process.is_alive
        self._session = None


class EnsembleSession:
    """One session of a process with the ensemble."""

    def __init__(
        self,
        ensemble: Ensemble,
        process: Process,
        timeout: float,
        listener: SessionListener,
        clock: Clock,
        key: SessionKey | None = None,
    ) -> None:
        self._ensemble = ensemble
        self.loop = ensemble.loop
        self.process = process
        self._host = ensemble.fabric.host_of(process)
        self._timeout = timeout
        self._listener = listener
        self._clock = clock
        self._key = key
        self._random: Random = process.random
        self._end: ClientEnd | None = None
        self._asked_at = 0.0
        self._is_connected = False
        self._is_over = False
        self._is_closing = False
        self._failures = 0
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next: list[int] = []
        """The servers to try, in order."""
        self.last_zxid = 0
        self.trouble = "no server was tried yet"

    def start(self) -> None:
        self.loop.call_soon(self._connect)

    # --- connecting

    def _connect(self) -> None:
        if self._is_over or self._end is not None:
            return
        ensemble = self._ensemble
        if not self._next:
            self._next = list(range(len(ensemble.servers)))
            self._random.shuffle(self._next)
        server = ensemble.servers[self._next.pop()]
        self.trouble = f"{server.host.name}: no answer"
        end = self._end = ClientEnd(self, self._host)
        connection = Connection(ensemble, server)
        there = ensemble.fabric.link(self._host.name, server.host.name)
        back = ensemble.fabric.link(server.host.name, self._host.name)
        end.pipe = Pipe(self.loop, there, connection, ensemble.random)
        connection.pipe = Pipe(self.loop, back, end, ensemble.random)
        self._asked_at = self._clock.uptime()
        # TCP opens a connection only if packets arrive in both directions: a broker that gets no answers cannot keep
        # its session by new connections.
        if not back.is_cut:
            end.send(Hello(self._key, self._timeout, self.last_zxid))
        seconds = max(self._timeout / (2 * len(ensemble.servers)), 0.2)
        self.loop.call_later(seconds, self._give_up, end)

    def _give_up(self, end: ClientEnd) -> None:
        if end is self._end and not self._is_connected:
            self._lost()

    def _lost(self) -> None:
        """Handle the loss of the connection; the client soon tries another connection."""
        end, self._end = self._end, None
        if end is not None:
            end.drop()
        was_connected, self._is_connected = self._is_connected, False
        self._fail_all()
        if was_connected:
            self._listener.on_disconnected(self)
        if not self._is_over and not self._is_closing:
            seconds = min(RETRY_SECONDS * 1.5**self._failures, MAX_RETRY_SECONDS)
            self._failures += 1
            self.loop.call_later(seconds, self._connect)

    # --- methods that the servers call

    def received(self, end: ClientEnd, packet: Any) -> None:
        """Handle a packet from a server; runs in the client's process."""
        if end is not self._end or self._is_over:
            return
        if packet is None:
            self._lost()
        elif isinstance(packet, Expired):
            self._over()
        elif isinstance(packet, Changed):
            self._listener.on_changed(packet.path)
        elif isinstance(packet, ChangedTogether):
            for path in packet.paths:
                self._listener.on_changed(path)
        elif isinstance(packet, Answer):
            self.last_zxid = max(self.last_zxid, packet.zxid)
            if isinstance(packet.result, Accepted):
                self._accepted(packet.result)
            else:
                self._answered(packet)

    def _accepted(self, accepted: Accepted) -> None:
        self._key = accepted.key
        self._is_connected = True
        self._failures = 0
        self.trouble = "none"
        assert self._end is not None
        self._ping(self._end)
        self._listener.on_connected(self, Connected(self._asked_at, accepted.timeout, accepted.key))

    def _answered(self, answer: Answer) -> None:
        waiting = self._answers.pop(answer.number, None)
        if waiting is None or waiting.done():
            return
        if isinstance(answer.result, Exception):
            waiting.set_exception(answer.result)
            waiting.exception()
        else:
            waiting.set_result(answer.result)

    def _ping(self, end: ClientEnd) -> None:
        """Send a ping, as the thread of a real client does: a paused process sends no pings, but a process with a busy
        event loop does.
        """
        if end is self._end and self.process.is_alive and not self._is_over:
            if not self.process.is_paused:
                end.send(Ping())
            self.loop.happen(self.loop.now + self._timeout * PING_SHARE, self._ping, end)

    # --- methods that the metadata store calls

    def send(self, request: Any) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self.loop.create_future()
        if self._end is None or not self._is_connected:
            answer.set_exception(kazoo.ConnectionLoss())
            answer.exception()
            return answer
        self._numbers += 1
        self._answers[self._numbers] = answer
        self._end.send(Request(self._numbers, request))
        return answer

    def drop_connection(self) -> None:
        if self._end is not None:
            self._lost()

    async def close(self) -> None:
        self._is_closing = True
        if self._end is not None and self._is_connected:
            self._numbers += 1
            done = self._answers[self._numbers] = self.loop.create_future()
            self._end.send(Close(self._numbers))
            await asyncio.wait([done], timeout=CLOSE_SECONDS)
        self._over()

    def _over(self) -> None:
        self._fail_all()
        if self._end is not None:
            self._end.drop()
            self._end = None
        if not self._is_over:
            self._is_over = True
            self._is_connected = False
            self._listener.on_over(self)

    def _fail_all(self) -> None:
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(kazoo.ConnectionLoss())
                answer.exception()


class EnsembleOpening:
    """Opens the broker's real ZooKeeper store over simulated sessions: implements `metadata.opening.StoreOpening`."""

    kind = StoreKind.ZOOKEEPER

    def __init__(self, ensemble: Ensemble, process: Process, timeout: float) -> None:
        self._ensemble = ensemble
        self._process = process
        self._timeout = timeout

    def place(self, home: str) -> str:
        return self._ensemble.connect_string

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        return await ZooKeeperStore.open(
            self._ensemble.connect_string,
            session_timeout=self._timeout,
            connection_timeout=self._timeout,
            clock=clock,
            make_session=self._make_session,
        )

    def _make_session(
        self,
        servers: str,
        timeout: float,
        listener: SessionListener,
        clock: Clock,
        key: SessionKey | None = None,
        access: ZooKeeperAccess = OPEN_ACCESS,
    ) -> EnsembleSession:
        return EnsembleSession(self._ensemble, self._process, timeout, listener, clock, key)
