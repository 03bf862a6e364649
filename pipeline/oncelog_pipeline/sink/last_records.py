"""Reads the last committed record of each key of a compacted partition, and keeps the records between two reads.

The first read fetches the entire partition, and each later read only what was appended since then. Both use the
connections of an admin client, so a read without new records takes two requests, Metadata and Fetch.

Invariants:

- `_records` has the last committed record of each key among all records below `_position`; keys whose last record is a
  tombstone are omitted.
- A read includes every record that was acknowledged before it. A leader that was just elected may report a high
  watermark, and a last stable offset, below such records, but answers ListOffsets only when its high watermark has
  caught up (KIP-207). So ListOffsets comes before the first Fetch in each leader epoch.
- The records are kept only for the same log: if the topic has another id, or its partition another leader epoch (a new
  leader may have truncated the log), the next read starts at the beginning of the log. Without topic ids (brokers
  before Apache Kafka 2.8) every read starts there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from oncelog import Admin, TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from oncelog.cluster import NO_NODE
from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.isolation import AbortedTransactions
from oncelog.errors import CorruptRecords, ErrorCode, KafkaError, error_for
from oncelog.metadata.list_offsets import CONSUMER
from oncelog_protocol.messages.fetch import FetchRequest, IsolationLevel
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.uuids import ZERO_UUID

FETCH_BYTES: Final = 4 << 20
"""Maximum size of one Fetch response, in bytes."""
READ_SECONDS: Final = 60.0
"""How many seconds a read waits for the next records."""
ALL: Final = 1 << 31
"""A number of records that no Fetch response exceeds."""


class LastRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    value: bytes


class _Log(NamedTuple):
    """Identifies the content of a partition: while it is unchanged, the log only grows."""

    topic_id: bytes
    leader_epoch: int


class LastRecords:
    """The last committed record of each key of one partition."""

    def __init__(self, admin: Admin, partition: TopicPartition) -> None:
        self._admin = admin
        self._partition = partition
        self._reading = asyncio.Lock()
        self._log: _Log | None = None
        self._leader = NO_NODE
        self._position = 0
        self._records: dict[bytes, LastRecord] = {}

    async def read(self, *, beyond: int = -1, waits_for_open: bool = False) -> Mapping[bytes, LastRecord]:
        """Return the last record of each key, up to the last stable offset at the time of the call. The caller must not
        change the result. `beyond` is the offset of a record that is known to be committed: the read goes beyond it.
        With `waits_for_open` the read goes up to the high watermark, so it waits until all transactions that are open
        at the time of the call have ended.

        Raises KafkaError, also CorruptRecords at a batch that cannot be read, and TimeoutError if no record arrives for
        READ_SECONDS seconds.
        """
        try:
            async with asyncio.timeout(READ_SECONDS) as timeout:
                return await self._read(timeout, beyond, waits_for_open=waits_for_open)
        except TimeoutError as error:
            raise TimeoutError(
                f"{self._partition}: no record from offset {self._position} on was committed or could be read within"
                f" {READ_SECONDS:.0f} seconds: does oncelog txns find-hanging show a transaction, or has the topic lost"
                " records?"
            ) from error

    async def _read(self, timeout: asyncio.Timeout, beyond: int, *, waits_for_open: bool) -> Mapping[bytes, LastRecord]:
        """See `read`. Progress postpones the timeout. Other reads may run between two requests of this one."""
        loop = asyncio.get_running_loop()
        log: _Log | None = None
        end = -1
        while True:
            async with self._reading:
                before = self._position
                try:
                    if log is None or log != self._log:
                        log = None
                        await self._find_log()
                    high_watermark, last_stable_offset = await self._fetch()
                except KafkaError as error:
                    if not error.retriable or isinstance(error, CorruptRecords):
                        raise  # the log has the same bytes at the next attempt
                    log = None  # look up the leader again, and whether the log is still the same
                else:
                    if log is None:
                        log = self._log
                        end = max(high_watermark if waits_for_open else last_stable_offset, beyond + 1)
                    if self._position >= end:
                        return self._records
                has_advanced = self._position != before
            if has_advanced:
                timeout.reschedule(loop.time() + READ_SECONDS)
            else:
                await asyncio.sleep(self._admin.config.retry_backoff_ms / 1000)

    async def _find_log(self) -> None:
        """Look up the leader of the partition. If the partition has another topic id or leader epoch than at the last
        read, forget all records.
        """
        name, index = self._partition
        topic = (await self._admin.describe_topics([name]))[name]
        partition = topic.partitions[index]
        self._leader = partition.leader
        log = _Log(topic.topic_id, partition.leader_epoch)
        if log != self._log:
            await self._wait_for_high_watermark(log)
        if log != self._log or topic.topic_id == ZERO_UUID:
            self._start_at(0)
            self._log = log

    async def _wait_for_high_watermark(self, log: _Log) -> None:
        """Ask the leader for the end of the log, which it answers only when its high watermark has caught up. Raises
        KafkaError OFFSET_NOT_AVAILABLE before that, which `read` retries.
        """
        name, index = self._partition
        wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=index, current_leader_epoch=log.leader_epoch, timestamp=LATEST_TIMESTAMP
        )
        # read_uncommitted, because a leader may hold back the last stable offset until open transactions have ended
        request = ListOffsetsRequest(
            replica_id=CONSUMER, topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[wanted])]
        )
        response = await self._admin.send_to(self._leader, request)
        answer: Any = response.topics[0].partitions[0]
        if answer.error_code:
            raise error_for(answer.error_code, f"{self._partition}: {ErrorCode.of(answer.error_code).meaning}")

    def _start_at(self, offset: int) -> None:
        self._position = offset
        self._records = {}

    async def _fetch(self) -> tuple[int, int]:
        """Fetch the records from the position on, and return the high watermark and the last stable offset. Raises
        KafkaError.
        """
        name, index = self._partition
        assert self._log is not None
        wanted = FetchRequest.FetchTopic.FetchPartition(
            partition=index,
            current_leader_epoch=self._log.leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=IsolationLevel.READ_COMMITTED,
            topics=[FetchRequest.FetchTopic(topic=name, partitions=[wanted])],
        )
        response = await self._admin.send_to(self._leader, request)
        if response.error_code:
            raise error_for(response.error_code)
        answer: Any = response.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # records at the beginning were deleted, or records at the end were lost
            earliest = await self._admin.list_offsets({self._partition: EARLIEST_TIMESTAMP})
            self._start_at(earliest[self._partition].offset)
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self._partition}: the read starts again")  # retriable
        if answer.error_code:
            raise error_for(answer.error_code, f"{self._partition}: {ErrorCode.of(answer.error_code).meaning}")
        if answer.records:
            self._add(memoryview(answer.records), AbortedTransactions(answer.aborted_transactions or ()))
        return answer.high_watermark, answer.last_stable_offset

    def _add(self, data: memoryview, aborted: AbortedTransactions) -> None:
        """Add the committed records of a Fetch response. Raises CorruptRecords."""
        fetched = FetchedPartition(*self._partition, self._position, data, check_crcs=True, aborted=aborted)
        for record in fetched.take(ALL):
            key = record.key or b""
            if record.value is None:
                self._records.pop(key, None)
            else:
                self._records[key] = LastRecord(record.offset, record.timestamp_ms, record.value)
        # not `end_offset`: `take` stops before an unreadable batch, at which the next Fetch begins
        self._position = fetched.next_offset
