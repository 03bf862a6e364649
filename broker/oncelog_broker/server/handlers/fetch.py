"""Fetch (1), v4-18: record batches from an offset on, waiting for more where there is too little.

Behaviour: partitions in the order of the request or session (T11); whole batches only; the first that has data may
exceed every limit by its first batch, so that no batch is too large to be read. Waits up to max_wait_ms for min_bytes,
or for max_bytes where those are fewer.
Errors of a partition answer at once.
Versions: v7 incremental sessions (KIP-227, fetch_sessions.py), v9 leader epochs, v10 zstd, v12 flexible, v13 topic ids
instead of names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.delayed import DelayedFetch
from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.fetch_sessions import NO_SESSION, FetchPlan, Wanted
from oncelog_broker.server.slices import Slices, in_slices
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.records.batch import batches

PartitionResponse = FetchResponse.FetchableTopicResponse.PartitionData
AbortedTransaction = PartitionResponse.AbortedTransaction

ZSTD: Final = 4
FIRST_ZSTD_VERSION: Final = 10
FIRST_TOPIC_ID_VERSION: Final = 13
MAX_WAIT_SECONDS: Final = 600.0
"""However long a client says that it would wait."""


Answer = FetchResponse | asyncio.Future[FetchResponse]


def handle(request: FetchRequest, context: RequestContext) -> Answer:
    if request.replica_id >= 0 or (request.replica_state is not None and request.replica_state.replica_id >= 0):
        # A consumer that pretends to be a follower would see past the high watermark (CVE-2018-1288).
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
    by_id = context.version >= FIRST_TOPIC_ID_VERSION
    try:
        plan = context.services.fetch_sessions.plan(request, by_id=by_id, now=context.services.clock.monotonic())
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    answer = in_slices(_answer(plan, request, context), context.services.clock)
    if isinstance(answer, Coroutine):
        return context.services.tasks.spawn("large fetch", _settled(answer))
    return answer


async def _settled(answer: Coroutine[Any, Any, Answer]) -> FetchResponse:
    settled = await answer
    return await settled if isinstance(settled, asyncio.Future) else settled


def _answer(plan: FetchPlan, request: FetchRequest, context: RequestContext) -> Slices[Answer]:
    """The response, or what will become of it when there is more to read."""
    read = _Read(request, context)
    yield from read.all_of(plan)
    min_bytes = min(request.min_bytes, request.max_bytes, context.services.config[FETCH_MAX_BYTES])
    if request.max_wait_ms <= 0 or read.failed or read.total_bytes >= min_bytes or not read.partitions:
        return plan.response(read.answers)
    return _wait(plan, request, context, read, min_bytes - read.total_bytes)


def _wait(
    plan: FetchPlan, request: FetchRequest, context: RequestContext, read: _Read, missing_bytes: int
) -> asyncio.Future[FetchResponse]:
    """Answer when `missing_bytes` more are there or the time is up, whichever is first."""
    future: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    def complete() -> None:
        if future.done():
            return
        answer = in_slices(_read_again(plan, request, context), context.services.clock)
        if isinstance(answer, Coroutine):
            context.services.tasks.spawn("large fetch", answer).add_done_callback(_hand_over)
        else:
            future.set_result(answer)

    def _hand_over(task: asyncio.Task[FetchResponse]) -> None:
        if future.done():
            return
        if task.cancelled():
            future.cancel()
        elif (failure := task.exception()) is not None:
            future.set_exception(failure)  # or nobody would ever let the connection go on
        else:
            future.set_result(task.result())

    read_committed = request.isolation_level == READ_COMMITTED
    delayed = DelayedFetch(read.partitions, missing_bytes, complete, read_committed=read_committed)
    future.add_done_callback(lambda _: delayed.finish())  # the client is gone: the partitions forget it
    context.services.deadlines.after(min(request.max_wait_ms / 1000, MAX_WAIT_SECONDS), delayed.finish)
    if read.is_outdated():
        delayed.finish()
    return future


def _read_again(plan: FetchPlan, request: FetchRequest, context: RequestContext) -> Slices[FetchResponse]:
    read = _Read(request, context)
    yield from read.all_of(plan)
    return plan.response(read.answers)


class _Read:
    """One pass over the partitions of a plan, by `all_of`; `answers` are in its order."""

    __slots__ = ("_by_id", "_isolation_level", "_replicas", "_version", "answers", "failed", "partitions", "remaining",
                 "total_bytes")  # fmt: skip

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._replicas = context.services.replicas
        self._version = context.version
        self._by_id = context.version >= FIRST_TOPIC_ID_VERSION
        self._isolation_level = request.isolation_level
        self.partitions: list[Partition] = []
        self.failed = False
        self.total_bytes = 0
        self.remaining = min(request.max_bytes, context.services.config[FETCH_MAX_BYTES])
        self.answers: list[PartitionResponse] = []

    def all_of(self, plan: FetchPlan) -> Iterator[None]:
        for wanted in plan.wanted:
            self.answers.append(self._read(wanted))
            yield

    def is_outdated(self) -> bool:
        """Whether a partition moved on since it was read without an error: only where others came in between."""
        return any(
            (partition.high_watermark, partition.last_stable_offset) != (read.high_watermark, read.last_stable_offset)
            for partition, read in zip(self.partitions, self.answers, strict=True)
        )

    def _read(self, wanted: Wanted) -> PartitionResponse:
        (name, topic_id), asked = wanted
        try:
            if self._by_id:
                partition = self._replicas.leader_by_id(topic_id, asked.partition)
            else:
                partition = self._replicas.leader(name, asked.partition)
            partition.check_leader_epoch(asked.current_leader_epoch)
            records, aborted = self._records(partition, asked.fetch_offset, asked.partition_max_bytes)
        except KafkaError as error:
            self.failed = True
            return PartitionResponse(
                partition_index=asked.partition,
                error_code=error.code,
                high_watermark=-1,
                log_start_offset=-1,
                records=b"",
            )
        self.partitions.append(partition)
        return PartitionResponse(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _records(
        self, partition: Partition, offset: int, max_bytes: int
    ) -> tuple[memoryview, list[AbortedTransaction] | None]:
        """The records, and which transactions among them are aborted (None: not asked, S52)."""
        size_limit, is_first = min(max_bytes, self.remaining), self.total_bytes == 0
        aborted = None
        if self._isolation_level == READ_COMMITTED:
            records, found = partition.log.read_committed(
                offset, size_limit, upper_bound=partition.last_stable_offset, min_one_batch=is_first
            )
            aborted = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found
            ]
        else:
            records = partition.log.read(
                offset, size_limit, upper_bound=partition.high_watermark, min_one_batch=is_first
            )
        size = len(records)
        if size:
            self.total_bytes += size
            self.remaining = max(0, self.remaining - size)
            if self._version < FIRST_ZSTD_VERSION:
                _refuse_zstd(records)
        return records, aborted


def _refuse_zstd(records: memoryview) -> None:
    """Clients of Fetch before v10 cannot read zstd (KIP-110, T19)."""
    if any(batch.compression == ZSTD for batch in batches(records)):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
