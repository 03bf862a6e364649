"""DescribeCluster (60): describes brokers and controller, without topics (KIP-700)."""

from __future__ import annotations

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, string, struct


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """Describe the cluster.

    v1: endpoint_type (KIP-919).
    v2: include_fenced_brokers (KIP-1073).
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)  # which nodes to describe: 1 brokers, 2 controllers
    include_fenced_brokers: bool = boolean("2+", default=False)


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The brokers, the id of the controller, and the operations that the caller may perform.

    v1: endpoint_type; MISMATCHED_ENDPOINT_TYPE and UNSUPPORTED_ENDPOINT_TYPE are possible (KIP-919).
    v2: is_fenced (KIP-1073).
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)  # the endpoint type of the request
    cluster_id: str = string()
    controller_id: int = int32(default=-1)  # node id of the controller; -1 if no controller is known
    brokers: list[DescribeClusterBroker] = array()
    cluster_authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)

    @struct
    class DescribeClusterBroker:
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
        is_fenced: bool = boolean("2+", default=False)
