"""GetTelemetrySubscriptions (71) and PushTelemetry (72) have the layout of Kafka's definitions: int16, int32 and uuid
big-endian, compact arrays, strings and bytes, and tagged fields at the end.
"""

from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from oncelog_protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

ID = bytes(range(16))


def test_keys_and_names_are_kafkas() -> None:
    assert (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY) == (71, 72)
    assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS.message_name == "GetTelemetrySubscriptions"


def test_a_client_asks_for_its_subscriptions() -> None:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=ID)
    assert codec(GetTelemetrySubscriptionsRequest, 0).encode(request) == ID + b"\0"
    assert codec(GetTelemetrySubscriptionsRequest, 0).decode(ID + b"\0") == request


def test_a_broker_says_what_to_push() -> None:
    response = GetTelemetrySubscriptionsResponse(
        throttle_time_ms=1,
        error_code=89,
        client_instance_id=ID,
        subscription_id=-2,
        accepted_compression_types=[4, 1],
        push_interval_ms=5,
        telemetry_max_bytes=6,
        delta_temporality=True,
        requested_metrics=["*"],
    )
    encoded = (
        b"\0\0\0\1\0\x59" + ID + b"\xff\xff\xff\xfe" + b"\3\4\1" + b"\0\0\0\5" + b"\0\0\0\6" + b"\1" + b"\2\2*" + b"\0"
    )
    assert codec(GetTelemetrySubscriptionsResponse, 0).encode(response) == encoded
    assert codec(GetTelemetrySubscriptionsResponse, 0).decode(encoded) == response


def test_a_client_pushes_its_metrics() -> None:
    request = PushTelemetryRequest(
        client_instance_id=ID, subscription_id=7, terminating=True, compression_type=4, metrics=b"abc"
    )
    encoded = ID + b"\0\0\0\7\1\4\4abc\0"
    assert codec(PushTelemetryRequest, 0).encode(request) == encoded
    assert codec(PushTelemetryRequest, 0).decode(encoded) == request
    response = PushTelemetryResponse(error_code=117)
    assert codec(PushTelemetryResponse, 0).encode(response) == b"\0\0\0\0\0\x75\0"
