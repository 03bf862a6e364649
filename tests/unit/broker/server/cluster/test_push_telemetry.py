"""Clients get their subscriptions and push their metrics, which become series for Prometheus (KIP-714)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with
from tests.support.otlp import gauge_of, metrics_data, point, sum_of

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metrics import client_families
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.server.cluster import get_telemetry_subscriptions, push_telemetry
from oncelog_broker.server.net.software import Software
from oncelog_broker.telemetry.client_telemetry import ClientTelemetry
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from oncelog_protocol.messages.push_telemetry import PushTelemetryRequest
from oncelog_protocol.records.compression import Compression, compress
from oncelog_protocol.uuids import ONE_UUID, ZERO_UUID, uuid_to_string

MAX_BYTES = 10_000
METRICS = metrics_data(gauge_of("lag", point(5, topic="orders")), sum_of("sent", point(3)), client_rack="a")


class Client:
    """A client with one connection to a broker that has these subscriptions."""

    def __init__(self, client_metrics: dict[str, dict[str, str]]) -> None:
        self.image = image_with(client_metrics=client_metrics)
        self.telemetry = ClientTelemetry(self.image)
        self.clock = ManualClock()
        self.at_end: dict[str, Any] = {}

    def context(self, api: ApiKey) -> Any:
        context = asked(
            api, 0, telemetry=self.telemetry, clock=self.clock, config=BrokerConfig({"telemetry.max.bytes": MAX_BYTES})
        )
        connection: Any = context.connection
        connection.software = Software("librdkafka", "2.6.0")
        connection.client_port, connection.at_end = 5000, self.at_end
        return context

    async def get(self, client_instance_id: bytes = ZERO_UUID) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=client_instance_id)
        return await answered(
            get_telemetry_subscriptions.handle, request, self.context(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
        )

    async def push(self, given: Any, metrics: bytes = METRICS, **more: Any) -> ErrorCode:
        fields = {
            "client_instance_id": given.client_instance_id,
            "subscription_id": given.subscription_id,
            "terminating": False,
            "compression_type": 0,
        } | more
        request = PushTelemetryRequest(metrics=metrics, **fields)
        response = await answered(push_telemetry.handle, request, self.context(ApiKey.PUSH_TELEMETRY))
        return ErrorCode(response.error_code)

    def samples(self) -> dict[str, list[Any]]:
        services = SimpleNamespace(telemetry=self.telemetry, clock=self.clock)
        source: Any = SimpleNamespace(services=services)
        return {
            family.name: [sample for sample in family.read(source) if sample is not None]
            for family in client_families.families.declared
        }


@pytest.fixture
def client() -> Client:
    return Client({"all": {"metrics": "*", "interval.ms": "1000", "match": "client_id=te.*"}})


async def test_a_client_gets_an_id_and_its_subscriptions(client: Client) -> None:
    given = await client.get()
    assert given.error_code == 0
    assert given.client_instance_id not in (ZERO_UUID, ONE_UUID)
    assert (given.requested_metrics, given.push_interval_ms) == (["*"], 1_000)
    assert (given.telemetry_max_bytes, given.delta_temporality) == (MAX_BYTES, True)
    assert given.accepted_compression_types == [4, 3, 1, 2]


async def test_a_client_without_a_subscription_gets_an_empty_list() -> None:
    given = await Client({"others": {"metrics": "*", "match": "client_software_name=Java"}}).get()
    assert (given.requested_metrics, given.push_interval_ms) == ([], 300_000)


async def test_a_client_that_asks_too_early_is_told_so(client: Client) -> None:
    given = await client.get()
    early = await client.get(given.client_instance_id)
    assert (early.error_code, early.client_instance_id) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ZERO_UUID)
    client.clock.advance_ms(1_000)
    assert (await client.get(given.client_instance_id)).subscription_id == given.subscription_id


@pytest.mark.parametrize("codec", list(Compression))
async def test_pushed_metrics_are_series_for_prometheus(client: Client, codec: Compression) -> None:
    given = await client.get()
    for _ in range(2):
        pushed = await client.push(given, compress(codec, METRICS), compression_type=codec)
        assert pushed == ErrorCode.NONE
        client.clock.advance_ms(1_000)
    samples = client.samples()
    labels = {
        "client_id": "test",
        "client_instance_id": uuid_to_string(given.client_instance_id),
        "client_software_name": "librdkafka",
        "client_software_version": "2.6.0",
        "client_rack": "a",
    }
    (lag,) = samples["oncelog_client_metric"]
    assert (lag.value, lag.labels) == (5.0, {"metric": "lag", "topic": "orders"} | labels)
    (sent,) = samples["oncelog_client_metric_total"]
    assert (sent.value, sent.labels) == (6.0, {"metric": "sent"} | labels)
    assert [each.value for each in samples["kafka_server_client_metrics_instance_count"]] == [1]
    assert samples["oncelog_client_metrics_pushes_total"] == [({"error": "NONE"}, 2, "")]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": ONE_UUID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": Compression.GZIP}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"\x0a\x05abc"}, ErrorCode.INVALID_RECORD),
        ({"metrics": bytes(MAX_BYTES + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        (
            {"metrics": compress(Compression.GZIP, bytes(MAX_BYTES + 1)), "compression_type": Compression.GZIP},
            ErrorCode.TELEMETRY_TOO_LARGE,
        ),
        ({"metrics": b""}, ErrorCode.NONE),
    ],
)
async def test_a_wrong_push_has_kafkas_error_and_changes_nothing(
    client: Client, more: dict[str, Any], code: ErrorCode
) -> None:
    assert await client.push(await client.get(), **more) == code
    assert client.samples()["oncelog_client_metric"] == []
    assert ({"error": code.name}, 1, "") in client.samples()["oncelog_client_metrics_pushes_total"]


async def test_after_a_terminating_push_no_other_is_taken(client: Client) -> None:
    given = await client.get()
    assert await client.push(given, terminating=True) == ErrorCode.NONE
    client.clock.advance_ms(1_000)
    assert await client.push(given) == ErrorCode.INVALID_REQUEST


async def test_what_is_left_out_of_a_push_is_counted(client: Client) -> None:
    given = await client.get()
    assert await client.push(given, metrics_data(gauge_of("g", b""))) == ErrorCode.NONE
    assert ({"reason": "unread"}, 1, "") in client.samples()["oncelog_client_metrics_dropped_total"]


async def test_a_client_is_forgotten_with_its_connection(client: Client) -> None:
    given = await client.get()
    client.at_end["client metrics"]()
    assert len(client.telemetry.instances) == 0
    assert (await client.get(given.client_instance_id)).error_code == 0


async def test_a_changed_subscription_reaches_the_next_request(client: Client) -> None:
    given = await client.get()
    client.telemetry.follow(client.image)
    assert await client.push(given) == ErrorCode.NONE
    client.telemetry.follow(client.image.with_client_metrics({"all": {"metrics": "lag"}}))
    assert await client.push(given) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = await client.get(given.client_instance_id)
    assert (again.requested_metrics, again.error_code) == (["lag"], 0)
