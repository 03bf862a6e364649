"""IncrementalAlterConfigs (44), v0-1: set, delete, append to or subtract from single settings (KIP-339, T23).

A resource that is named twice stays as it is (INVALID_REQUEST for each mention).
"""

from __future__ import annotations

from functools import partial

from oncelog_broker.config.alter import ConfigChange, add_change, alter_broker_overrides, alter_topic_overrides
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_broker.server.topics.config_resources import change_configs, check_may_change, check_named_once
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Response = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def handle(request: IncrementalAlterConfigsRequest, context: TopicContext) -> Answer[IncrementalAlterConfigsResponse]:
    return context.in_a_task(_alter(request, context))


async def _alter(request: IncrementalAlterConfigsRequest, context: TopicContext) -> IncrementalAlterConfigsResponse:
    responses = []
    pauses = context.services.slices.pauses()
    named = ((resource.resource_type, resource.resource_name) for resource in request.resources)
    mentions = await with_pauses(counted(named), pauses.here)
    for resource in request.resources:
        await pauses.here()
        code, message = ErrorCode.NONE, None
        changes = dict[str, ConfigChange]()
        try:
            check_named_once(resource.resource_type, resource.resource_name, mentions)
            check_may_change(
                rules.CHANGE_CONFIGS_OF_TOPIC,
                rules.CHANGE_CONFIGS_OF_CLUSTER,
                resource.resource_type,
                resource.resource_name,
                context,
            )
            for config in resource.configs:
                await pauses.here()
                add_change(changes, ConfigChange(config.name, config.config_operation, config.value))
            await change_configs(
                resource.resource_type,
                resource.resource_name,
                partial(alter_topic_overrides, changes=changes),
                partial(alter_broker_overrides, changes=changes),
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
    return IncrementalAlterConfigsResponse(responses=responses)
