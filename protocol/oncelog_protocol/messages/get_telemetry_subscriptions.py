"""GetTelemetrySubscriptions (71): asks which client metrics the cluster wants from this client (KIP-714)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, string, uuid


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest(Request["GetTelemetrySubscriptionsResponse"]):
    """Ask for the metrics that this client shall push; client_instance_id is ZERO_UUID if the broker shall choose it.

    v0: the only version.
    """

    client_instance_id: bytes = uuid()


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The metrics that the client must push, the interval, and the encodings.

    Errors: THROTTLING_QUOTA_EXCEEDED for a request that comes before the push interval has passed.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32(default=0)
    accepted_compression_types: list[int] = array(of=int8(), default_factory=list)  # the broker's preferred type first
    push_interval_ms: int = int32(default=0)
    telemetry_max_bytes: int = int32(default=0)
    delta_temporality: bool = boolean(default=False)  # counters are pushed as differences since the previous push
    requested_metrics: list[str] = array(of=string(), default_factory=list)  # prefixes; ["*"]: all metrics, []: none
