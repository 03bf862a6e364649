"""ControlledShutdown (7): a broker that stops asks the controller to move its leadership. Only brokers send this
request.

Version 0 is not declared, because its request header has no client id and no broker uses it any more.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct


@message(api_key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest(Request["ControlledShutdownResponse"]):
    """The broker that is about to stop.

    v2: the broker epoch, so that the controller can refuse a request that the broker sent before its last restart
    (KIP-380).
    """

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1)


@message(api_key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    """The partitions that the broker still leads although they have other replicas.

    Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE (no such broker is registered),
    CLUSTER_AUTHORIZATION_FAILED, and REQUEST_TIMED_OUT, after which it is unknown which partitions have moved.
    """

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array()

    @struct
    class RemainingPartition:
        topic_name: str = string()
        partition_index: int = int32()
