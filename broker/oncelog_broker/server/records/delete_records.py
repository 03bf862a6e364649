"""DeleteRecords (21), v0-2: make the records below an offset unreadable by moving the log start offset.

Offset -1 stands for the high watermark. Segments that lie wholly below the new start are deleted. The new start is on
disk before the answer: what was said to be gone does not come back after a crash. Nor does it after an election: the
answer waits up to timeout_ms for all replicas that are in sync, and says where the last of them begins. (Kafka waits
for all that are alive; here one that is not in sync may join only when it has deleted the same.)

A new leader whose high watermark has not caught up answers OFFSET_NOT_AVAILABLE, which clients retry, for an offset
above it: the offset may be that of an acknowledged record. (Kafka answers OFFSET_OUT_OF_RANGE.)
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from oncelog_broker.metadata.topic_names import is_internal
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import LightJob, Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records.services import RecordContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

logger = logging.getLogger(__name__)

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult

HIGH_WATERMARK: Final = -1


class Deleted(NamedTuple):
    """A deletion in one partition, done in this broker's log."""

    result: PartitionResult
    partition: Partition
    offset: int
    """All records before it are to be deleted."""


def handle(request: DeleteRecordsRequest, context: RecordContext) -> Answer[DeleteRecordsResponse]:
    delete = _Delete(request, context)
    return then(context.services.slices.run(delete.all_then_note(), must_finish=True), delete.everywhere)


class _Delete:
    """One DeleteRecords request."""

    __slots__ = ("_context", "_deleted", "_deleted_here", "_request")

    def __init__(self, request: DeleteRecordsRequest, context: RecordContext) -> None:
        self._request = request
        self._context = context
        self._deleted_here: list[Deleted] = []
        self._deleted: list[Deleted] = []
        """The deletions that have other replicas."""

    def all_then_note(self) -> Steps[DeleteRecordsResponse]:
        """Delete in our logs, and write that down."""
        topics = []
        for topic in self._request.topics:
            results = []
            may = self._context.may(rules.DELETE_RECORDS, topic.name)
            for wanted in topic.partitions:
                if not may:
                    results.append(_failed(wanted.partition_index, rules.DELETE_RECORDS.refused))
                    yield None
                    continue
                results.append(self._delete(topic.name, wanted.partition_index, wanted.offset))
                yield None
            topics.append(TopicResult(name=topic.name, partitions=results))
        try:
            yield LightJob(self._context.services.logs.checkpoint_log_start_offsets)
        except OSError as error:
            logger.error("log starts could not be written down", extra={"reason": error})
        for result, partition, _ in self._deleted_here:
            # The records are not to be read now, but may be again after a crash. Other disks may have written theirs.
            if partition.log.state.durable_start_offset < result.low_watermark:
                result.error_code = result.error_code or ErrorCode.KAFKA_STORAGE_ERROR
        return DeleteRecordsResponse(topics=topics)

    def _delete(self, topic: str, index: int, offset: int) -> PartitionResult:
        result = _failed(index, ErrorCode.NONE)
        try:
            partition = self._context.services.replicas.leader(topic, index)
            target = _delete(topic, partition, offset)
        except KafkaError as error:
            result.error_code = error.code
            return result
        result.low_watermark = partition.log.log_start_offset
        deleted = Deleted(result, partition, target)
        self._deleted_here.append(deleted)
        if not partition.is_alone:
            self._deleted.append(deleted)
        return result

    def everywhere(self, response: DeleteRecordsResponse) -> Answer[DeleteRecordsResponse]:
        """The response, when the other replicas have deleted the same."""
        deleted = [each for each in self._deleted if not each.result.error_code]
        if not deleted:
            return response
        services, seconds = self._context.services, max(0, self._request.timeout_ms) / 1000
        answers = [
            no_longer_than(seconds, each.partition.deleted_everywhere(each.offset), services.deadlines)
            for each in deleted
        ]

        def note(codes: list[ErrorCode]) -> DeleteRecordsResponse:
            for (result, partition, _), code in zip(deleted, codes, strict=True):
                result.error_code = code
                if not partition.is_resigned:
                    result.low_watermark = partition.low_watermark
            return response

        return then(all_of(answers), note)


def _failed(index: int, code: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_index=index, low_watermark=-1, error_code=code)


def _delete(topic: str, partition: Partition, offset: int) -> int:
    """Delete the records before an offset; returns that offset. Raises KafkaError."""
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own: its records are not deleted")
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} has cleanup.policy=compact: records are not deleted")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if target > partition.high_watermark and not partition.high_watermark_caught_up:
        # The leader before may have acknowledged records up to there (as in KIP-207).
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    if not 0 <= target <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {partition.high_watermark}"
        )
    if target > partition.log.log_start_offset:
        partition.log.trimmer.delete_records_before(target)
    return target
