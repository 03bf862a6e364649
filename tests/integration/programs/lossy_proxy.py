"""A proxy in front of a broker that loses responses: the request arrives at the broker, and instead of the response the
client sees the end of its connection.

Idempotence exists for this case, in which the producer cannot know whether its records were written.
"""

from __future__ import annotations

import asyncio
import threading

from frame_proxy import FrameProxy

from oncelog_protocol.api import ApiKey


class LossyProxy:
    """A proxy in a separate thread; of every `one_in` responses to Produce requests, one is lost together with its
    connection.
    """

    def __init__(self, one_in: int) -> None:
        self._one_in = one_in
        self._answers = 0
        self._proxy = FrameProxy(self._loses)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def port(self) -> int:
        return self._proxy.port

    @property
    def lost(self) -> int:
        return self._proxy.lost

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def forward_to(self, port: int) -> None:
        self._proxy.forward_to(port)

    def _loses(self, api_key: int) -> bool:
        if api_key != ApiKey.PRODUCE:
            return False
        self._answers += 1
        return self._answers % self._one_in == 0
