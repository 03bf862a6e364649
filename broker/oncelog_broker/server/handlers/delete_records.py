"""DeleteRecords (21), v0-2: make everything below an offset unreadable by moving the log start offset.

Offset -1 stands for the high watermark. Segments that lie wholly below the new start are deleted. The new start is on
disk before the answer: what was said to be gone does not come back after a crash.
"""

from __future__ import annotations

import logging
from typing import Final

from oncelog_broker.metadata.topic_names import is_internal
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Errand, Steps
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

logger = logging.getLogger(__name__)

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult

HIGH_WATERMARK: Final = -1


def handle(request: DeleteRecordsRequest, context: RequestContext) -> Answer[DeleteRecordsResponse]:
    return context.services.slices.run(_delete_then_note(request, context), must_finish=True)


def _delete_then_note(request: DeleteRecordsRequest, context: RequestContext) -> Steps[DeleteRecordsResponse]:
    topics = yield from _delete_all(request, context)
    try:
        yield Errand(context.services.logs.checkpoint_log_start_offsets)
    except OSError as error:  # the records are not to be read now, but may be again after a crash
        logger.error("log starts could not be written down", extra={"reason": error})
        for result in (result for topic in topics for result in topic.partitions):
            result.error_code = result.error_code or ErrorCode.KAFKA_STORAGE_ERROR
    return DeleteRecordsResponse(topics=topics)


def _delete_all(request: DeleteRecordsRequest, context: RequestContext) -> Steps[list[TopicResult]]:
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            low_watermark, code = -1, ErrorCode.NONE
            try:
                low_watermark = _delete(topic.name, wanted.partition_index, wanted.offset, context)
            except KafkaError as error:
                code = error.code
            results.append(
                PartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code)
            )
            yield None
        topics.append(TopicResult(name=topic.name, partitions=results))
    return topics


def _delete(topic: str, index: int, offset: int, context: RequestContext) -> int:
    """The new log start offset. Raises KafkaError."""
    partition = context.services.replicas.leader(topic, index)
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own: its records are not deleted")
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} has cleanup.policy=compact: records are not deleted")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {partition.high_watermark}"
        )
    if target > partition.log.log_start_offset:
        partition.log.delete_records_before(target)
    return partition.log.log_start_offset
