"""PushTelemetry (72): a client's metrics, in the protobuf encoding of OpenTelemetry's MetricsData (KIP-714)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, boolean, bytes_, int8, int16, int32, message, uuid


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryRequest(Request["PushTelemetryResponse"]):
    """Push the metrics of a client.

    v0: the only version.
    """

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()  # whether this is the client's last push
    compression_type: int = int8()  # codec of the metrics, with the numbers of record batches
    metrics: bytes = bytes_()


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """Whether the metrics were accepted.

    Errors: INVALID_REQUEST after a terminating push or for a reserved client instance id, THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
