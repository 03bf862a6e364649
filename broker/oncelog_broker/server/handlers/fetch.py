"""Fetch (1), v4-18: record batches from an offset on, waiting for more where there is too little.

Behaviour: partitions in the order of the request (T11); whole batches only; the first that has data may exceed every
limit by its first batch, so that no batch is too large to be read. Waits up to max_wait_ms for min_bytes. Errors of a
partition answer at once.
Versions: v7 sessions (refused: session id 0 means none was made, KIP-227), v9 leader epochs, v10 zstd, v12 flexible,
v13 topic ids instead of names.
"""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.delayed import DelayedFetch
from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.server.dispatch import RequestContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.records.batch import batches

TopicRequest = FetchRequest.FetchTopic
PartitionRequest = TopicRequest.FetchPartition
TopicResponse = FetchResponse.FetchableTopicResponse
PartitionResponse = TopicResponse.PartitionData

ZSTD: Final = 4
FIRST_ZSTD_VERSION: Final = 10
FIRST_TOPIC_ID_VERSION: Final = 13
NO_SESSION_EPOCHS: Final = (-1, 0)


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | asyncio.Future[FetchResponse]:
    if request.session_id != 0 and request.session_epoch not in NO_SESSION_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    if request.replica_id >= 0:
        # A consumer that pretends to be a follower would see past the high watermark (CVE-2018-1288).
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
    read = _Read(request, context)
    if request.max_wait_ms <= 0 or read.failed or read.total_bytes >= request.min_bytes or not read.partitions:
        return read.response
    return _wait(request, context, read)


def _wait(request: FetchRequest, context: RequestContext, read: _Read) -> asyncio.Future[FetchResponse]:
    """Answer when min_bytes are there or the time is up, whichever is first."""
    future: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    def complete() -> None:
        if not future.done():
            future.set_result(_Read(request, context).response)

    delayed = DelayedFetch(read.partitions, request.min_bytes - read.total_bytes, complete)
    context.broker.deadlines.after(request.max_wait_ms / 1000, delayed.finish)
    return future


class _Read:
    """One pass over the partitions of a request."""

    __slots__ = ("_context", "_isolation_level", "failed", "partitions", "remaining", "response", "total_bytes")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._context = context
        self._isolation_level = request.isolation_level
        self.response = FetchResponse(responses=[])
        self.partitions: list[Partition] = []
        self.failed = False
        self.total_bytes = 0
        self.remaining = min(request.max_bytes, context.broker.config[FETCH_MAX_BYTES])
        for topic in request.topics:
            answers = [self._read(topic, wanted) for wanted in topic.partitions]
            self.response.responses.append(
                TopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
            )

    def _read(self, topic: TopicRequest, wanted: PartitionRequest) -> PartitionResponse:
        try:
            replicas = self._context.broker.replicas
            if self._context.version >= FIRST_TOPIC_ID_VERSION:
                partition = replicas.leader_by_id(topic.topic_id, wanted.partition)
            else:
                partition = replicas.leader(topic.topic, wanted.partition)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            records = self._records(partition, wanted)
        except KafkaError as error:
            self.failed = True
            return _failure(wanted.partition, error)
        self.partitions.append(partition)
        return PartitionResponse(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=[] if self._isolation_level == READ_COMMITTED else None,
            records=records,
        )

    def _records(self, partition: Partition, wanted: PartitionRequest) -> memoryview:
        records = partition.log.read(
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, self.remaining),
            upper_bound=partition.upper_bound(self._isolation_level),
            min_one_batch=self.total_bytes == 0,
        )
        size = len(records)
        if size:
            self.total_bytes += size
            self.remaining = max(0, self.remaining - size)
            if self._context.version < FIRST_ZSTD_VERSION:
                _refuse_zstd(records)
        return records


def _refuse_zstd(records: memoryview) -> None:
    """Clients of Fetch before v10 cannot read zstd (KIP-110, T19)."""
    if any(batch.compression == ZSTD for batch in batches(records)):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def _failure(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, high_watermark=-1, log_start_offset=-1, records=b""
    )
