"""ListConfigResources (74), v0-1: the resources that DescribeConfigs can describe (KIP-1142).

The resources are topics, brokers, brokers' loggers, groups that have their own settings, and subscriptions of client
metrics; v0 lists only subscriptions of client metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

Resource = ListConfigResourcesResponse.ConfigResource
TYPES: Final = frozenset[int](ResourceType) - {ResourceType.UNKNOWN}
RESOURCES_OF_A_STEP: Final = 500
"""The response is built in slices: after this number of resources, other work may run."""


def handle(request: ListConfigResourcesRequest, context: TopicContext) -> Answer[ListConfigResourcesResponse]:
    if not context.may(rules.LIST_CONFIG_RESOURCES):
        return _refused(rules.LIST_CONFIG_RESOURCES.refused)
    types = {CLIENT_METRICS} if context.version == 0 else set(request.resource_types) or TYPES
    if not types <= TYPES:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    return context.in_slices(_list(types, context.services.image))


def _refused(code: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


def _list(types: Collection[int], image: ClusterImage) -> Steps[ListConfigResourcesResponse]:
    listed: list[Resource] = []
    for kind in sorted(types):
        for name in _names(kind, image):
            listed.append(Resource(resource_name=name, resource_type=kind))
            if len(listed) % RESOURCES_OF_A_STEP == 0:
                yield None
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=listed)


def _names(kind: int, image: ClusterImage) -> Iterable[str]:
    if kind == ResourceType.TOPIC:
        return image.topics
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, image.brokers)
    if kind == ResourceType.GROUP:
        return image.group_configs
    return image.client_metrics
