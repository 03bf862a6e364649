"""Reads raw batches of a log, including markers and aborted batches, for programs that inspect a log rather than for
consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncelog.admin.calls import Calls
from oncelog.cluster import TopicPartition
from oncelog.errors import CorruptRecords, ErrorCode, KafkaError, error_for
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse, IsolationLevel
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch, batches, whole_batches_size

AbortedTransaction = FetchResponse.FetchableTopicResponse.PartitionData.AbortedTransaction


@dataclass(frozen=True, slots=True)
class LogPart:
    """Complete batches of one partition; the first batch may start below the requested offset. `aborted` contains the
    aborted transactions
    that overlap these batches; it is empty unless the isolation level is READ_COMMITTED. The batches of aborted
    transactions are included.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    batches: tuple[RecordBatch, ...]
    aborted: tuple[AbortedTransaction, ...]


async def read_log(
    calls: Calls,
    offsets: Mapping[TopicPartition, int],
    *,
    max_bytes: int,
    partition_max_bytes: int | None,
    max_wait_ms: int,
    isolation_level: IsolationLevel,
    timeout_ms: int | None,
) -> dict[TopicPartition, LogPart]:
    """See `Admin.read_log`."""

    async def ask(node_id: int, part: dict[TopicPartition, int]) -> dict[TopicPartition, LogPart | KafkaError]:
        response = await calls.send_to(
            node_id, _request(part, max_bytes, partition_max_bytes, max_wait_ms, isolation_level)
        )
        if response.error_code:
            raise error_for(response.error_code)
        return {
            TopicPartition(topic.topic, answer.partition_index): _part(topic.topic, answer)
            for topic in response.responses
            for answer in topic.partitions
        }

    return await calls.ask_leaders(offsets, ask, timeout_ms=timeout_ms)


def _request(
    part: Mapping[TopicPartition, int],
    max_bytes: int,
    partition_max_bytes: int | None,
    max_wait_ms: int,
    isolation_level: IsolationLevel,
) -> FetchRequest:
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for (name, index), offset in part.items():
        wanted = FetchRequest.FetchTopic.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes or max_bytes
        )
        topics.setdefault(name, FetchRequest.FetchTopic(topic=name, partitions=[])).partitions.append(wanted)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=list(topics.values()),
    )


def _part(topic: str, answer: Any) -> LogPart | KafkaError:
    if answer.error_code:
        meaning = ErrorCode.of(answer.error_code).meaning
        return error_for(answer.error_code, f"{topic}-{answer.partition_index}: {meaning}")
    data = memoryview(answer.records or b"")
    try:
        found = tuple(batches(data[: whole_batches_size(data)]))
    except CorruptBatch as error:
        why = f"{topic}-{answer.partition_index}: the fetched batches are unreadable: {error}"
        return CorruptRecords(ErrorCode.CORRUPT_MESSAGE, why)
    return LogPart(
        answer.log_start_offset,
        answer.last_stable_offset,
        answer.high_watermark,
        found,
        tuple(answer.aborted_transactions or ()),
    )
