"""One pass of a Fetch over its partitions (each partition is read once), for a consumer or a follower.

A consumer reads below the high watermark or the last stable offset, at the leader or at a nearer replica. A follower
reads to the log's end, and its fetch offset reports its progress, which can advance the high watermark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from mmap import mmap
from typing import Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.log.config import ZSTD
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.kept.fetch_sessions import FIRST_TOPIC_ID_VERSION, FetchPlan, FetchSession, Follower
from oncelog_broker.server.kept.session_partition import Wanted
from oncelog_broker.server.net.answer_queue import SCATTER_BYTES
from oncelog_broker.server.records.nearest_replica import STAY, NearestReplica, chooses
from oncelog_broker.server.records.services import RecordContext
from oncelog_broker.server.request.leader_hints import FIRST_FETCH_VERSIONS, LeaderHints
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

PartitionRequest = FetchRequest.FetchTopic.FetchPartition
PartitionResponse = FetchResponse.FetchableTopicResponse.PartitionData
AbortedTransaction = PartitionResponse.AbortedTransaction
Read = tuple[memoryview, list[AbortedTransaction] | None]
"""Records, and the aborted transactions among the records (None if the reader did not request the list of aborted
transactions, S52).
"""

FIRST_ZSTD_VERSION: Final = 10
NO_RECORDS: Final = memoryview(b"")
NOT_THERE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""The errors whose responses have an empty list as aborted_transactions, as in Kafka; for other errors,
aborted_transactions is null.
"""


class FetchRead(ABC):
    """Reads each partition of a plan once (`all_of`). `answers` has the response for each partition, in the plan's
    order."""

    __slots__ = ("_copies_left", "_replicas", "_sizes", "_version", "answers", "hints", "is_urgent", "partitions",
                 "remaining", "seconds_throttled", "throttled", "total_bytes")  # fmt: skip

    def __init__(self, request: FetchRequest, context: RecordContext) -> None:
        self._replicas = context.services.replicas
        self._version = context.version
        self._copies_left = context.connection.copied_answer_bytes
        self.partitions: list[Partition] = []
        """The partitions that this pass has read without an error."""
        self._sizes: list[int] = []
        """The number of bytes read from each of `partitions`."""
        self.is_urgent = False
        """Whether the response must be sent immediately, however few bytes were read."""
        self.seconds_throttled = 0.0
        """The number of seconds for which throttled partitions are skipped; 0 if no partition is throttled."""
        self.throttled: set[Partition] = set()
        """The throttled partitions that this pass has skipped. A waiting fetch does not wait for their records."""
        self.total_bytes = 0
        self.remaining = min(request.max_bytes, context.services.config[FETCH_MAX_BYTES])
        self.answers: list[PartitionResponse] = []
        self.hints: LeaderHints | None = None
        """The leader hints for partitions that other brokers lead; None if no partition needs a leader hint."""

    def all_of(self, plan: FetchPlan) -> Steps[FetchRead]:
        for wanted in plan.wanted:
            if self.answers:
                yield None
            self.answers.append(self._read(wanted))
        return self

    @abstractmethod
    def is_outdated(self) -> bool:
        """Return whether the result of this pass is out of date: one of `partitions` has got changes for the client, or
        another leader, since it was read. This is possible only if other work ran since then.
        """

    def _read(self, wanted: Wanted) -> PartitionResponse:
        partition, asked = None, wanted.request
        try:
            partition = self._find(wanted)
            answer = self._without_records(partition, asked)
            if answer is not None:
                return answer
            records, aborted = self._records(partition, asked)
        except KafkaError as error:
            self.is_urgent = True
            if partition is not None:
                partition.traffic.failed_fetches += 1
            return self._failed(wanted, partition, error)
        self.partitions.append(partition)
        self._sizes.append(len(records))
        answer = _state_of(partition, asked)
        answer.aborted_transactions = aborted
        answer.records = records
        return answer

    def count(self) -> None:
        """Count the sent bytes in the metrics, but not the bytes of a pass after which the request waits for more."""
        for partition, size in zip(self.partitions, self._sizes, strict=True):
            traffic = partition.traffic
            traffic.fetches += 1
            traffic.bytes_out += size

    @abstractmethod
    def _find(self, wanted: Wanted) -> Partition:
        """Return the partition to read. Raises KafkaError if the reader may not read the partition at this broker."""

    @abstractmethod
    def _without_records(self, partition: Partition, asked: PartitionRequest) -> PartitionResponse | None:
        """Return the response for a partition that returns no records; None means that its records may be read. Raises
        KafkaError.
        """

    @abstractmethod
    def _read_log(self, partition: Partition, offset: int, max_bytes: int, is_first: bool, may_copy: bool) -> Read:
        """Return the records from `offset` on, as far as this kind of reader may read. Raises KafkaError."""

    @abstractmethod
    def _failed(self, wanted: Wanted, partition: Partition | None, error: KafkaError) -> PartitionResponse:
        """Return the response for an error; `partition` is None if the partition was not found."""

    def _records(self, partition: Partition, asked: PartitionRequest) -> Read:
        if self._version < FIRST_ZSTD_VERSION:
            _check_topic_is_not_zstd(partition)
        is_first, may_copy = self.total_bytes == 0, self._copies_left > 0
        max_bytes = min(asked.partition_max_bytes, self.remaining)
        records, aborted = self._read_log(partition, asked.fetch_offset, max_bytes, is_first, may_copy)
        size = len(records)
        if size < SCATTER_BYTES or not isinstance(records.obj, mmap):
            # Leave these few records to the next response: few records are copied, and the copy does not fit into the
            # memory budget.
            if not (may_copy or is_first):
                self.is_urgent = True
                return NO_RECORDS, aborted and []
            self._copies_left -= size
        if size:
            self.total_bytes += size
            self.remaining = max(0, self.remaining - size)
        return records, aborted


