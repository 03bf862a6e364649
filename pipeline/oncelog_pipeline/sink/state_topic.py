"""Stores the states of all queries in a compacted topic with one partition, and a committed offset for each query.

Reading a state takes two requests: one for the committed offset of the query's group, and a Fetch from that offset. The
offset is committed in the same transaction as the record, so transactions of other queries do not delay the read. A
group's offset expires (`offsets.retention.minutes`, a week without a batch); the record does not expire. If the offset
has expired, or the query is new, the state is searched among all records of the topic, of which a process reads each
only once (`last_records.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from oncelog import Admin, NewTopic, TopicPartition
from oncelog.clock import now_ms
from oncelog.errors import ErrorCode, KafkaError, TopicAlreadyExists, error_for
from oncelog_pipeline.sink.last_records import READ_SECONDS, LastRecords
from oncelog_pipeline.sink.names import PREFIX, STATE_TOPIC, Query
from oncelog_pipeline.sink.operations import StateLost
from oncelog_pipeline.sink.orphans import Kept
from oncelog_pipeline.sink.state import State, UnreadableState, state_from_json
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.record import read_records

ONE_BATCH: Final = 1
"""The fetch size in bytes; a broker returns at least one batch, however large."""

logger = logging.getLogger(__name__)


class StateTopic:
    """Reads the states with one admin client, whose connections it shares."""

    def __init__(self, admin: Admin, name: str = STATE_TOPIC) -> None:
        self._admin = admin
        self._leader: int | None = None
        """Node id of the last known leader; None before the first lookup, and after the leader has returned an
        error.
        """
        self.partition = TopicPartition(name, 0)
        self._last_records = LastRecords(admin, self.partition)

    async def ensure(self) -> None:
        """Create the topic if it does not exist. Raises KafkaError."""
        try:
            await self._admin.create_topics([NewTopic(self.partition.topic, 1, configs={"cleanup.policy": "compact"})])
        except TopicAlreadyExists:
            pass

    async def read(self, query: Query) -> State | None:
        """Return the last state of the query, after pending transactions with a newer state have ended. Raises
        KafkaError, UnreadableState, and StateLost if the query keeps its state in another topic.
        """
        offsets = await self._admin.groups.offsets(query.id, require_stable=True)
        committed = offsets.get(self.partition)
        value = None if committed is None else await self._record(committed.offset, query)
        if value is None:
            # a leader that was just elected may not return the record yet, though it has a committed offset
            value = await self._last_of(query, -1 if committed is None else committed.offset)
        if value is None and committed is None and offsets:
            raise self.kept_elsewhere(query.id, offsets)
        return None if value is None else state_from_json(value)

    async def has_had(self, query: Query) -> bool:
        """Return whether a state of the query was written, even if it was removed since: the removal commits the offset
        of its record, too. Takes one request. Raises KafkaError.
        """
        return self.partition in await self._admin.groups.offsets(query.id, require_stable=True)

    def kept_elsewhere(self, group: str, offsets: Iterable[TopicPartition]) -> StateLost:
        """Return the error for a group that has committed offsets in another topic; the group belongs to a query, or to
        one partition of a query.
        """
        others = ", ".join(sorted(partition.topic for partition in offsets))
        return StateLost(
            f"query {group.removeprefix(PREFIX)} keeps its state in the topic {others}, not in {self.partition.topic}:"
            " set the option stateTopic as it was"
        )

    async def _record(self, offset: int, query: Query) -> bytes | None:
        """Return the value of the query's record at this offset; None if the log no longer has that record."""
        async with asyncio.timeout(READ_SECONDS):
            while True:
                try:
                    return await self._fetch(offset, query)
                except KafkaError as error:
                    self._leader = None
                    if not error.retriable:
                        raise
                await asyncio.sleep(self._admin.config.retry_backoff_ms / 1000)

    async def _fetch(self, offset: int, query: Query) -> bytes | None:
        """Fetch one batch at this offset, and return the query's value. Raises KafkaError, UnreadableState."""
        name, index = self.partition
        if self._leader is None:
            topic = (await self._admin.describe_topics([name]))[name]
            self._leader = topic.partitions[index].leader
        wanted = FetchRequest.FetchTopic.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=ONE_BATCH
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=ONE_BATCH,
            topics=[FetchRequest.FetchTopic(topic=name, partitions=[wanted])],
        )
        response = await self._admin.send_to(self._leader, request)
        if response.error_code:
            raise error_for(response.error_code)
        answer: Any = response.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if answer.error_code:
            raise error_for(answer.error_code, f"{self.partition}: {ErrorCode.of(answer.error_code).meaning}")
        if not answer.records:
            return None
        try:
            records = [record for record in read_records(RecordBatch(answer.records)) if record.offset == offset]
        except CorruptBatch as error:
            raise UnreadableState(f"{self.partition}: offset {offset} cannot be read: {error}") from error
        if not records or bytes(records[0].key or b"") != query.id.encode() or records[0].value is None:
            return None
        return bytes(records[0].value)

    async def all(self) -> dict[str, Kept]:
        """Return the last state of each query, by the query's name. An unreadable state is skipped with a warning, so
        that it does not block other queries. Waits until writes of states that are in progress have ended, because such
        a transaction hides later states of other queries. Raises KafkaError, TimeoutError.
        """
        found = {}
        for key, record in (await self._last_records.read(waits_for_open=True)).items():
            if not key.startswith(PREFIX.encode()):
                continue
            name = key.decode(errors="replace").removeprefix(PREFIX)
            try:
                found[name] = Kept(state_from_json(record.value), max(0.0, (now_ms() - record.timestamp_ms) / 1000))
            except UnreadableState as error:
                logger.warning(
                    "%s, offset %d, query %s: record skipped: %s", self.partition, record.offset, name, error
                )
        return found

    async def _last_of(self, query: Query, known: int) -> bytes | None:
        """Return the last committed value of the query, from all its records up to the offset `known` and beyond.
        Raises KafkaError, TimeoutError.
        """
        record = (await self._last_records.read(beyond=known)).get(query.id.encode())
        return None if record is None else record.value
