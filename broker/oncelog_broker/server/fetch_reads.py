"""One pass of a Fetch over its partitions: what a consumer may read of them, and what a follower is given.

A consumer reads below the high watermark or the last stable offset, at the leader or at a replica that is nearer. A
follower reads to the log's end, and what it asks for says how far it is, which moves the high watermark.
"""

from __future__ import annotations

from mmap import mmap
from typing import Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from oncelog_broker.replication.throttle import ReplicationQuota
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.answer_queue import SCATTER_BYTES
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.fetch_sessions import FetchPlan, Wanted
from oncelog_broker.server.leader_hints import FIRST_FETCH_VERSION, LeaderHints
from oncelog_broker.server.nearest_replica import STAY, NearestReplica, chooses
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.compression import Compression

PartitionRequest = FetchRequest.FetchTopic.FetchPartition
PartitionResponse = FetchResponse.FetchableTopicResponse.PartitionData
AbortedTransaction = PartitionResponse.AbortedTransaction

FIRST_ZSTD_VERSION: Final = 10
FIRST_TOPIC_ID_VERSION: Final = 13
WITH_A_HINT: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
NO_RECORDS: Final = memoryview(b"")
NOT_THERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Of a partition that there is not, the aborted transactions are an empty list, as in Kafka; of others they are not
told beside an error."""


class ConsumerRead:
    """One pass over the partitions of a plan, by `all_of`; `answers` are in its order."""

    __slots__ = ("_authorizes", "_by_id", "_context", "_copies_left", "_followed", "_is_replica", "_isolation_level",
                 "_nearest", "_now", "_replicas", "_version", "answers", "hints", "is_urgent",
                 "partitions", "remaining", "seconds_throttled", "total_bytes")  # fmt: skip

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._replicas = context.services.replicas
        self._version = context.version
        self._by_id = context.version >= FIRST_TOPIC_ID_VERSION
        self._isolation_level = request.isolation_level
        self._is_replica = False
        self._authorizes = context.services.authorizer is not None
        self._now = 0.0
        self._context = context
        self._nearest = NearestReplica.for_request(request, context) if request.rack_id else None
        self._copies_left = context.connection.copied_answer_bytes
        self.partitions: list[Partition] = []
        self._followed: dict[Partition, int] = {}
        """Those of them that this broker follows, with the leader epoch."""
        self.is_urgent = False
        """There is something to be told at once, however few bytes were read."""
        self.seconds_throttled = 0.0
        """How long some of them will be left out, 0 if none are. Nobody waits for records of those."""
        self.total_bytes = 0
        self.remaining = min(request.max_bytes, context.services.config[FETCH_MAX_BYTES])
        self.answers: list[PartitionResponse] = []
        self._context = context
        self.hints: LeaderHints | None = None
        """Who leads what another broker leads."""

    def all_of(self, plan: FetchPlan) -> Steps[ConsumerRead]:
        for wanted in plan.wanted:
            if self.answers:
                yield None
            self.answers.append(self._read(wanted))
        return self

    def is_outdated(self) -> bool:
        """Whether a partition moved on, or has another leader, since it was read without an error: only where others
        came in between."""
        return any(
            (partition.is_resigned and self._followed.get(partition) != partition.leader_epoch)
            or (partition.high_watermark, partition.last_stable_offset)
            != (read.high_watermark, read.last_stable_offset)
            for partition, read in zip(self.partitions, self.answers, strict=True)
        )

    def _read(self, wanted: Wanted) -> PartitionResponse:
        (name, topic_id), asked = wanted
        partition = None
        try:
            if self._authorizes:
                self._check_may_read(name or self._name_of(topic_id))
            if self._is_replica:
                partition = self._replicas.led_by_id(topic_id, asked.partition)
                divergence = self._check_replica(partition, asked)
            else:
                partition = self._find(name, topic_id, asked.partition)
                partition.check_leader_epoch(asked.current_leader_epoch)
                divergence = partition.check_reader(asked.fetch_offset, asked.last_fetched_epoch)
            if divergence is not None:
                self.is_urgent = True
                return _diverging(partition, asked.partition, *divergence)
            if self._nearest is not None and partition.leads:
                nearest = self._nearest.of(partition, asked.fetch_offset)
                if nearest != STAY:
                    self.is_urgent = True
                    return _better_read_at(partition, asked.partition, nearest)
            throttle = self._throttle_of(partition) if self._is_replica else None
            if throttle is not None and throttle.is_exceeded(self._now):
                self.seconds_throttled = throttle.seconds_left(self._now)
                return _without_records(partition, asked.partition)
            records, aborted = self._records(partition, asked.fetch_offset, asked.partition_max_bytes)
            if throttle is not None:
                throttle.record(len(records), self._now)
        except KafkaError as error:
            self.is_urgent = True
            return PartitionResponse(
                partition_index=asked.partition,
                error_code=error.code,
                high_watermark=-1,
                current_leader=self._who_leads(wanted, error.code),
                log_start_offset=self._log_start_beside(error, partition),
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

    def _check_may_read(self, name: str) -> None:
        """Raises KafkaError, unless nobody knows what topic that is: then it is not there for others either."""
        if name and not self._context.may(rules.FETCH, name):
            raise KafkaError(rules.FETCH.refused)

    def _name_of(self, topic_id: bytes) -> str:
        topic = self._context.services.image.topic_by_id(topic_id)
        return "" if topic is None else topic.name

    def _who_leads(self, wanted: Wanted, code: ErrorCode) -> PartitionResponse.LeaderIdAndEpoch | None:
        if code not in WITH_A_HINT or self._is_replica or self._version < FIRST_FETCH_VERSION:
            return None
        own = code is ErrorCode.FENCED_LEADER_EPOCH  # we lead, in an epoch that the reader does not know
        self.hints = self.hints or LeaderHints(self._context)
        hint = self.hints.of(*wanted.topic, wanted.request.partition, by_id=self._by_id, or_own=own)
        return None if hint is None else PartitionResponse.LeaderIdAndEpoch(**hint._asdict())

    def _find(self, name: str, topic_id: bytes, index: int) -> Partition:
        """The partition, led or, where consumers are sent to followers, followed here. Raises KafkaError."""
        try:
            return self._replicas.leader_by_id(topic_id, index) if self._by_id else self._replicas.leader(name, index)
        except KafkaError:
            partition = None
            if chooses(self._context):
                key = topic_id if self._by_id else name
                partition = self._replicas.followed(key, index)
            if partition is None:
                raise
            self._followed[partition] = partition.leader_epoch
            return partition

    def _check_replica(self, partition: Partition, asked: PartitionRequest) -> tuple[int, int] | None:
        """None if the follower may read there, or where it left our log. Raises KafkaError."""
        raise NotImplementedError

    def _end_for_replica(self, partition: Partition) -> int:
        raise NotImplementedError

    def _throttle_of(self, partition: Partition) -> ReplicationQuota | None:
        """What holds back a follower that is behind in this partition; None: nothing does."""
        raise NotImplementedError

    def _log_start_beside(self, error: KafkaError, partition: Partition | None) -> int:
        """What is told of the log's start beside an error: nothing."""
        return -1

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
                upper_bound=self._end_for_replica(partition) if self._is_replica else partition.high_watermark,
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