class ConsumerRead(FetchRead):
    """One pass over the partitions of a consumer's fetch."""

    __slots__ = ("_by_id", "_context", "_followed", "_isolation_level", "_nearest")

    def __init__(self, request: FetchRequest, context: RecordContext) -> None:
        super().__init__(request, context)
        self._by_id = context.version >= FIRST_TOPIC_ID_VERSION
        self._context = context
        self._followed: dict[Partition, int] = {}
        """The members of `partitions` that this broker follows, each with its leader epoch."""
        self._isolation_level = request.isolation_level
        self._nearest = NearestReplica.for_request(request, context) if request.rack_id else None

    def is_outdated(self) -> bool:
        return any(
            (partition.is_resigned and self._followed.get(partition) != partition.leader_epoch)
            or (partition.high_watermark, partition.last_stable_offset)
            != (read.high_watermark, read.last_stable_offset)
            for partition, read in zip(self.partitions, self.answers, strict=True)
        )

    def _find(self, wanted: Wanted) -> Partition:
        """Return the partition if this broker leads it or, if consumers may read from followers, follows the partition.
        Raises KafkaError.
        """
        (name, topic_id), index = wanted.topic, wanted.request.partition
        if self._context.services.authorizer is not None:
            self._check_may_read(name, topic_id)
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

    def _check_may_read(self, name: str, topic_id: bytes) -> None:
        """Raises KafkaError if the client may not read the topic. An unknown topic id raises no error here, because the
        search for the partition reports it.
        """
        if self._by_id:
            topic = self._context.services.image.topic_by_id(topic_id)
            name = "" if topic is None else topic.name
        if name:
            self._context.require(rules.FETCH, name)

    def _without_records(self, partition: Partition, asked: PartitionRequest) -> PartitionResponse | None:
        partition.check_leader_epoch(asked.current_leader_epoch)
        divergence = partition.check_reader(asked.fetch_offset, asked.last_fetched_epoch)
        if divergence is not None:
            self.is_urgent = True
            return _diverging(partition, asked, divergence)
        if self._nearest is None or not partition.leads:
            return None
        nearest = self._nearest.of(partition, asked.fetch_offset)
        if nearest == STAY:
            return None
        self.is_urgent = True
        answer = _state_of(partition, asked)
        answer.preferred_read_replica = nearest
        return answer

    def _read_log(self, partition: Partition, offset: int, max_bytes: int, is_first: bool, may_copy: bool) -> Read:
        if self._isolation_level != READ_COMMITTED:
            end = partition.high_watermark
            records = partition.log.reader.read(
                offset, max_bytes, upper_bound=end, min_one_batch=is_first, may_copy=may_copy
            )
            return records, None
        end = partition.last_stable_offset
        records, found = partition.log.reader.read_committed(
            offset, max_bytes, upper_bound=end, min_one_batch=is_first, may_copy=may_copy
        )
        return records, [
            AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found
        ]

    def _failed(self, wanted: Wanted, partition: Partition | None, error: KafkaError) -> PartitionResponse:
        answer = _failure(wanted, error)
        answer.current_leader = self._who_leads(wanted, error.code)
        return answer

    def _who_leads(self, wanted: Wanted, code: ErrorCode) -> PartitionResponse.LeaderIdAndEpoch | None:
        first_version = FIRST_FETCH_VERSIONS.get(code)
        if first_version is None or self._version < first_version:
            return None
        # If the error is FENCED_LEADER_EPOCH, this broker may be the leader, in an epoch that the reader does not know
        # yet.
        own = code is ErrorCode.FENCED_LEADER_EPOCH
        self.hints = self.hints or LeaderHints(self._context)
        hint = self.hints.of(*wanted.topic, wanted.request.partition, by_id=self._by_id, or_own=own)
        return None if hint is None else PartitionResponse.LeaderIdAndEpoch(**hint._asdict())


