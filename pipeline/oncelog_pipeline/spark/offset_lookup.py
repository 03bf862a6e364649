"""Looks up the partitions that a query reads, and the offsets at its beginning, at its end, or at a point in time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from oncelog import Admin, TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from oncelog.cluster import Topic
from oncelog.errors import ErrorCode, KafkaError, PartialFailure
from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.options.source_options import Bound, SourceOptions, Where
from oncelog_pipeline.sink.names import STATE_TOPIC
from oncelog_pipeline.source.offsets import EARLIEST, LATEST, Offsets
from oncelog_pipeline.source.progress import Log
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.uuids import ZERO_UUID, uuid_to_string

T = TypeVar("T")

SHOWN: Final = 5
"""The maximum number of partitions that a message names."""


class NoSuchTopic(Exception):
    """A topic or partition that the query names does not exist."""


class OffsetLookup:
    """Requests topics, partitions and offsets from the cluster. `options` say which topics and partitions are read, and
    with which isolation level.
    """

    def __init__(self, admin: Admin, options: SourceOptions) -> None:
        self._admin = admin
        self._options = options
        self._isolation_level = isolation_level_of(options)

    async def partitions(self) -> list[TopicPartition]:
        """Return the existing partitions that the query subscribes to, sorted. Raises KafkaError."""
        return self._subscribed(await self._topics())

    async def _topics(self) -> dict[str, Topic]:
        """Return the existing topics that the query subscribes to. Raises KafkaError.

        A pattern never matches the topics in which sinks keep their state, because a query would otherwise read its own
        writes.
        """
        subscription = self._options.subscription
        if subscription.pattern is not None:
            names = await self._again(self._admin.list_topics)
            states = (STATE_TOPIC, self._options.state_topic)
            topics = [name for name in names if re.fullmatch(subscription.pattern, name) and name not in states]
        else:
            topics = list(subscription.topics or {partition.topic for partition in subscription.partitions})
        return await self._again(lambda: self._described(topics))

    def _subscribed(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        there = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.partitions]
        wanted = frozenset(self._options.subscription.partitions)
        return sorted(partition for partition in there if not wanted or partition in wanted)

    async def partitions_at_first(self) -> list[TopicPartition]:
        """Return the existing partitions that a new query subscribes to, sorted; all topics that the query names must
        exist. Raises
        NoSuchTopic, KafkaError.
        """
        there = await self.partitions()
        topics = {partition.topic for partition in there}
        subscription = self._options.subscription
        missing = [name for name in subscription.topics if name not in topics]
        missing += [str(partition) for partition in subscription.partitions if partition not in there]
        if missing:
            raise NoSuchTopic(f"unknown topic {', '.join(missing[:SHOWN])}: create it first, or correct the name")
        return there

    async def ids(self) -> dict[str, str]:
        """Return the ids of the topics to which the query subscribes; empty if the cluster has no topic ids. Raises
        KafkaError.
        """
        return _ids(await self._topics())

    async def _described(self, topics: Collection[str]) -> dict[str, Topic]:
        """Describe topics; topics that do not exist are omitted."""
        if not topics:
            return {}
        try:
            return dict(await self._admin.describe_topics(topics))
        except KafkaError as error:
            errors = error.errors.values() if isinstance(error, PartialFailure) else [error]
            for each in errors:
                if each.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise each from None
            return dict(error.results) if isinstance(error, PartialFailure) else {}

    async def log(self) -> Log:
        """Return for each partition the first offset of its log, and the offset up to which it may be read. Raises
        KafkaError.
        """
        topics = await self._topics()
        partitions = self._subscribed(topics)
        return Log(*await asyncio.gather(self.earliest(partitions), self.latest(partitions)), _ids(topics))

    async def mean_bytes(self, log: Log) -> dict[TopicPartition, float]:
        """Return the average number of bytes per offset in the log of each partition, with records compressed as they
        are stored.

        Partitions without a record are omitted. Raises KafkaError if no broker answers (DescribeLogDirs needs the right
        to describe the cluster).
        """
        try:
            found = await self._again(self._admin.describe_log_dirs)
        except PartialFailure as error:
            if not error.results:
                raise
            found = dict(error.results)
        stored: dict[TopicPartition, int] = {}
        for directories in found.values():
            for directory in directories.values():
                if isinstance(directory, KafkaError):
                    continue
                for partition, replica in directory.replicas.items():
                    if partition in log.latest and not replica.is_future:
                        stored[partition] = max(replica.size, stored.get(partition, 0))
        counts = {partition: log.latest[partition] - log.earliest.get(partition, 0) for partition in stored}
        return {partition: stored[partition] / count for partition, count in counts.items() if count > 0}

    async def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each partition. Raises KafkaError."""
        return await self._offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    async def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the end of each partition; with read_committed this is the last stable offset. Raises KafkaError."""
        return await self._offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    async def resolve(self, bound: Bound, partitions: Collection[TopicPartition]) -> Offsets:
        """Convert a bound in the options to the offset of each partition. Raises OptionError, KafkaError."""
        if bound.where is Where.EARLIEST:
            return await self.earliest(partitions)
        if bound.where is Where.LATEST:
            return await self.latest(partitions)
        if bound.where is Where.TIMESTAMP:
            return await self._at_times(bound, dict.fromkeys(partitions, bound.timestamp_ms))
        _check_all_named(bound.offsets, partitions)
        if bound.where is Where.TIMESTAMPS:
            return await self._at_times(bound, bound.offsets)
        earliest = [partition for partition, offset in bound.offsets.items() if offset == EARLIEST]
        latest = [partition for partition, offset in bound.offsets.items() if offset == LATEST]
        return dict(bound.offsets) | await self.earliest(earliest) | await self.latest(latest)

    async def _at_times(self, bound: Bound, times: Mapping[TopicPartition, int]) -> Offsets:
        """Return the offset of the first record of each partition that is at or after the partition's timestamp in
        `times`. Raises OptionError, KafkaError.
        """
        found = await self._offsets(times)
        missing = [partition for partition, offset in found.items() if offset < 0]
        if missing and not bound.is_latest_where_none:
            told = ", ".join(str(partition) for partition in missing[:SHOWN])
            raise OptionError(
                f"no record at or after the timestamp in {told}: choose an earlier one, or set"
                " startingOffsetsByTimestampStrategy=latest to begin at the end of such partitions"
            )
        return found | await self.latest(missing)

    async def _offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        if not times:
            return {}
        found = await self._again(lambda: self._admin.list_offsets(times, isolation_level=self._isolation_level))
        return {partition: answer.offset for partition, answer in found.items()}

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Call `ask`, and retry it after transient errors: fetchOffset.numRetries times, with a pause of
        fetchOffset.retryIntervalMs.
        """
        for left in range(self._options.offset_retries, -1, -1):
            try:
                return await ask()
            except KafkaError as error:
                if not left or not error.retriable:
                    raise
            await asyncio.sleep(self._options.offset_retry_interval_ms / 1000)
        raise AssertionError


def isolation_level_of(options: SourceOptions) -> IsolationLevel:
    """Return the query's isolation level."""
    name: str = options.settings["isolation_level"]
    return IsolationLevel[name.upper()]


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: uuid_to_string(topic.topic_id) for name, topic in topics.items() if topic.topic_id != ZERO_UUID}


def _check_all_named(offsets: Offsets, partitions: Collection[TopicPartition]) -> None:
    """Raise OptionError unless the user has given an offset for exactly the partitions that are read."""
    if different := sorted(set(offsets) ^ set(partitions)):
        told = ", ".join(str(partition) for partition in different[:SHOWN])
        raise OptionError(f"offsets must be given for all partitions that are read, and no others: see {told}")
