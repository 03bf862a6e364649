"""PushTelemetry (72), v0: receives the metrics of a client, and offers these metrics to Prometheus under /metrics
(KIP-714).

The metrics are decompressed in a thread and decoded in slices. If a value in a push cannot be decoded, none of the
push's metrics are stored.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.config.quota_keys import TELEMETRY_MAX_BYTES
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.cluster.get_telemetry_subscriptions import instance_of
from oncelog_broker.server.cluster.services import ClusterContext
from oncelog_broker.telemetry.metrics_data import MalformedMetrics, MetricsDecoder
from oncelog_broker.telemetry.pushed_series import Dropped
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.compression import RecordsTooLarge, decompress
from oncelog_protocol.uuids import ONE_UUID, ZERO_UUID

RESERVED: Final = frozenset({ZERO_UUID, ONE_UUID})
"""Reserved client instance ids, which no client may use."""


def handle(request: PushTelemetryRequest, context: ClusterContext) -> Answer[PushTelemetryResponse]:
    return context.in_slices(_pushed(request, context))


def _pushed(request: PushTelemetryRequest, context: ClusterContext) -> Steps[PushTelemetryResponse]:
    code = ErrorCode.NONE
    try:
        yield from _take(request, context)
    except KafkaError as error:
        code = error.code
    context.services.telemetry.pushes[code] += 1
    return PushTelemetryResponse(error_code=code)


def _take(request: PushTelemetryRequest, context: ClusterContext) -> Steps[None]:
    """Check and store the metrics of one push. Raises KafkaError with the error code for the response."""
    if request.client_instance_id in RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
    services = context.services
    instance = yield from instance_of(request.client_instance_id, context)
    max_bytes = services.config[TELEMETRY_MAX_BYTES]
    instance.check_push(
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        max_bytes,
        services.clock.monotonic(),
        is_terminating=request.terminating,
    )
    if not request.metrics:
        return
    try:
        data = yield partial(decompress, request.compression_type, request.metrics, max_bytes=max_bytes)
        decoded = yield from MetricsDecoder(data).decoded()
    except RecordsTooLarge as error:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"more than {max_bytes} bytes (telemetry.max.bytes)") from error
    except (CorruptBatch, MalformedMetrics) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the metrics cannot be read: {error}") from error
    pushed = services.telemetry.pushed
    pushed.dropped[Dropped.UNREAD] += decoded.left_out
    yield from pushed.add(instance, decoded.points, services.clock.monotonic())
