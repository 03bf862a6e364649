"""Keeps the client's view of the cluster fresh: refreshes it at start, periodically, and when a broker's response shows
that the metadata are outdated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE, Broker, Cluster, Topic, error_of, fault_of
from oncelog.config import ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ClientClosed, ConnectionFailed, ErrorCode, KafkaError, RequestTimedOut, error_for
from oncelog.names import check_topic
from oncelog.timer import Timer
from oncelog_protocol.messages.metadata import MetadataRequest

logger = logging.getLogger(__name__)

IN_A_ROW: Final = 2
"""Two refreshes count as consecutive if the time between them is at most the largest backoff multiplied by this number.
"""


class Metadata:
    """Fetches and updates the metadata of the topics in use.

    Refreshes are shared: at most one request is outstanding, and repeated requests back off (KIP-580). The topics in
    use are the topics that any `in_use` function returns, the topics that a caller waits for and, with `max_idle_ms`,
    the topics used within that time (metadata.max.idle.ms). `listeners` are called after every successful refresh, and
    after a response has named a new leader.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        config: ClientConfig,
        *,
        allow_auto_topic_creation: bool = False,
        max_idle_ms: int | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._pool = pool
        self._config = config
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._max_idle_s = None if max_idle_ms is None else max_idle_ms / 1000
        self._used: dict[str, float] = {}
        self._waited_for: Counter[str] = Counter()
        self.in_use: list[Callable[[], Iterable[str]]] = []
        self._follows_all = False
        self._asked: frozenset[str] = frozenset()
        self._errors: dict[str, KafkaError] = {}
        self._running: asyncio.Task[Cluster] | None = None
        self._timer = Timer(self._alarm_rang)
        self._failures = 0
        self._in_a_row = 0
        self._last_s = float("-inf")
        self._is_closed = False
        self.listeners: list[Callable[[], None]] = []

    @property
    def cluster(self) -> Cluster:
        return self._pool.cluster

    def use(self, topic: str) -> None:
        """Mark the topic as used, so that it is kept for metadata.max.idle.ms."""
        self._used[topic] = asyncio.get_running_loop().time()

    @contextmanager
    def waiting_for(self, topics: Iterable[str]) -> Iterator[None]:
        """Context manager: refreshes within its block also request these topics. Raises InvalidTopic for an
        invalid name."""
        names = set(topics)
        for name in names:
            check_topic(name)
        self._waited_for.update(names)
        try:
            yield
        finally:
            self._waited_for.subtract(names)
            for name in names:
                if not self._waited_for[name]:
                    del self._waited_for[name]

    def follow_all(self, is_wanted: bool) -> None:
        """Request all topics, or stop requesting all topics, from the next refresh on."""
        self._follows_all = is_wanted

    async def refresh(self) -> Cluster:
        """Return the cluster after a refresh; an outstanding refresh is shared. Raises KafkaError."""
        return await asyncio.shield(self._start())

    async def try_refresh(self) -> None:
        """Call `refresh`, but do not raise retriable errors."""
        try:
            await self.refresh()
        except ClientClosed:
            raise
        except KafkaError as error:
            if not error.retriable:
                raise

    def request_refresh(self) -> None:
        """Start a refresh without waiting for it: immediately, or retry.backoff.ms after the last refresh, or even
        later if the last refresh did not help.
        """
        if self._running is not None or self._is_closed:
            return
        self._schedule(max(0.0, self._last_s + self._backoff(self._in_a_row) - asyncio.get_running_loop().time()))

    async def refresh_again(self) -> Cluster:
        """Refresh after the backoff of `request_refresh`, for callers that repeat the refresh."""
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self._last_s + self._backoff(self._in_a_row) - now))
        return await self.refresh()

    def learn_leader(
        self, topic: str, partition: int, leader: int, leader_epoch: int, brokers: Iterable[Broker] = ()
    ) -> None:
        """Store a new leader, and the addresses of `brokers`, from the response of a former leader (KIP-951)."""
        known = self.cluster.with_brokers(broker for broker in brokers if broker.node_id == leader)
        cluster = known.with_leader(topic, partition, leader, leader_epoch)
        if cluster is not known:
            self._pool.cluster = cluster
            self._notify()

    async def topic(self, name: str, timeout_s: float) -> Topic:
        """Return the topic once it has partitions; waits for a topic that is being created. Raises KafkaError
        immediately if waiting does not help (authorization, invalid name), otherwise after `timeout_s`.
        """
        with self.waiting_for([name]):
            found = await self._wait_for(name, timeout_s)
            if self._max_idle_s is not None:
                self.use(name)
            return found

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
                    is_told = name in self._asked
                    if attempts and is_told:
                        cause = self._errors.get(name) or _why_unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                        if cause.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            cause = _why_unknown(cause.code)
                        if not cause.retriable:
                            raise error_for(cause.code, f"topic {name!r}: {cause.message}")
                    # The first refresh may have started before and not include the topic; a second refresh always
                    # includes it.
                    if attempts > 1 or (attempts and is_told):
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
        self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _start(self) -> asyncio.Task[Cluster]:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if self._running is None:
            self._timer.cancel()
            self._running = asyncio.ensure_future(self._refresh_once())
            self._running.add_done_callback(self._refreshed)
        return self._running

    async def _refresh_once(self) -> Cluster:
        try:
            return await self._refresh()
        finally:
            # Clear the task here, and not in a callback of the task: a caller that comes before the callback runs would
            # otherwise share a task that is already finished.
            self._running = None

    async def _refresh(self) -> Cluster:
        asked, is_complete = self._topics_in_use(), self._follows_all
        named = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(asked)]
        request = MetadataRequest(
            topics=None if is_complete else named,
            allow_auto_topic_creation=self._allow_auto_topic_creation,
        )
        # Two consecutive refreshes are normal, for example at start. If a third refresh is needed, the responding
        # broker may lag behind, so the request goes to another broker.
        elsewhere = self._in_a_row > 1 and self._is_in_a_row(asyncio.get_running_loop().time())
        response = await self._pool.ask_any(request, elsewhere=elsewhere)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._pool.start_over()
            raise ConnectionFailed("a broker says REBOOTSTRAP_REQUIRED: asking the bootstrap servers next")
        if response.error_code:
            raise error_for(response.error_code)
        self._asked = asked
        self._errors = {
            topic.name: error_for(code, fault_of(topic))
            for topic in response.topics
            if topic.name and (code := error_of(topic))
        }
        for name, error in self._errors.items():
            if error.code is ErrorCode.LEADER_NOT_AVAILABLE:
                logger.info("%s: %s", name, error)
        cluster = self.cluster.updated(response, is_complete=is_complete)
        if not is_complete:
            # drop all topics, because this client no longer refreshes their metadata
            cluster = cluster.without(cluster.topics.keys() - asked)
        _log_what_has_no_leader(cluster, asked)
        self._pool.cluster = cluster
        return cluster

    def _is_in_a_row(self, now: float) -> bool:
        """Return whether a refresh now would directly follow a refresh that has not helped."""
        return now - self._last_s < IN_A_ROW * self._config.retry_backoff_max_ms / 1000

    def _topics_in_use(self) -> frozenset[str]:
        if self._max_idle_s is not None:
            oldest = asyncio.get_running_loop().time() - self._max_idle_s
            self._used = {name: used for name, used in self._used.items() if used >= oldest}
        return frozenset(self._used).union(self._waited_for, *(topics() for topics in self.in_use))

    def _refreshed(self, task: asyncio.Task[Cluster]) -> None:
        now = asyncio.get_running_loop().time()
        self._in_a_row = self._in_a_row + 1 if self._is_in_a_row(now) else 1
        self._last_s = now
        if task.cancelled():
            return
        error = task.exception()  # mark the error as retrieved: otherwise the loop logs it if no caller waits
        if self._is_closed:
            return
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
        self._timer.set(asyncio.get_running_loop().time() + delay_s)

    def _alarm_rang(self) -> None:
        if not self._is_closed:
            self._start()

    def _backoff(self, failures: int) -> float:
        return backoff_s(failures, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._rng)


def _log_what_has_no_leader(cluster: Cluster, names: Iterable[str]) -> None:
    """Log the partitions without a leader, because readers and writers of these partitions must wait."""
    topics = [topic for name in names if (topic := cluster.topics.get(name)) is not None]
    for topic in topics:
        leaderless = [index for index, known in topic.partitions.items() if known.leader == NO_NODE]
        if leaderless:
            error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{len(leaderless)} of its partitions have no leader")
            logger.info("%s-%d: %s", topic.name, leaderless[0], error)


def _why_unknown(code: int) -> KafkaError:
    """Return the error for a topic that no broker describes, because Kafka's own message for this error code is about a
    partition.
    """
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error_for(code, "the topic does not exist, and brokers have not created it (auto.create.topics.enable)")
    return error_for(code)