class ReplicaRead(FetchRead):
    """One pass over the partitions of a follower's fetch. `notes`: whether this pass records the follower's position;
    True in the first pass of a request.

    A throttled partition returns no records while the replication quota is exceeded.
    """

    __slots__ = ("_broker_epoch", "_broker_id", "_ends", "_notes", "_now", "_quota", "_session", "joining")

    def __init__(
        self,
        request: FetchRequest,
        context: RecordContext,
        follower: Follower,
        session: FetchSession | None,
        *,
        notes: bool,
    ) -> None:
        super().__init__(request, context)
        self._broker_id, self._broker_epoch = follower
        self._session = session
        self._notes = notes
        self._now = context.services.clock.monotonic()
        self._quota = context.services.throttles.leader
        self._ends: list[int] = []
        """The log end offset of each of `partitions` when it was read."""
        self.joining: list[Partition] = []
        """The partitions whose ISR the follower may be able to join now."""

    def is_outdated(self) -> bool:
        return any(
            partition.is_resigned or partition.log.log_end_offset != end
            for partition, end in zip(self.partitions, self._ends, strict=True)
        )

    def count(self) -> None:
        for partition, size in zip(self.partitions, self._sizes, strict=True):
            partition.traffic.replication_bytes_out += size

    def _find(self, wanted: Wanted) -> Partition:
        partition = self._replicas.led_by_id(wanted.topic[1], wanted.request.partition)
        if self._session is not None:
            self._session.visits(wanted, partition)
        return partition

    def _without_records(self, partition: Partition, asked: PartitionRequest) -> PartitionResponse | None:
        divergence = self._divergence(partition, asked)
        if divergence is not None:
            self.is_urgent = True
            return _diverging(partition, asked, divergence)
        if self._is_throttled(partition) and self._quota.is_exceeded(self._now):
            self.seconds_throttled = self._quota.seconds_left(self._now)
            self.throttled.add(partition)
            return _state_of(partition, asked)
        return None

    def _divergence(self, partition: Partition, asked: PartitionRequest) -> tuple[int, int] | None:
        """Return None if the follower may read from its offset; otherwise the point where the follower's log diverged
        from this broker's log. Raises KafkaError.
        """
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

    def _is_throttled(self, partition: Partition) -> bool:
        """Return whether reads of this partition count against the replication quota: the replica is throttled, and the
        follower lags behind.
        """
        return partition.is_throttled_as_leader and self._broker_id not in partition.isr

    def _records(self, partition: Partition, asked: PartitionRequest) -> Read:
        end = partition.log.log_end_offset
        records, aborted = super()._records(partition, asked)
        if self._is_throttled(partition):
            self._quota.record(len(records), self._now)
        self._ends.append(end)
        return records, aborted

    def _read_log(self, partition: Partition, offset: int, max_bytes: int, is_first: bool, may_copy: bool) -> Read:
        end = partition.log.log_end_offset
        records = partition.log.reader.read(
            offset, max_bytes, upper_bound=end, min_one_batch=is_first, may_copy=may_copy
        )
        return records, None

    def _failed(self, wanted: Wanted, partition: Partition | None, error: KafkaError) -> PartitionResponse:
        answer = _failure(wanted, error)
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and partition is not None:
            # A follower that is far behind restarts at this offset.
            answer.log_start_offset = partition.log.log_start_offset
        return answer


def _state_of(partition: Partition, asked: PartitionRequest) -> PartitionResponse:
    """Return a response with the fields that each partition gets, with or without records."""
    return PartitionResponse(
        partition_index=asked.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        records=NO_RECORDS,
    )


def _diverging(partition: Partition, asked: PartitionRequest, divergence: tuple[int, int]) -> PartitionResponse:
    answer = _state_of(partition, asked)
    epoch, end_offset = divergence
    answer.diverging_epoch = PartitionResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer


def _failure(wanted: Wanted, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=wanted.request.partition,
        error_code=error.code,
        high_watermark=-1,
        aborted_transactions=[] if error.code in NOT_THERE else None,
        records=NO_RECORDS,
    )


def _check_topic_is_not_zstd(partition: Partition) -> None:
    """A client that sends a Fetch before v10 does not declare that it can read zstd (KIP-110, T19). For such a client,
    a topic whose compression.type is zstd is refused. In other topics, batches that a producer compressed with zstd are
    sent unchanged. Some clients can read these batches although they use an old version; other clients report an error.
    """
    if partition.log.config.compression_type == ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
