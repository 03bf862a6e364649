"""ControlledShutdown (7), v2-3: a broker that is about to stop requests that its leadership be moved to other brokers.
Only brokers may send ControlledShutdown.

Behaviour: until the broker's registration ends, it is not elected, is in no ISR that has another member, and gets no
new replica. The response lists the partitions that the broker must still lead because none of the other replicas is in
sync now. A repeated request has the same effect again. If the metadata store does not confirm the writes, the response
is REQUEST_TIMED_OUT. Versions: v0 and v1 are not served, because they do not contain the broker epoch (KIP-380): a
delayed request of an earlier process could stop a restarted broker.
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
    """Let this broker's controller handle the controlled shutdown, on behalf of any broker, including this broker."""
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
