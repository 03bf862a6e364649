"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: resources, changes and refusals."""

from __future__ import annotations

from collections.abc import Callable
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
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation, IncrementalAlterConfigsRequest

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
RETENTION = "retention.ms"


class Configs:
    """The overrides of the topic `orders`, of broker 1, and of all brokers (None)."""

    def __init__(self) -> None:
        self.of_topics: dict[str, dict[str, str]] = {"orders": {RETENTION: "1000"}}
        self.of_brokers: dict[int | None, dict[str, str]] = {}
        self.writes = 0

    async def alter_topic_config(self, name: str, change: Callable[..., Any], validate_only: bool) -> Any:
        return self._altered(self.of_topics, name, change, validate_only)

    async def alter_broker_config(self, broker: int | None, change: Callable[..., Any], validate_only: bool) -> Any:
        return self._altered(self.of_brokers, broker, change, validate_only)

    def _altered(self, kept: Any, key: Any, change: Callable[..., Any], validate_only: bool) -> Any:
        after = dict(change(dict(kept.get(key, {}))))
        if not validate_only:
            kept[key] = after
            self.writes += 1
        return after

    @property
    def image(self) -> Any:
        return image_with("orders", topic_configs=self.of_topics, broker_configs=self.of_brokers)

    async def wait_for(self, shows: Callable[[Any], bool]) -> None:
        assert shows(self.image)

    async def ask(self, handler: Any, api: ApiKey, version: int, request: Any, refused: Any) -> Any:
        context = asked(
            api,
            version,
            refused=refused,
            image=self.image,
            config=BrokerConfig.of({}),
            configs=self,
            metadata=SimpleNamespace(wait_for=self.wait_for),
        )
        answer = await answered(handler.handle, request, context)
        await context.services.tasks.close()
        return answer

    async def describe(self, *resources: tuple[int, str, list[str] | None], refused: Any = (), **options: bool) -> Any:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[resource(resource_type=k, resource_name=n, configuration_keys=keys) for k, n, keys in resources],
            **options,
        )
        return (await self.ask(describe_configs, ApiKey.DESCRIBE_CONFIGS, 4, request, refused)).results

    async def change(
        self, *resources: tuple[int, str, list[tuple[str, int, str | None]]], refused: Any = (), validate: bool = False
    ) -> list[int]:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        request = IncrementalAlterConfigsRequest(
            resources=[
                resource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        resource.AlterableConfig(name=key, config_operation=operation, value=value)
                        for key, operation, value in changes
                    ],
                )
                for kind, name, changes in resources
            ],
            validate_only=validate,
        )
        api = ApiKey.INCREMENTAL_ALTER_CONFIGS
        answer = await self.ask(incremental_alter_configs, api, 1, request, refused)
        return [each.error_code for each in answer.responses]

    async def replace(
        self, name: str, settings: dict[str, str | None], *, refused: Any = (), times: int = 1
    ) -> list[int]:
        resource = AlterConfigsRequest.AlterConfigsResource
        configs = [resource.AlterableConfig(name=key, value=value) for key, value in settings.items()]
        request = AlterConfigsRequest(
            resources=[resource(resource_type=TOPIC, resource_name=name, configs=configs)] * times, validate_only=False
        )
        answer = await self.ask(alter_configs, ApiKey.ALTER_CONFIGS, 2, request, refused)
        return [each.error_code for each in answer.responses]


async def test_all_settings_are_described_with_values_and_sources() -> None:
    (result,) = await Configs().describe((TOPIC, "orders", None))
    values = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert values[RETENTION] == ("1000", 1)
    assert values["cleanup.policy"] == ("delete", 5)
    assert len(values) > 20
    assert all(entry.synonyms == [] and entry.documentation is None for entry in result.configs)


async def test_named_settings_are_described_with_the_requested_details() -> None:
    (result,) = await Configs().describe(
        (TOPIC, "orders", [RETENTION, "no.such.key"]), include_synonyms=True, include_documentation=True
    )
    (entry,) = result.configs
    assert (entry.name, entry.synonyms[0].value, bool(entry.documentation)) == (RETENTION, "1000", True)


