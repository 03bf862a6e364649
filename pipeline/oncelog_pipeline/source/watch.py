"""Lets the brokers report records beyond the known ends of a stream's partitions, so that an idle query notices new
records.

Each leader gets one Fetch request that begins at the known ends, and responds when records are available. The response,
which has at most one batch, is dropped, because the tasks read the records. The watch has a client with its own
connections. A broker responds to the requests of a connection in order, so on a shared connection other requests would
have to wait behind the Fetch.

The watch affects only the delay of a batch: if the watch fails, `ends.py` requests the ends periodically.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

from oncelog import Admin, TopicPartition
from oncelog.errors import KafkaError
from oncelog_pipeline.source.offsets import Offsets
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse, IsolationLevel

WAIT_MS: Final = 5000
"""Milliseconds for which a broker may hold a Fetch before it responds without records. After such a response the Fetch
is sent again.
"""
ONE_BATCH: Final = 1
"""The fetch size in bytes; a broker returns at least one entire batch, however large."""
AGAIN_SECONDS: Final = 5.0
"""Seconds before the same ends are watched again, if the brokers responded without new records or could not be reached.
"""
PAUSE_SECONDS: Final = 0.1
"""Seconds before the next Fetch to a broker that has responded early without records."""

logger = logging.getLogger(__name__)


class EndWatch:
    """Watches the ends of one stream. `make` is a function that returns a connected client. Only `is_on` may be called
    outside of the event loop that uses the object.
    """

    def __init__(self, make: Callable[[], Awaitable[Admin]], isolation_level: IsolationLevel) -> None:
        self._make = make
        self._isolation_level = isolation_level
        self._admin: Admin | None = None
        self._ends: Offsets | None = None
        self._watching: asyncio.Task[bool] | None = None
        self._began = 0.0

    @property
    def is_on(self) -> bool:
        """Return whether brokers are being watched for records beyond the ends of the last call of `wait`."""
        return self._watching is not None and not self._watching.done()

    async def wait(self, ends: Offsets, seconds: float) -> bool:
        """Wait for `seconds`, or until records beyond these ends may be available. Returns whether such records may be
        available.

        For unchanged ends the function returns True at most once in AGAIN_SECONDS. A leader change, for example, makes
        the function return True although the ends are unchanged; without this limit the caller would then request the
        ends again and again without a pause.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        may_begin = self._watching is None and loop.time() - self._began >= AGAIN_SECONDS
        if ends != self._ends or may_begin:
            if self._watching is not None:
                self._watching.cancel()
            self._ends, self._began = ends, loop.time()
            self._watching = asyncio.ensure_future(self._watch(ends))
        if self._watching is None:
            await asyncio.sleep(seconds)
            return False
        await asyncio.wait([self._watching], timeout=seconds)
        if not self._watching.done():
            return False
        is_woken, self._watching = self._watching.result(), None
        if not is_woken:
            await asyncio.sleep(until - loop.time())
        return is_woken

    async def close(self) -> None:
        """Close the connections; the next `wait` opens new ones."""
        if self._watching is not None:
            self._watching.cancel()
        self._ends = self._watching = None
        await self._disconnect()

    async def _watch(self, ends: Offsets) -> bool:
        """Return True when a leader reports records beyond the known ends, or an error; return False if a leader cannot
        be reached.
        """
        asking: list[asyncio.Task[None]] = []
        try:
            if self._admin is None:
                self._admin = await self._make()
            requests = await self._requests(self._admin, ends)
            if not requests:
                return False  # no partition yet, for example because no topic matches the pattern
            asking = [asyncio.ensure_future(self._ask(self._admin, *each)) for each in requests.items()]
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            return True
        except KafkaError as error:
            logger.info("brokers do not report new records, so the ends are fetched from time to time: %s", error)
            await self._disconnect()  # the client's metadata may be old: refresh it before the next Fetch
            return False
        # log a defect of oncelog instead of raising it: no query may fail because of its watch, which only lets the
        # query notice new records sooner
        except Exception:
            logger.exception("the watch for new records failed; the ends are fetched from time to time")
            return False
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _requests(self, admin: Admin, ends: Offsets) -> dict[int, FetchRequest]:
        """Return a Fetch request for each leader, by the leader's node id. Raises KafkaError."""
        topics = await admin.describe_topics({partition.topic for partition in ends})
        parts: dict[int, dict[str, list[TopicPartition]]] = defaultdict(lambda: defaultdict(list))
        for partition in ends:
            known = topics[partition.topic].partitions.get(partition.partition)
            if known is not None:
                parts[known.leader][partition.topic].append(partition)
        asked = FetchRequest.FetchTopic
        return {
            leader: FetchRequest(
                max_wait_ms=min(WAIT_MS, admin.config.request_timeout_ms // 2),
                min_bytes=1,
                max_bytes=ONE_BATCH,
                isolation_level=self._isolation_level,
                topics=[
                    asked(
                        topic=name,
                        topic_id=topics[name].topic_id,
                        partitions=[
                            asked.FetchPartition(
                                partition=each.partition, fetch_offset=ends[each], partition_max_bytes=ONE_BATCH
                            )
                            for each in partitions
                        ],
                    )
                    for name, partitions in by_topic.items()
                ],
            )
            for leader, by_topic in parts.items()
        }

    async def _ask(self, admin: Admin, node_id: int, request: FetchRequest) -> None:
        """Send the Fetch until the broker reports records or an error, then return. Raises KafkaError."""
        loop = asyncio.get_running_loop()
        while True:
            asked = loop.time()
            if _tells(await admin.send_to(node_id, request)):
                return
            if loop.time() - asked < request.max_wait_ms / 2000:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _disconnect(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()


def _tells(response: FetchResponse) -> bool:
    """Return whether the response has records or an error, so that the ends must be requested."""
    if response.error_code:
        return True
    return any(part.error_code or part.records for topic in response.responses for part in topic.partitions)
