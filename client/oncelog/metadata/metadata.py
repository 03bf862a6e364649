"""Keeping the view of the cluster fresh: at start, when it grows old, and when a broker says that it is wrong."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Final

from oncelog.alarm import Alarm
from oncelog.backoff import backoff_s
from oncelog.cluster import Cluster, Topic
from oncelog.config import ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ClientClosed, ErrorCode, InvalidTopic, KafkaError, RequestTimedOut, error_for
from oncelog_protocol.messages.metadata import MetadataRequest

logger = logging.getLogger(__name__)

MAX_TOPIC_NAME: Final = 249
"""Characters: the name and a partition number must fit a directory name."""


class Metadata:
    """Follows the topics it was told of. Refreshes are shared: one request is under way at a time.

    `listeners` are called after every refresh that came through, and after a hint at a new leader.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        config: ClientConfig,
        *,
        allow_auto_topic_creation: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self._pool = pool
        self._config = config
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._topics: set[str] = set()
        self._follows_all = False
        self._asked: frozenset[str] = frozenset()
        self._errors: dict[str, int] = {}
        self._running: asyncio.Task[Cluster] | None = None
        self._alarm = Alarm(self._alarm_rang)
        self._failures = 0
        self._last_s = float("-inf")
        self._is_closed = False
        self.listeners: list[Callable[[], None]] = []

    @property
    def cluster(self) -> Cluster:
        return self._pool.cluster

    def track(self, topics: Iterable[str]) -> None:
        """Ask for these topics too, from the next refresh on. Raises InvalidTopic for what cannot be asked for."""
        names = set(topics)
        for name in names:
            if not isinstance(name, str) or not 0 < len(name) <= MAX_TOPIC_NAME:
                raise InvalidTopic(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"a topic name is a str of 1 to {MAX_TOPIC_NAME} characters"
                )
        self._topics |= names

    def follow_all(self, is_wanted: bool) -> None:
        """Ask for all topics that there are, or no longer, from the next refresh on."""
        self._follows_all = is_wanted

    async def refresh(self) -> Cluster:
        """The cluster after a refresh; joins one that is under way. Raises KafkaError."""
        return await asyncio.shield(self._start())

    async def try_refresh(self) -> None:
        """As `refresh`; a failure that may pass by itself is not raised."""
        try:
            await self.refresh()
        except ClientClosed:
            raise
        except KafkaError as error:
            if not error.retriable:
                raise

    def request_refresh(self) -> None:
        """Refresh soon, without waiting for it, and not more often than every retry.backoff.ms."""
        if self._running is not None or self._is_closed:
            return
        loop = asyncio.get_running_loop()
        self._schedule(max(0.0, self._last_s + self._config.retry_backoff_ms / 1000 - loop.time()))

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """A broker that is not the leader any more said who is (KIP-951)."""
        cluster = self.cluster.with_leader(topic, partition, leader, leader_epoch)
        if cluster is not self.cluster:
            self._pool.cluster = cluster
            self._notify()

    async def topic(self, name: str, timeout_s: float) -> Topic:
        """The topic, once it has partitions; waits for one that is being created.

        Raises KafkaError at once where waiting does not help (authorization, illegal name), else after `timeout_s`.
        """
        is_new = name not in self._topics
        self.track([name])
        try:
            return await self._wait_for(name, timeout_s)
        except KafkaError:
            if is_new:
                self._topics.discard(name)  # or each refresh would ask for it, and have it created, for ever
            raise

    async def _wait_for(self, name: str, timeout_s: float) -> Topic:
        deadline = asyncio.get_running_loop().time() + timeout_s
        cause: KafkaError | None = None
        attempts = 0
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    known = self.cluster.topics.get(name)
                    if known is not None and known.partitions:
                        return known
                    if attempts and name in self._asked:
                        cause = error_for(self._errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                        if not cause.retriable:
                            raise error_for(cause.code, f"topic {name!r}: {cause.message}")
                        await asyncio.sleep(self._backoff(attempts))
                    attempts += 1
                    try:
                        await self.refresh()
                    except ClientClosed:
                        raise
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        cause = error
                        await asyncio.sleep(self._backoff(attempts))
        except TimeoutError:
            raise RequestTimedOut(
                ErrorCode.REQUEST_TIMED_OUT,
                f"topic {name!r}: no metadata within {timeout_s:g} s" + (f": {cause.message}" if cause else ""),
            ) from cause

    async def close(self) -> None:
        self._is_closed = True
        self.listeners.clear()
        self._alarm.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _start(self) -> asyncio.Task[Cluster]:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if self._running is None:
            self._alarm.cancel()
            self._running = asyncio.ensure_future(self._refresh())
            self._running.add_done_callback(self._refreshed)
        return self._running

    async def _refresh(self) -> Cluster:
        asked, is_complete = frozenset(self._topics), self._follows_all
        named = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(asked)]
        request = MetadataRequest(
            topics=None if is_complete else named,
            allow_auto_topic_creation=self._allow_auto_topic_creation,
        )
        response = await self._pool.send_to_any(request)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._pool.cluster = Cluster()
        if response.error_code:
            raise error_for(response.error_code)
        self._asked = asked
        self._errors = {topic.name: topic.error_code for topic in response.topics if topic.name and topic.error_code}
        self._pool.cluster = self.cluster.updated(response, is_complete=is_complete)
        return self.cluster

    def _refreshed(self, task: asyncio.Task[Cluster]) -> None:
        self._running = None
        self._last_s = asyncio.get_running_loop().time()
        if task.cancelled() or self._is_closed:
            return
        error = task.exception()
        if error is None:
            self._failures = 0
            self._schedule(self._config.metadata_max_age_ms / 1000)
            self._notify()
            return
        self._failures += 1
        logger.info("metadata refresh failed (%d in a row): %s", self._failures, error)
        self._schedule(self._backoff(self._failures))

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def _schedule(self, delay_s: float) -> None:
        self._alarm.set(asyncio.get_running_loop().time() + delay_s)

    def _alarm_rang(self) -> None:
        if not self._is_closed:
            self._start()

    def _backoff(self, failures: int) -> float:
        return backoff_s(failures, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._rng)
