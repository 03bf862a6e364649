"""GetTelemetrySubscriptions (71), v0: returns which metrics the client shall push, and how often (KIP-714).

Every client may send this request, as in Kafka. A client without a matching subscription gets an empty list of metrics,
and repeats the request after the push interval.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.quota_keys import TELEMETRY_MAX_BYTES
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.entropy import random_uuid
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.cluster.services import ClusterContext
from oncelog_broker.telemetry.client_instances import ClientInstance
from oncelog_broker.telemetry.subscriptions import ClientAttributes
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.uuids import ZERO_UUID, uuid_to_string

ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The accepted codecs in Kafka's order of preference. The codec NONE is also accepted, but is not listed, as in Kafka.
"""


def handle(
    request: GetTelemetrySubscriptionsRequest, context: ClusterContext
) -> Answer[GetTelemetrySubscriptionsResponse]:
    return context.in_slices(_subscribed(request, context))


def _subscribed(
    request: GetTelemetrySubscriptionsRequest, context: ClusterContext
) -> Steps[GetTelemetrySubscriptionsResponse]:
    id_ = request.client_instance_id
    if id_ == ZERO_UUID:
        id_ = context.services.telemetry.instances.unused_id(random_uuid)
    instance = yield from instance_of(id_, context)
    try:
        instance.check_get(context.services.clock.monotonic())
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code, client_instance_id=ZERO_UUID)
    return GetTelemetrySubscriptionsResponse(
        error_code=0,
        client_instance_id=id_,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[*ACCEPTED],
        push_interval_ms=instance.subscribed.interval_ms,
        telemetry_max_bytes=context.services.config[TELEMETRY_MAX_BYTES],
        delta_temporality=True,
        requested_metrics=[*instance.subscribed.metrics],
    )


def instance_of(id_: bytes, context: ClusterContext) -> Steps[ClientInstance]:
    """Return what this broker stores about the metrics of the client instance `id_`. It is dropped when the connection
    of the request ends.
    """
    connection, instances = context.connection, context.services.telemetry.instances
    attributes = ClientAttributes(
        uuid_to_string(id_),
        context.client_id or "",
        connection.software.name,
        connection.software.version,
        connection.client_host,
        str(connection.client_port),
    )
    instance = yield from instances.of(id_, attributes.cut(), context.services.clock.monotonic())
    connection.at_end["client metrics"] = lambda: instances.forget(id_)
    return instance
