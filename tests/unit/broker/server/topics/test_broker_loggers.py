"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs show and change the loggers of a broker (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.handlers import answered, asked

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics import alter_configs, describe_configs, incremental_alter_configs
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest
from oncelog_protocol.messages.describe_configs import ConfigSource, DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation, IncrementalAlterConfigsRequest

NAME = "oncelog_broker.test_broker_loggers"
SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger(NAME)
    made.setLevel(logging.WARNING)
    yield made
    made.setLevel(logging.NOTSET)


async def ask(handler: Any, api: ApiKey, version: int, request: Any, refused: Any = ()) -> Any:
    context = asked(api, version, refused=refused, config=BrokerConfig.of({}))
    answer = await answered(handler.handle, request, context)
    await context.services.tasks.close()
    return answer


async def describe(broker: str = "1", keys: list[str] | None = None, refused: Any = ()) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name=broker, configuration_keys=keys
    )
    answer = await ask(
        describe_configs, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]), refused
    )
    return answer.results[0]


async def alter(*changes: tuple[str, int, str | None], broker: str = "1", validate_only: bool = False) -> ErrorCode:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    wanted = resource(
        resource_type=ResourceType.BROKER_LOGGER,
        resource_name=broker,
        configs=[resource.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes],
    )
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    answer = await ask(incremental_alter_configs, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    return ErrorCode(answer.responses[0].error_code)


async def test_every_logger_is_described_with_its_level() -> None:
    described = {entry.name: entry for entry in (await describe()).configs}
    assert described[NAME].value == "WARN"
    assert described[NAME].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    assert not described[NAME].read_only
    assert "root" in described


async def test_named_loggers_alone_are_described() -> None:
    assert [entry.name for entry in (await describe(keys=[NAME])).configs] == [NAME]


@pytest.mark.parametrize("broker", ["2", "", "x"])
async def test_the_loggers_of_another_broker_are_refused(broker: str) -> None:
    assert (await describe(broker)).error_code == ErrorCode.INVALID_REQUEST
    assert await alter((NAME, SET, "DEBUG"), broker=broker) is ErrorCode.INVALID_REQUEST


async def test_describing_loggers_needs_the_right_on_the_cluster() -> None:
    refused = await describe(refused={rules.DESCRIBE_CONFIGS_OF_CLUSTER})
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_level_is_set_and_taken_away(logger: logging.Logger) -> None:
    assert await alter((NAME, SET, "DEBUG")) is ErrorCode.NONE
    assert logger.level == logging.DEBUG
    assert await alter((NAME, DELETE, None)) is ErrorCode.NONE
    assert logger.level == logging.NOTSET


async def test_a_change_that_is_only_checked_changes_nothing(logger: logging.Logger) -> None:
    assert await alter((NAME, SET, "DEBUG"), validate_only=True) is ErrorCode.NONE
    assert logger.level == logging.WARNING


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ((NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((NAME, SET, None), ErrorCode.INVALID_REQUEST),
        ((NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_single_wrong_change_refuses_all_changes(change: Any, code: ErrorCode, logger: logging.Logger) -> None:
    asyncio_level = logging.getLogger("asyncio").level
    assert await alter(("asyncio", SET, "TRACE"), change) is code
    assert (logging.getLogger("asyncio").level, logger.level) == (asyncio_level, logging.WARNING)


async def test_alter_configs_does_not_replace_levels(logger: logging.Logger) -> None:
    wanted = AlterConfigsRequest.AlterConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configs=[]
    )
    answer = await ask(
        alter_configs, ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[wanted], validate_only=False)
    )
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert logger.level == logging.WARNING
