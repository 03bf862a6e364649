"""Waits at the brokers for records beyond the ends of a stream's partitions, so that an idle query hears at once.

Each leader gets one Fetch at the ends that are known, which it answers when there is something to read. What is read is
dropped, one batch at most: tasks read it again. The connections are of a client of its own, since a broker answers
requests of one connection in order, and nothing else is to wait behind a Fetch.

Nothing depends on the watch but the time until records are noticed: where it fails, the ends are looked at by the clock
(`ends.py`).
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
"""How long a broker keeps a Fetch without an answer. Then it is asked again."""
ONE_BATCH: Final = 1
"""Bytes to fetch: a broker answers with one batch at least."""
AGAIN_SECONDS: Final = 5.0
"""Before brokers are asked again for the same ends, where they have woken in vain or could not be asked."""
PAUSE_SECONDS: Final = 0.1
"""Before a broker is asked again that has answered early, with nothing."""

logger = logging.getLogger(__name__)


class EndWatch:
    """`make` connects a client. All but `is_on` is for one event loop."""

    def __init__(self, make: Callable[[], Awaitable[Admin]], isolation_level: IsolationLevel) -> None:
        self._make = make
        self._isolation_level = isolation_level
        self._admin: Admin | None = None
        self._ends: Offsets | None = None
        self._watching: asyncio.Task[bool] | None = None
        self._began = 0.0

    @property
    def is_on(self) -> bool:
        """Whether records beyond the ends that `wait` was called with last will be noticed."""
        return self._watching is not None and not self._watching.done()

    async def wait(self, ends: Offsets, seconds: float) -> bool:
        """Wait so long, or until there may be something to read beyond these ends; returns whether there may be.

        For the same ends the answer is True once in AGAIN_SECONDS at most: whatever made it True may be nothing that
        moves an end (a leader that has changed), and the caller would look again without a pause.
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
        """Let go of the connections; the next `wait` makes new ones."""
        if self._watching is not None:
            self._watching.cancel()
        self._ends = self._watching = None
        await self._disconnect()

    async def _watch(self, ends: Offsets) -> bool:
        """Until a leader has something beyond the ends; False where they cannot be asked."""
        asking: list[asyncio.Task[None]] = []
        try:
            if self._admin is None:
                self._admin = await self._make()
            requests = await self._requests(self._admin, ends)
            if not requests:
                return False  # no partition yet, as of a pattern that no topic matches
            asking = [asyncio.ensure_future(self._ask(self._admin, *each)) for each in requests.items()]
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            return True
        except KafkaError as error:
            logger.info("new records are looked for by the clock, as brokers cannot be asked to tell: %s", error)
            await self._disconnect()  # what the client knows of the cluster may be old
            return False
        except Exception:  # a mistake of ours: no query fails for its watch
            logger.exception("new records are looked for by the clock, as the watch has failed")
            return False
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _requests(self, admin: Admin, ends: Offsets) -> dict[int, FetchRequest]:
        """One for each leader, by its node id. Raises KafkaError."""
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
        """Until the broker has something to tell. Raises KafkaError."""
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
    """Whether there is something to read, or something has changed: an error says that a look is due."""
    if response.error_code:
        return True
    return any(part.error_code or part.records for topic in response.responses for part in topic.partitions)