async def test_a_resource_that_is_named_twice_is_described_once() -> None:
    results = await Configs().describe((TOPIC, "orders", None), (TOPIC, "orders", [RETENTION]))
    assert [len(result.configs) for result in results] == [1], "by the last mention"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),  # refused: a request about broker 2 must be sent to broker 2
        (77, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ErrorCode.NONE),
        (BROKER, "", ErrorCode.NONE),
    ],
)
async def test_a_broker_describes_topics_and_its_own_settings_only(kind: int, name: str, code: ErrorCode) -> None:
    (result,) = await Configs().describe((kind, name, None))
    assert result.error_code == code
    if code is not ErrorCode.NONE:
        assert (result.configs, bool(result.error_message)) == ([], True)


async def test_cluster_wide_settings_are_those_set_for_all_brokers() -> None:
    configs = Configs()
    configs.of_brokers[None] = {"log.retention.ms": "5"}
    (result,) = await configs.describe((BROKER, "", None))
    assert [entry.name for entry in result.configs] == ["log.retention.ms"]


async def test_single_settings_are_changed_and_the_others_stay() -> None:
    configs = Configs()
    codes = await configs.change(
        (TOPIC, "orders", [("cleanup.policy", SET, "compact")]), (BROKER, "1", [("log.retention.ms", SET, "5")])
    )
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert configs.of_topics["orders"] == {RETENTION: "1000", "cleanup.policy": "compact"}
    assert configs.of_brokers == {1: {"log.retention.ms": "5"}}
    await configs.change((TOPIC, "orders", [(RETENTION, DELETE, None)]))
    assert configs.of_topics["orders"] == {"cleanup.policy": "compact"}


async def test_alter_configs_replaces_all_settings() -> None:
    configs = Configs()
    assert await configs.replace("orders", {"cleanup.policy": "compact"}) == [ErrorCode.NONE]
    assert configs.of_topics["orders"] == {"cleanup.policy": "compact"}


async def test_a_validated_change_changes_nothing() -> None:
    configs = Configs()
    assert await configs.change((TOPIC, "orders", [(RETENTION, SET, "7")]), validate=True) == [ErrorCode.NONE]
    bad = await configs.change((TOPIC, "orders", [(RETENTION, SET, "soon")]), validate=True)
    assert (bad, configs.writes) == ([ErrorCode.INVALID_CONFIG], 0)


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "orders", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", (RETENTION, 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "", (RETENTION, SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "unknown", (RETENTION, SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (77, "x", (RETENTION, SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_refused_resource_leaves_the_others(
    kind: int, name: str, change: tuple[str, int, str], code: ErrorCode
) -> None:
    configs = Configs()
    assert await configs.change((kind, name, [change]), (BROKER, "", [("log.retention.ms", SET, "5")])) == [
        code,
        ErrorCode.NONE,
    ]
    assert (configs.of_topics, configs.writes) == ({"orders": {RETENTION: "1000"}}, 1)


async def test_a_resource_that_is_named_twice_stays_as_it_is() -> None:
    configs = Configs()
    twice = (TOPIC, "orders", [(RETENTION, SET, "7")])
    assert await configs.change(twice, twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert await configs.replace("orders", {}, times=2) == [ErrorCode.INVALID_REQUEST] * 2
    assert configs.writes == 0


async def test_altering_settings_needs_rights_per_resource() -> None:
    configs = Configs()
    changes = ((TOPIC, "orders", [(RETENTION, SET, "7")]), (BROKER, "1", [("log.retention.ms", SET, "5")]))
    denied = {rules.CHANGE_CONFIGS_OF_TOPIC, rules.CHANGE_CONFIGS_OF_CLUSTER}
    topic, cluster = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await configs.change(*changes, refused=denied) == [topic, cluster]
    assert await configs.replace("orders", {}, refused={rules.ALTER_CONFIGS_OF_TOPIC}) == [topic]
    described = await configs.describe(
        (TOPIC, "orders", None),
        (BROKER, "1", None),
        refused={rules.DESCRIBE_CONFIGS_OF_TOPIC, rules.DESCRIBE_CONFIGS_OF_CLUSTER},
    )
    assert [result.error_code for result in described] == [topic, cluster]
    assert configs.writes == 0
