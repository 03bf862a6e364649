"""DescribeCluster (60), v0-2: cluster id, controller and brokers.

Versions: v1 adds the endpoint type, which must be brokers, because this cluster has no separate controllers; v2 adds
fenced brokers, but this cluster has no fenced brokers.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.acls import ResourceType
from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, context: AnyContext) -> DescribeClusterResponse:
    image = context.services.image
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=code,
            error_message=code.meaning,
            cluster_id=image.cluster_id,
            brokers=[],
        )
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(context.connection.listener)
        if endpoint is not None:
            brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=(
            _operations(context) if request.include_cluster_authorized_operations else AUTHORIZED_OPERATIONS_OMITTED
        ),
    )


def _operations(context: AnyContext) -> int:
    return context.operations(ResourceType.CLUSTER) if context.may(rules.DESCRIBE_CLUSTER) else 0
