"""IncrementalAlterConfigs (44), v0-1: set, delete, append to or subtract from single settings (KIP-339, T23).

A resource that a request names twice stays unchanged; each mention fails with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from oncelog_broker.config.alter import (
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
from oncelog_broker.server.topics.broker_loggers import checked_levels
from oncelog_broker.server.topics.config_resources import ChangesOf, Rules, alter_each
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Response = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
RULES: Final = Rules(rules.CHANGE_CONFIGS_OF_TOPIC, rules.CHANGE_CONFIGS_OF_GROUP, rules.CHANGE_CONFIGS_OF_CLUSTER)


def handle(request: IncrementalAlterConfigsRequest, context: TopicContext) -> Answer[IncrementalAlterConfigsResponse]:
    return context.in_a_task(_alter(request, context))


async def _alter(request: IncrementalAlterConfigsRequest, context: TopicContext) -> IncrementalAlterConfigsResponse:
    outcomes = await alter_each(request.resources, RULES, _changes_of, _to_overrides, request.validate_only, context)
    return IncrementalAlterConfigsResponse(
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
    return (ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs)


def _to_overrides(changes: Changes, config: BrokerConfig) -> ChangesOf:
    return ChangesOf(
        topic=partial(alter_topic_overrides, changes=changes),
        group=partial(alter_group_overrides, changes=changes, broker=config),
        client_metrics=partial(alter_client_metrics_overrides, changes=changes),
        broker=partial(alter_broker_overrides, changes=changes),
        levels=partial(checked_levels, changes),
    )
