"""OffsetDelete (47), v0: forget offsets of a group, for topics that it does not read (KIP-496)."""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def handle(request: OffsetDeleteRequest, context: RequestContext) -> Answer[OffsetDeleteResponse]:
    exists = context.services.image.has_partition
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.delete_offsets(request, exists, waiter), _failed
    )


def _failed(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, topics=[])
