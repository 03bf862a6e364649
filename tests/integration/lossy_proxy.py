"""A proxy in front of a broker that loses answers: the request arrives, and instead of its answer the connection ends.

That is the case that idempotence is for: the producer cannot know whether its records were written.
"""

from __future__ import annotations

import asyncio
import threading
from struct import Struct

from oncelog_protocol.api import ApiKey

SIZE = Struct(">i")
REQUEST_PREFIX = Struct(">hhi")
"""API key, version, correlation id."""


class LossyProxy:
    """Listens on `port`; of each `one_in` answers to Produce requests, one is lost with its connection."""

    def __init__(self, one_in: int) -> None:
        self._one_in = one_in
        self._answers = 0
        self._target = 0
        self.lost = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def forward_to(self, port: int) -> None:
        self._target = port

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)
        produces: set[int] = set()
        directions = [
            asyncio.ensure_future(self._pass_requests(client, to_broker, produces)),
            asyncio.ensure_future(self._pass_answers(broker, to_client, produces)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            to_client.close()
            to_broker.close()

    async def _pass_requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, produces: set[int]
    ) -> None:
        while True:
            frame = await _frame(client)
            api_key, _, correlation_id = REQUEST_PREFIX.unpack_from(frame, SIZE.size)
            if api_key == ApiKey.PRODUCE:
                produces.add(correlation_id)
            to_broker.write(frame)
            await to_broker.drain()

    async def _pass_answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, produces: set[int]
    ) -> None:
        while True:
            frame = await _frame(broker)
            if SIZE.unpack_from(frame, SIZE.size)[0] in produces:
                self._answers += 1
                if self._answers % self._one_in == 0:
                    self.lost += 1
                    return
            to_client.write(frame)
            await to_client.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(SIZE.size)
    return size + await reader.readexactly(SIZE.unpack(size)[0])
