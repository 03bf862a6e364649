"""ControlledShutdown (7), v2-3: a broker that is about to stop asks that others lead what it leads. For brokers only.

Behaviour: from here on the broker is elected nowhere, is in no ISR where somebody else is, and gets nothing new, until
its registration goes. The answer names what it still leads of what others might: nobody else of those is in sync now.
Asked again, the same is done again. Where the store did not say what became of the writes, the answer is
REQUEST_TIMED_OUT.
Versions: v0 and v1 do not say which incarnation of the broker it is (KIP-380), so that anybody could stop any of them.
"""

from __future__ import annotations

from oncelog_broker.controller.elector import Elector
from oncelog_broker.controller.store_errors import translated
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas.services import ReplicaContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

RemainingPartition = ControlledShutdownResponse.RemainingPartition


def handle(request: ControlledShutdownRequest, context: ReplicaContext) -> Answer[ControlledShutdownResponse]:
    if not context.may_as_broker(rules.CONTROLLED_SHUTDOWN):
        return ControlledShutdownResponse(error_code=rules.CONTROLLED_SHUTDOWN.refused, remaining_partitions=[])
    return context.in_a_task(shut_down(request, context.services.elector))


async def shut_down(request: ControlledShutdownRequest, elector: Elector) -> ControlledShutdownResponse:
    """Ask this broker's controller, on behalf of any broker, itself included."""
    try:
        term = elector.term()
        with translated("the leaders of partitions"):
            remaining = await term.shut_down(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code, remaining_partitions=[])
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            RemainingPartition(topic_name=key.topic, partition_index=key.partition) for key in remaining
        ],
    )
