"""A proxy between clients and one broker that parses frames: it cuts connections, loses responses, and sends requests
twice.

A response is lost together with its connection, as in a network: the broker has handled the request, and the client
cannot know that. A request that the proxy sends twice gets two responses from the broker; the client receives only the
first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from struct import Struct

from tests.support.loop_turns import settle

from oncelog_protocol.api import ApiKey

SIZE = Struct(">i")
REQUEST_PREFIX = Struct(">hhi")
"""API key, version, correlation id."""


class Request:
    """A request that the proxy has forwarded and to which the broker has not responded yet."""

    __slots__ = ("api_key", "correlation_id", "frame", "is_answer_lost", "is_copy", "version")

    def __init__(self, frame: bytes) -> None:
        self.api_key, self.version, self.correlation_id = REQUEST_PREFIX.unpack_from(frame, SIZE.size)
        self.frame = frame
        self.is_copy = False
        self.is_answer_lost = False


class FrameProxy:
    """Listens on `port` from `start` on. The proxy is not thread-safe: all calls must be made on its own event loop."""

    def __init__(self, loses: Callable[[int], bool] = lambda _: False) -> None:
        """`loses(api key)` is called for each response, and returns whether the proxy drops the response."""
        self._loses = loses
        self._target = 0
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_mark: list[tuple[Collection[ApiKey], Callable[[_Connection, Request], None]]] = []
        self.port = 0
        self.versions: dict[int, int] = {}
        """The version of the last request of each API."""
        self.lost = 0
        self.swallowed = 0
        """How many responses to requests that were sent twice have been dropped."""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def forward_to(self, port: int) -> None:
        self._target = port

    async def close(self) -> None:
        self._server.close()
        await settle()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await settle()

    # --- faults

    def cut(self) -> None:
        """Cut all connections to clients and to the broker."""
        for connection in self._connections:
            connection.abort()

    def lose_answer(self, apis: Iterable[ApiKey]) -> None:
        """Lose the response to a request in flight of one of `apis`, which are in order of preference; if none is in
        flight, lose the response to the next such request.
        """
        self._mark(tuple(apis), _Connection.lose_answer)

    def send_twice(self, apis: Iterable[ApiKey]) -> None:
        """Send a request in flight of one of `apis` again, which are in order of preference; if none is in flight, send
        the next such request twice.
        """
        self._mark(tuple(apis), _Connection.send_again)

    def forget_marks(self) -> None:
        self._to_mark.clear()

    def _mark(self, apis: Collection[ApiKey], mark: Callable[[_Connection, Request], None]) -> None:
        for api in apis:
            for connection in self._connections:
                for request in connection.in_flight:
                    if request.api_key == api:
                        mark(connection, request)
                        return
        self._to_mark.append((apis, mark))

    # --- frames

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass_all(from_client, to_client)
        except (OSError, asyncio.CancelledError):
            to_client.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _pass_all(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Connect to the broker, and forward all frames. Raises OSError if the broker cannot be reached."""
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)
        connection = _Connection(to_client, to_broker)
        self._connections.add(connection)
        directions = [
            asyncio.ensure_future(self._pass_requests(from_client, connection)),
            asyncio.ensure_future(self._pass_answers(from_broker, connection)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(connection)
            connection.abort()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _pass_requests(self, from_client: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            request = Request(await _frame(from_client))
            connection.send(request)
            self.versions[request.api_key] = request.version
            for waiting in self._to_mark:
                apis, mark = waiting
                if request.api_key in apis:
                    self._to_mark.remove(waiting)
                    mark(connection, request)
                    break
            await connection.to_broker.drain()

    async def _pass_answers(self, from_broker: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _frame(from_broker)
            request = connection.answered(SIZE.unpack_from(frame, SIZE.size)[0])
            if request.is_copy:
                self.swallowed += 1
                continue
            if request.is_answer_lost or self._loses(request.api_key):
                self.lost += 1
                return
            connection.to_client.write(frame)
            await connection.to_client.drain()


class _Connection:
    """A client's connection and the corresponding connection to the broker."""

    def __init__(self, to_client: asyncio.StreamWriter, to_broker: asyncio.StreamWriter) -> None:
        self.to_client = to_client
        self.to_broker = to_broker
        self.in_flight: deque[Request] = deque()

    def abort(self) -> None:
        self.to_client.transport.abort()
        self.to_broker.transport.abort()

    def send(self, request: Request) -> None:
        self.in_flight.append(request)
        self.to_broker.write(request.frame)

    def send_again(self, request: Request) -> None:
        copy = Request(request.frame)
        copy.is_copy = True
        self.send(copy)

    def lose_answer(self, request: Request) -> None:
        request.is_answer_lost = True

    def answered(self, correlation_id: int) -> Request:
        """Return the request to which a response belongs. Responses arrive in order; requests without a response
        (acks=0) are skipped.
        """
        while True:
            request = self.in_flight.popleft()
            if request.correlation_id == correlation_id:
                return request


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(SIZE.size)
    return size + await reader.readexactly(SIZE.unpack(size)[0])
