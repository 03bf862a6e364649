"""AddOffsetsToTxn (25), v0-4: adds the partition of `__consumer_offsets` that stores a group's offsets to a transaction
(S37). The offsets themselves go to the group coordinator, in TxnOffsetCommit.
"""

from __future__ import annotations

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.transactional_errors import code_for
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch


def handle(request: AddOffsetsToTxnRequest, context: TransactionContext) -> Answer[AddOffsetsToTxnResponse]:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not context.may(rules.ADD_OFFSETS, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=rules.ADD_OFFSETS.refused)
    if not context.may(rules.ADD_OFFSETS_GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=rules.ADD_OFFSETS_GROUP.refused)
    if context.services.image.topic(CONSUMER_OFFSETS) is None:
        return context.in_a_task(_create_then_add(request, context))
    return _add(request, context)


async def _create_then_add(request: AddOffsetsToTxnRequest, context: TransactionContext) -> AddOffsetsToTxnResponse:
    """Create `__consumer_offsets`, then add the group's partition of this topic to the transaction. The topic may be
    missing, because a consumer with manually assigned partitions may not have looked up its group's coordinator.
    """
    try:
        await context.services.create_topic(CONSUMER_OFFSETS)
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return await settled(_add(request, context))


def _add(request: AddOffsetsToTxnRequest, context: TransactionContext) -> Answer[AddOffsetsToTxnResponse]:
    services = context.services
    index = services.groups.runtime.partition_of(request.group_id)
    if index is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = services.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [TopicPartition(CONSUMER_OFFSETS, index)],
        TRANSACTIONS_V1,
    )
    return then(
        answer, lambda code: AddOffsetsToTxnResponse(error_code=code_for(context.api_key, context.version, code))
    )
