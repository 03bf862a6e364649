"""AlterConfigs (33), v0-2: replace all settings of a topic or broker (kept for old clients: two concurrent requests may
overwrite each other's changes, which IncrementalAlterConfigs avoids).

A resource that a request names twice stays unchanged; each mention fails with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from oncelog_broker.config.alter import (
    AlterOperation,
    Changes,
    ConfigChange,
    alter_broker_overrides,
    alter_client_metrics_overrides,
    alter_group_overrides,
    alter_topic_overrides,
)
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics.config_resources import ChangesOf, Rules, alter_each
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

Resource = AlterConfigsRequest.AlterConfigsResource
Response = AlterConfigsResponse.AlterConfigsResourceResponse
RULES: Final = Rules(rules.ALTER_CONFIGS_OF_TOPIC, rules.ALTER_CONFIGS_OF_GROUP, rules.ALTER_CONFIGS_OF_CLUSTER)


def handle(request: AlterConfigsRequest, context: TopicContext) -> Answer[AlterConfigsResponse]:
    return context.in_a_task(_alter(request, context))


async def _alter(request: AlterConfigsRequest, context: TopicContext) -> AlterConfigsResponse:
    outcomes = await alter_each(request.resources, RULES, _changes_of, _to_overrides, request.validate_only, context)
    return AlterConfigsResponse(
        responses=[
            Response(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in outcomes
        ]
    )


def _changes_of(resource: Resource) -> Iterator[ConfigChange]:
    return (ConfigChange(config.name, AlterOperation.SET, config.value) for config in resource.configs)


def _to_overrides(changes: Changes, config: BrokerConfig) -> ChangesOf:
    return ChangesOf(
        topic=partial(_replace_topic, changes),
        group=partial(_replace_group, changes, config),
        client_metrics=partial(_replace_client_metrics, changes),
        broker=partial(_replace_broker, changes),
        levels=_no_levels,
    )


def _no_levels() -> Mapping[str, str | None]:
    raise KafkaError(ErrorCode.INVALID_REQUEST, "the levels of loggers are changed by IncrementalAlterConfigs alone")


def _replace_topic(settings: Changes, _: dict[str, str]) -> Mapping[str, str]:
    return alter_topic_overrides({}, settings)


def _replace_group(settings: Changes, config: BrokerConfig, _: dict[str, str]) -> Mapping[str, str]:
    return alter_group_overrides({}, settings, config)


def _replace_client_metrics(settings: Changes, _: dict[str, str]) -> Mapping[str, str]:
    return alter_client_metrics_overrides({}, settings)


def _replace_broker(settings: Changes, _: dict[str, str]) -> Mapping[str, str]:
    return alter_broker_overrides({}, settings)
