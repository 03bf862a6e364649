"""A proxy between a ZooKeeper client and its servers that cuts connections and holds or loses single frames.

The proxy runs in its own thread, so that blocking clients and tests with an event loop can use it alike. All methods
may be called from any thread, and their effect is in force when they return:

    with CuttingProxy(ensemble.connect_string) as proxy:
        client = KazooClient(proxy.connect_string)
        proxy.cut_when(lambda frame: frame.op == Op.MULTI, Moment.AFTER)   # executed, and the response is lost
        proxy.hold(Direction.ANSWERS)                                      # responses are delayed
        proxy.lose()                                                       # both directions lose all frames
        proxy.heal()
"""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from typing import Any, TypeVar

from tests.support.loop_turns import settle
from tests.support.zookeeper.frames import SIZE, Direction, Frame, FrameReader

T = TypeVar("T")

BOTH = (Direction.REQUESTS, Direction.ANSWERS)
CALL_SECONDS = 10.0
DRAIN_SECONDS = 5.0
"""Seconds that the server gets to read forwarded frames before a cut."""
WAIT_SECONDS = 30.0


class Moment(Enum):
    BEFORE = "the frame is never forwarded"
    AFTER = "the frame arrives; of a request, the answer does not"


class Cut:
    """A rule that says when the proxy cuts a connection. `count` is how many times the rule has cut."""

    def __init__(self, matches: Callable[[Frame], bool], moment: Callable[[], Moment], times: int | None) -> None:
        self.matches = matches
        self.moment = moment
        self.times = times
        self.count = 0

    @property
    def is_due(self) -> bool:
        return self.times is None or self.count < self.times


