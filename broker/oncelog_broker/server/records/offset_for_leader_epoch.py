"""OffsetForLeaderEpoch (23), v2-4: the end offset of a leader epoch (KIP-101, KIP-320).

After a leader change, consumers send this request to find out whether records that they have read were truncated.

Unlike in Kafka, the controller also sends this request before an election, to learn the log end offsets of leaders and
followers (`asks_for_log_ends`, for brokers only). A broker of an older release does not know `asks_for_log_ends`, and
responds as to any client; its response has no `are_log_ends`.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records.services import RecordContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EndOffset = TopicResult.EpochEndOffset


def handle(request: OffsetForLeaderEpochRequest, context: RecordContext) -> Answer[OffsetForLeaderEpochResponse]:
    return context.in_slices(_answer(request, context))


def _answer(request: OffsetForLeaderEpochRequest, context: RecordContext) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    sees_all = context.may(rules.EPOCH_OF_ALL)
    are_log_ends = request.asks_for_log_ends and sees_all
    replicas = context.services.replicas
    for topic in request.topics:
        answers = []
        may = sees_all or context.may(rules.OFFSET_FOR_LEADER_EPOCH, topic.topic)
        for wanted in topic.partitions:
            try:
                if not may:
                    raise KafkaError(rules.OFFSET_FOR_LEADER_EPOCH.refused)
                if are_log_ends:
                    epoch, end_offset = replicas.log_end(topic.topic, wanted.partition)
                else:
                    partition = replicas.leader(topic.topic, wanted.partition)
                    partition.check_leader_epoch(wanted.current_leader_epoch)
                    partition.log.state.check_online()
                    epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
                answer = EndOffset(
                    error_code=ErrorCode.NONE, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
                )
            except KafkaError as error:
                answer = EndOffset(error_code=error.code, partition=wanted.partition)
            answers.append(answer)
            yield None
        topics.append(TopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics, are_log_ends=are_log_ends)
