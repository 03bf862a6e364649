"""Fetch (1), v4-18: record batches from an offset on, waiting for more where there is too little.

Behaviour: partitions in the order of the request or session (T11); whole batches only; the first that has data may
exceed every limit by its first batch, so that no batch is too large to be read. Waits up to max_wait_ms for min_bytes,
or for max_bytes where those are fewer. Errors of a partition answer at once, and so does a reader's epoch that is not
in the log (diverging_epoch). Records are slices of mapped files, but for the first few, which are copied. How many, the
ledger decides: a client that does not read its answers holds little of the heap.
Versions: v7 incremental sessions (KIP-227, fetch_sessions.py), v9 leader epochs, v10 zstd, v12 flexible, v13 topic ids
instead of names.
"""

from __future__ import annotations

from mmap import mmap
from typing import Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.replication.waiting import WaitingFetch
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.answer_queue import SCATTER_BYTES
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.fetch_sessions import NO_SESSION, PARTITIONS_PER_STEP, FetchPlan, Wanted
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.compression import Compression

PartitionResponse = FetchResponse.FetchableTopicResponse.PartitionData
AbortedTransaction = PartitionResponse.AbortedTransaction

FIRST_ZSTD_VERSION: Final = 10
FIRST_TOPIC_ID_VERSION: Final = 13
NO_RECORDS: Final = memoryview(b"")
NOT_THERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Of a partition that there is not, the aborted transactions are an empty list, as in Kafka; of others they are not
told beside an error."""
MAX_WAIT_SECONDS: Final = 600.0
"""However long a client says that it would wait."""


def handle(request: FetchRequest, context: RequestContext) -> Answer[FetchResponse]:
    if request.replica_id >= 0 or (request.replica_state is not None and request.replica_state.replica_id >= 0):
        # A consumer that pretends to be a follower would see past the high watermark (CVE-2018-1288).
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[])
    fetch = _Fetch(request, context)
    return then(context.in_slices(fetch.plan_and_read()), fetch.answer_or_wait)


class _Fetch:
    """One request, which reads its partitions, perhaps waits for more, and then reads them again."""

    __slots__ = ("_context", "_plan", "_refused", "_request")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._refused = ErrorCode.NONE
        self._request = request
        self._context = context
        self._plan: FetchPlan

    def plan_and_read(self) -> Steps[_Read | None]:
        """None where the session refuses."""
        services, by_id = self._context.services, self._context.version >= FIRST_TOPIC_ID_VERSION
        try:
            self._plan = yield from services.fetch_sessions.plan(
                self._request, by_id=by_id, now=services.clock.monotonic()
            )
        except KafkaError as error:
            self._refused = error.code
            return None
        return (yield from self._read())

    def _read(self) -> Steps[_Read]:
        return _Read(self._request, self._context).all_of(self._plan)

    def answer_or_wait(self, read: _Read | None) -> Answer[FetchResponse]:
        if read is None:
            return FetchResponse(error_code=self._refused, session_id=NO_SESSION, responses=[])
        request, limit = self._request, self._context.services.config[FETCH_MAX_BYTES]
        missing_bytes = min(request.min_bytes, request.max_bytes, limit) - read.total_bytes
        if request.max_wait_ms <= 0 or read.is_urgent or missing_bytes <= 0 or not read.partitions:
            return self._answer(read)
        waited = self._wait(read, missing_bytes)
        return then(then(waited, lambda _: self._context.in_slices(self._read())), self._answer)

    def _wait(self, read: _Read, missing_bytes: int) -> Answer[None]:
        """Until `missing_bytes` more are there or the time is up, whichever is first."""
        if read.is_outdated():
            return None
        read_committed = self._request.isolation_level == READ_COMMITTED
        waiting = WaitingFetch(read.partitions, missing_bytes, read_committed=read_committed)
        seconds = min(self._request.max_wait_ms / 1000, MAX_WAIT_SECONDS)
        self._context.services.deadlines.unless_done(waiting.enough, seconds, waiting.finish)
        return waiting.enough

    def _answer(self, read: _Read) -> Answer[FetchResponse]:
        if len(read.answers) <= PARTITIONS_PER_STEP:
            return self._plan.response(read.answers)
        return self._context.in_slices(self._plan.response_in_steps(read.answers))


class _Read:
    """One pass over the partitions of a plan, by `all_of`; `answers` are in its order."""

    __slots__ = ("_by_id", "_copies_left", "_isolation_level", "_replicas", "_version", "answers", "is_urgent",
                 "partitions", "remaining", "total_bytes")  # fmt: skip

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._replicas = context.services.replicas
        self._version = context.version
        self._by_id = context.version >= FIRST_TOPIC_ID_VERSION
        self._isolation_level = request.isolation_level
        self._copies_left = context.connection.copied_answer_bytes
        self.partitions: list[Partition] = []
        self.is_urgent = False
        """There is something to be told at once, however few bytes were read."""
        self.total_bytes = 0
        self.remaining = min(request.max_bytes, context.services.config[FETCH_MAX_BYTES])
        self.answers: list[PartitionResponse] = []

    def all_of(self, plan: FetchPlan) -> Steps[_Read]:
        for wanted in plan.wanted:
            if self.answers:
                yield None
            self.answers.append(self._read(wanted))
        return self

    def is_outdated(self) -> bool:
        """Whether a partition moved on, or is led no more, since it was read without an error: only where others came
        in between."""
        return any(
            partition.is_resigned
            or (partition.high_watermark, partition.last_stable_offset)
            != (read.high_watermark, read.last_stable_offset)
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
            divergence = partition.divergence(asked.fetch_offset, asked.last_fetched_epoch)
            if divergence is not None:
                self.is_urgent = True
                return _diverging(partition, asked.partition, *divergence)
            records, aborted = self._records(partition, asked.fetch_offset, asked.partition_max_bytes)
        except KafkaError as error:
            self.is_urgent = True
            return PartitionResponse(
                partition_index=asked.partition,
                error_code=error.code,
                high_watermark=-1,
                log_start_offset=-1,
                aborted_transactions=[] if error.code in NOT_THERE else None,
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
        size_limit, is_first, may_copy = min(max_bytes, self.remaining), self.total_bytes == 0, self._copies_left > 0
        aborted = None
        if self._isolation_level == READ_COMMITTED:
            records, found = partition.log.read_committed(
                offset,
                size_limit,
                upper_bound=partition.last_stable_offset,
                min_one_batch=is_first,
                may_copy=may_copy,
            )
            aborted = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found
            ]
        else:
            records = partition.log.read(
                offset,
                size_limit,
                upper_bound=partition.high_watermark,
                min_one_batch=is_first,
                may_copy=may_copy,
            )
        size = len(records)
        if size < SCATTER_BYTES or not isinstance(records.obj, mmap):
            if not (may_copy or is_first):  # what is small would be copied to be sent: it comes with the next answer
                self.is_urgent = True
                return NO_RECORDS, aborted and []
            self._copies_left -= size
        if size:
            self.total_bytes += size
            self.remaining = max(0, self.remaining - size)
            if self._version < FIRST_ZSTD_VERSION:
                _refuse_zstd(records)
        return records, aborted


def _diverging(partition: Partition, index: int, epoch: int, end_offset: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        diverging_epoch=PartitionResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset),
        records=b"",
    )


def _refuse_zstd(records: memoryview) -> None:
    """Clients of Fetch before v10 cannot read zstd (KIP-110, T19)."""
    if any(batch.compression == Compression.ZSTD for batch in batches(records)):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
