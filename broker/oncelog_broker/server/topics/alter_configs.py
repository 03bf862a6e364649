"""AlterConfigs (33), v0-2: replace all settings of a topic or broker by those given (older than key 44, racy, kept).

A resource that is named twice stays as it is (INVALID_REQUEST for each mention).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from oncelog_broker.config.alter import (
    AlterOperation,
    Changes,
    ConfigChange,
    add_change,
    alter_broker_overrides,
    alter_topic_overrides,
)
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_broker.server.topics.config_resources import change_configs, check_may_change, check_named_once
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

Response = AlterConfigsResponse.AlterConfigsResourceResponse


def handle(request: AlterConfigsRequest, context: TopicContext) -> Answer[AlterConfigsResponse]:
    return context.in_a_task(_alter(request, context))


async def _alter(request: AlterConfigsRequest, context: TopicContext) -> AlterConfigsResponse:
    responses = []
    pauses = context.services.slices.pauses()
    named = ((resource.resource_type, resource.resource_name) for resource in request.resources)
    mentions = await with_pauses(counted(named), pauses.here)
    for resource in request.resources:
        await pauses.here()
        code, message = ErrorCode.NONE, None
        settings = dict[str, ConfigChange]()
        try:
            check_named_once(resource.resource_type, resource.resource_name, mentions)
            check_may_change(
                rules.ALTER_CONFIGS_OF_TOPIC,
                rules.ALTER_CONFIGS_OF_CLUSTER,
                resource.resource_type,
                resource.resource_name,
                context,
            )
            for config in resource.configs:
                await pauses.here()
                add_change(settings, ConfigChange(config.name, AlterOperation.SET, config.value))
            await change_configs(
                resource.resource_type,
                resource.resource_name,
                partial(_replace_topic, settings),
                partial(_replace_broker, settings),
                request.validate_only,
                context,
            )
        except KafkaError as error:
            code, message = error.code, error.message
        responses.append(
            Response(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


def _replace_topic(settings: Changes, _: dict[str, str]) -> Mapping[str, str]:
    return alter_topic_overrides({}, settings)


def _replace_broker(settings: Changes, _: dict[str, str]) -> Mapping[str, str]:
    return alter_broker_overrides({}, settings)