class ReplicaRead(ConsumerRead):
    """The same for a follower, by `all_of`. Its first pass over the partitions `notes` how far it is.

    What is throttled, and more than its share was sent, it gets no records of: as if there were none.
    """

    __slots__ = ("_broker_epoch", "_broker_id", "_ends", "_notes", "_quota", "joining")

    def __init__(
        self, request: FetchRequest, context: RequestContext, broker_id: int, broker_epoch: int, *, notes: bool
    ) -> None:
        super().__init__(request, context)
        self._isolation_level = READ_UNCOMMITTED
        self._is_replica = True
        self._authorizes = False  # brokers may, and that was asked
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._notes = notes
        self._now = context.services.clock.monotonic()
        self._quota = context.services.throttles.leader
        self._ends: list[int] = []
        """Of the logs, when they were read: those of `partitions`."""
        self.joining: list[Partition] = []
        """Those whose ISR the follower might join now."""

    def _check_replica(self, partition: Partition, asked: PartitionRequest) -> tuple[int, int] | None:
        position = FetchPosition(asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch)
        divergence = partition.check_follower(self._broker_id, position)
        if divergence is None and self._notes:
            may_join = partition.on_follower_fetch(
                self._broker_id,
                asked.fetch_offset,
                broker_epoch=self._broker_epoch,
                log_start_offset=asked.log_start_offset,
                now=self._now,
            )
            if may_join:
                self.joining.append(partition)
        return divergence

    def _throttle_of(self, partition: Partition) -> ReplicationQuota | None:
        if not partition.is_throttled_as_leader or self._broker_id in partition.isr:
            return None
        return self._quota

    def _log_start_beside(self, error: KafkaError, partition: Partition | None) -> int:
        """Beside OFFSET_OUT_OF_RANGE, so that one which is far behind knows where to begin anew."""
        out_of_range = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        return partition.log.log_start_offset if out_of_range and partition is not None else -1

    def _end_for_replica(self, partition: Partition) -> int:
        self._ends.append(partition.log.log_end_offset)
        return partition.log.log_end_offset

    def is_outdated(self) -> bool:
        """Whether something was appended to a partition, or it is led no more, since it was read without an error."""
        return any(
            partition.is_resigned or partition.log.log_end_offset != end
            for partition, end in zip(self.partitions, self._ends, strict=True)
        )


def _without_records(partition: Partition, index: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        records=NO_RECORDS,
    )


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


def _better_read_at(partition: Partition, index: int, broker_id: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        preferred_read_replica=broker_id,
        records=b"",
    )


def _refuse_zstd(records: memoryview) -> None:
    """Clients of Fetch before v10 cannot read zstd (KIP-110, T19)."""
    if any(batch.compression == Compression.ZSTD for batch in batches(records)):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
