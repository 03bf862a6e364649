"""Subscriptions of client metrics are configuration resources: described, changed and checked as in Kafka (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics import alter_configs, describe_configs, incremental_alter_configs
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest
from oncelog_protocol.messages.describe_configs import ConfigSource, DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation, IncrementalAlterConfigsRequest

CLIENT_METRICS = ResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


class Subscriptions:
    """The settings of all subscriptions, by name."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, str]] = {"lag": {"metrics": "a,b"}}

    async def alter_client_metrics_config(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], validate_only: bool
    ) -> Mapping[str, str]:
        after = dict(change(dict(self.settings.get(name, {}))))
        if not validate_only:
            self.settings[name] = after
        return after

    async def ask(self, handler: Any, api: ApiKey, request: Any, refused: Any = ()) -> Any:
        async def wait_for(shows: Callable[[Any], bool]) -> None:
            assert shows(image_with().with_client_metrics(self.settings))

        context = asked(
            api,
            1,
            refused=refused,
            image=image_with().with_client_metrics(self.settings),
            config=BrokerConfig.of({}),
            configs=self,
            metadata=SimpleNamespace(wait_for=wait_for),
        )
        answer = await answered(handler.handle, request, context)
        await context.services.tasks.close()
        return answer

    async def change(self, *changes: tuple[str, int, str | None], name: str = "lag", refused: Any = ()) -> int:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)],
            validate_only=False,
        )
        answer = await self.ask(incremental_alter_configs, ApiKey.INCREMENTAL_ALTER_CONFIGS, request, refused)
        return int(answer.responses[0].error_code)

    async def describe(self, name: str = "lag", refused: Any = ()) -> Any:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(resources=[resource(resource_type=CLIENT_METRICS, resource_name=name)])
        return (await self.ask(describe_configs, ApiKey.DESCRIBE_CONFIGS, request, refused)).results[0]


@pytest.fixture
def subscriptions() -> Subscriptions:
    return Subscriptions()


async def test_every_key_is_described_with_its_source(subscriptions: Subscriptions) -> None:
    described = await subscriptions.describe()
    assert {each.name: (each.value, each.config_source) for each in described.configs} == {
        "metrics": ("a,b", ConfigSource.CLIENT_METRICS_CONFIG),
        "interval.ms": ("300000", ConfigSource.DEFAULT_CONFIG),
        "match": ("", ConfigSource.DEFAULT_CONFIG),
    }
    unknown = await subscriptions.describe("unknown")
    assert {each.config_source for each in unknown.configs} == {ConfigSource.DEFAULT_CONFIG}
    assert (await subscriptions.describe("")).error_code == ErrorCode.INVALID_REQUEST


async def test_single_settings_are_changed(subscriptions: Subscriptions) -> None:
    assert await subscriptions.change(("interval.ms", SET, "100"), ("metrics", APPEND, "c")) == 0
    assert await subscriptions.change(("match", SET, "client_id=orders-.*,client_source_port=[0-9]+")) == 0
    assert await subscriptions.change(("metrics", SUBTRACT, "a"), ("nothing", DELETE, None)) == 0
    assert subscriptions.settings["lag"] == {
        "metrics": "b,c",
        "interval.ms": "100",
        "match": "client_id=orders-.*,client_source_port=[0-9]+",
    }


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "often", ErrorCode.INVALID_CONFIG),
        ("metric", "*", ErrorCode.INVALID_REQUEST),
        ("metrics", "a,a", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "user=alice", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=(", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=" + "x" * 300, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_an_invalid_setting_is_refused(subscriptions: Subscriptions, key: str, value: str, code: int) -> None:
    assert await subscriptions.change((key, SET, value)) == code
    assert subscriptions.settings == {"lag": {"metrics": "a,b"}}


async def test_an_appended_pattern_is_checked(subscriptions: Subscriptions) -> None:
    assert await subscriptions.change(("match", APPEND, "client_id=(")) == ErrorCode.INVALID_CONFIG


async def test_a_subscription_without_a_name_is_refused(subscriptions: Subscriptions) -> None:
    assert await subscriptions.change(("metrics", SET, "*"), name="") == ErrorCode.INVALID_REQUEST


async def test_alter_configs_replaces_all_settings(subscriptions: Subscriptions) -> None:
    resource = AlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name="interval.ms", value="1000")]
    request = AlterConfigsRequest(
        resources=[resource(resource_type=CLIENT_METRICS, resource_name="lag", configs=configs)], validate_only=False
    )
    answer = await subscriptions.ask(alter_configs, ApiKey.ALTER_CONFIGS, request)
    assert answer.responses[0].error_code == 0
    assert subscriptions.settings["lag"] == {"interval.ms": "1000"}


async def test_client_metrics_need_rights_on_the_cluster(subscriptions: Subscriptions) -> None:
    refused = {rules.CHANGE_CONFIGS_OF_CLUSTER, rules.DESCRIBE_CONFIGS_OF_CLUSTER}
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await subscriptions.change(("metrics", SET, "*"), refused=refused) == code
    assert (await subscriptions.describe(refused=refused)).error_code == code