class CuttingProxy:
    """Listens on `address` after `start`. With several targets, each connection goes to the next target that accepts
    it.
    """

    def __init__(self, targets: str, seed: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """`targets` is a connect string, `host:port,host:port/chroot`. `seed` determines all random decisions. With
        `tls`, clients connect to the proxy over TLS, but the proxy connects to its targets without TLS.
        """
        targets, slash, chroot = targets.partition("/")
        self._chroot = slash + chroot
        self._tls = tls
        self._targets = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in targets.split(","))]
        self._next_target = 0
        self._random = random.Random(seed)
        self._rules: list[Cut] = []
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates = {direction: asyncio.Event() for direction in Direction}
        self._lost_directions: frozenset[Direction] = frozenset()
        self._is_refusing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="cutting proxy")
        self._changed = threading.Condition()
        self.port = 0
        self.connections = 0
        """The number of connections that were accepted and forwarded so far."""
        self.refused = 0
        self.cuts = 0
        self.passed = dict.fromkeys(Direction, 0)
        """The number of frames that were forwarded, by direction."""
        self.held = dict.fromkeys(Direction, 0)
        """The number of frames that wait at the moment, by direction. At most one frame per connection waits in the
        proxy; later frames wait in the socket.
        """
        self.lost = dict.fromkeys(Direction, 0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connect_string(self) -> str:
        """The connect string of the proxy, with the chroot of the targets."""
        return self.address + self._chroot

    def start(self) -> CuttingProxy:
        self._thread.start()
        self._run(self._listen())
        return self

    def close(self) -> None:
        """Cut all remaining connections and stop the proxy."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def __enter__(self) -> CuttingProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- cuts

    def cut(self) -> None:
        """Cut all connections immediately."""
        self._call(self._cut_all)

    def cut_when(
        self,
        matches: Callable[[Frame], bool],
        moment: Moment,
        *,
        direction: Direction = Direction.REQUESTS,
        times: int | None = 1,
    ) -> Cut:
        """Cut the connection before or after the next frame that `matches`; the rule applies `times` times, or always
        if `times` is None.

        If the cut comes after a request, the server reads the request, and the proxy does not forward the response. A
        test that needs the server to have executed the request must cut before the response.
        """
        return self._add(Cut(lambda frame: frame.direction is direction and matches(frame), lambda: moment, times))

    def cut_at(self, number: int, moment: Moment, *, direction: Direction = Direction.REQUESTS) -> Cut:
        """Cut each connection at the frame with this number; frame 1 opens the session."""
        return self.cut_when(lambda frame: frame.number == number, moment, direction=direction, times=None)

    def cut_by_chance(
        self,
        probability: float,
        *,
        spared: int = 2,
        directions: Iterable[Direction] = (Direction.REQUESTS,),
        moments: Iterable[Moment] = tuple(Moment),
    ) -> Cut:
        """Cut before or after any frame with this probability, except for the first `spared` frames of a connection."""
        among, choices = frozenset(directions), tuple(moments)

        def matches(frame: Frame) -> bool:
            return frame.direction in among and frame.number > spared and self._random.random() < probability

        return self._add(Cut(matches, lambda: self._random.choice(choices), None))

    def forget_cuts(self) -> None:
        """Remove all cutting rules."""
        self._call(self._rules.clear)

    # --- other network faults

    def refuse(self) -> None:
        """Close every new connection immediately, until `accept` is called."""
        self._call(lambda: setattr(self, "_is_refusing", True))

    def accept(self) -> None:
        self._call(lambda: setattr(self, "_is_refusing", False))

    def hold(self, *directions: Direction) -> None:
        """Hold all frames, and the ends of connections, until `resume` is called. The default is both directions."""
        self._call(lambda: [self._gates[direction].clear() for direction in directions or BOTH])

    def resume(self, *directions: Direction) -> None:
        self._call(lambda: [self._gates[direction].set() for direction in directions or BOTH])

    def lose(self, *directions: Direction) -> None:
        """Discard all frames and the ends of connections, like a black hole. The default is both directions."""
        self._call(lambda: setattr(self, "_lost_directions", frozenset(directions or BOTH)))

    def heal(self) -> None:
        """Stop discarding frames. Connections that have lost frames are cut, because they could not continue."""
        self._call(self._heal)

    # --- waiting

    def wait_until(self, is_so: Callable[[CuttingProxy], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait until a condition on the proxy's counters is true.

        Raises TimeoutError. This method blocks the thread, so do not call it in an event loop.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not is_so(self):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"passed {self.passed}, held {self.held}, lost {self.lost}, cuts {self.cuts}")
                self._changed.wait(left)

    # --- methods that run in the proxy's thread

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_SECONDS)

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._run(call())

    def _add(self, rule: Cut) -> Cut:
        self._call(lambda: self._rules.append(rule))
        return rule

    async def _listen(self) -> None:
        for gate in self._gates.values():
            gate.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await settle()
        self._cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()

    def _cut_all(self) -> None:
        for connection in self._open:
            connection.abort()

    def _heal(self) -> None:
        self._lost_directions = frozenset()
        for connection in self._open:
            if connection.has_lost:
                connection.abort()

    def _tell(self, counts: dict[Direction, int], direction: Direction, by: int = 1) -> None:
        with self._changed:
            counts[direction] += by
            self._changed.notify_all()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            streams = None if self._is_refusing else await self._connect()
            if streams is None:
                to_client.transport.abort()
                with self._changed:
                    self.refused += 1
                    self._changed.notify_all()
                return
            from_server, to_server = streams
            await self._pass_all(_Connection(from_client, to_client, from_server, to_server))
        except asyncio.CancelledError:
            to_client.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._targets:
            host, port = self._targets[self._next_target % len(self._targets)]
            self._next_target += 1
            try:
                return await asyncio.open_connection(host, port)
            except OSError:
                continue
        return None

    async def _pass_all(self, connection: _Connection) -> None:
        self._open.add(connection)
        with self._changed:
            self.connections += 1
            self._changed.notify_all()
        directions = [asyncio.ensure_future(self._pass(connection, direction)) for direction in Direction]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(connection)
            connection.abort()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _pass(self, connection: _Connection, direction: Direction) -> None:
        """Forward frames until the connection ends; then end the other side, too."""
        reader, writer = connection.streams(direction)
        while True:
            try:
                data = await _frame(reader)
            except (OSError, asyncio.IncompleteReadError):
                await self._end(connection, direction)
                writer.close()  # close after the forwarded bytes are sent
                return
            if connection.is_cut:
                continue  # continue until the server has read everything and ends the connection
            frame = connection.frames.read(direction, data)
            await self._wait_for_gate(direction)
            if direction in self._lost_directions:
                connection.has_lost = True
                self._tell(self.lost, direction)
                continue
            rule = next((rule for rule in self._rules if rule.is_due and rule.matches(frame)), None)
            moment = None if rule is None else rule.moment()
            if moment is not Moment.BEFORE:
                writer.write(data)
                self._tell(self.passed, direction)
                await writer.drain()
            if rule is not None:
                await self._cut(connection, direction, moment is Moment.AFTER, rule)
                return

    async def _end(self, connection: _Connection, direction: Direction) -> None:
        if direction is Direction.ANSWERS:
            connection.server_has_ended.set()
        await self._wait_for_gate(direction)
        if direction in self._lost_directions:
            connection.has_lost = True
            await asyncio.Event().wait()  # wait until the connection is cut

    async def _wait_for_gate(self, direction: Direction) -> None:
        gate = self._gates[direction]
        if not gate.is_set():
            self._tell(self.held, direction)
            try:
                await gate.wait()
            finally:
                self._tell(self.held, direction, -1)

    async def _cut(self, connection: _Connection, direction: Direction, is_forwarded: bool, rule: Cut) -> None:
        connection.is_cut = True
        if is_forwarded and direction is Direction.ANSWERS:
            connection.to_client.close()  # close after the forwarded bytes are sent
        else:
            connection.to_client.transport.abort()
        with self._changed:
            rule.count += 1
            self.cuts += 1
            self._changed.notify_all()
        if is_forwarded and direction is Direction.REQUESTS:
            await connection.end_in_order()


class _Connection:
    """A client's connection to the proxy, with the proxy's connection to a server."""

    def __init__(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        self.from_client, self.to_client = from_client, to_client
        self.from_server, self.to_server = from_server, to_server
        self.frames = FrameReader()
        self.has_lost = False
        self.is_cut = False
        self.server_has_ended = asyncio.Event()

    def streams(self, direction: Direction) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if direction is Direction.REQUESTS:
            return self.from_client, self.to_server
        return self.from_server, self.to_client

    def abort(self) -> None:
        for writer in (self.to_client, self.to_server):
            if not writer.is_closing():
                writer.transport.abort()

    async def end_in_order(self) -> None:
        """Close the connection to the server in an orderly way, so that the server reads all bytes sent before; after
        an abort, the server could discard these bytes.
        """
        try:
            self.to_server.write_eof()
            await asyncio.wait_for(self.server_has_ended.wait(), DRAIN_SECONDS)
        except (TimeoutError, OSError):
            pass  # the server is paused, or its connection is gone


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(SIZE.size)
    return size + await reader.readexactly(SIZE.unpack(size)[0])
