"""DescribeProducers (61), v0: the active producers of a partition, from any replica (KIP-664).

Clients send this request to the leader, unless the user names a broker (`kafka-transactions find-hanging --broker-id`):
this broker then responds from its own log, which may be behind the leader's.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records.services import RecordContext
from oncelog_broker.server.request.duplicate_names import by_topic
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse


def handle(request: DescribeProducersRequest, context: RecordContext) -> Answer[DescribeProducersResponse]:
    return context.in_slices(_describe_each(request, context))


def _describe_each(request: DescribeProducersRequest, context: RecordContext) -> Steps[DescribeProducersResponse]:
    response = DescribeProducersResponse(topics=[])
    named = yield from by_topic((topic.name, topic.partition_indexes) for topic in request.topics)
    for name, indexes in named.items():
        partitions: list[PartitionResponse] = []
        response.topics.append(TopicResponse(name=name, partitions=partitions))
        may = context.may(rules.DESCRIBE_PRODUCERS, name)
        yield None
        for index in indexes:
            partitions.append(
                _describe(name, index, context) if may else _failed(index, KafkaError(rules.DESCRIBE_PRODUCERS.refused))
            )
            yield None
    return response


def _failed(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )


def _describe(topic: str, index: int, context: RecordContext) -> PartitionResponse:
    try:
        partition = context.services.replicas.replica(topic, index)
        partition.log.state.check_online()  # the transactions of a failed log may have ended at the present leader
    except KafkaError as error:
        return _failed(index, error)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            PartitionResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in partition.log.producers.state.producers()
        ],
    )
