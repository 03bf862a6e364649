"""DescribeConfigs (32), v1-4: the settings of a topic or broker, each with its value and source (T23).

Resources: topics; groups; brokers, by id, or by "" for the settings of all brokers; the loggers of this broker;
subscriptions of client metrics. If a request names no keys, the response has all keys of the resource. The value of a
secret is never returned. A Kafka setting that has no effect in oncelog is returned only if it is set. A resource that a
request names several times appears once in the response, because its description is a thousand times as large as its
name. Versions: v1 adds sources and synonyms, v3 types and documentation.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog_broker.config.resolve import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_effectless,
    describe_group,
    describe_topic,
)
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics.broker_loggers import check_own, describe_loggers
from oncelog_broker.server.topics.config_resources import broker_of, existing_topic, named_client_metrics, named_group
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ResourceType,
)

Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = Result.DescribeConfigsResourceResult
Synonym = Entry.DescribeConfigsSynonym


def handle(request: DescribeConfigsRequest, context: TopicContext) -> Answer[DescribeConfigsResponse]:
    return context.in_slices(_describe_each(request, context))


def _describe_each(request: DescribeConfigsRequest, context: TopicContext) -> Steps[DescribeConfigsResponse]:
    results = []
    named = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    for resource in named.values():
        code, message, configs = ErrorCode.NONE, None, list[Entry]()
        try:
            wanted = set(resource.configuration_keys or ())
            described = _describe(resource.resource_type, resource.resource_name, context)
            configs = [_entry(line, request) for line in described if not wanted or line.name in wanted]
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(
            Result(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
        yield None
    return DescribeConfigsResponse(results=results)


def _describe(resource_type: int, name: str, context: TopicContext) -> Iterable[DescribedConfig]:
    services = context.services
    if resource_type == ResourceType.TOPIC:
        context.require(rules.DESCRIBE_CONFIGS_OF_TOPIC, name)
        existing_topic(name, context)
        return describe_topic(services.image.config_of_topic(name), services.config)
    if resource_type == ResourceType.BROKER:
        context.require(rules.DESCRIBE_CONFIGS_OF_CLUSTER)
        defaults = services.image.broker_configs.get(None, {})
        if broker_of(name, context) is None:
            known = [line for line in describe_broker(services.config) if line.name in defaults]
            return known + describe_effectless({}, defaults)
        own = services.image.broker_configs.get(services.node_id, {})
        return describe_broker(services.config) + describe_effectless(own, defaults)
    if resource_type == ResourceType.GROUP:
        context.require(rules.DESCRIBE_CONFIGS_OF_GROUP, name)
        return describe_group(services.image.config_of_group(named_group(name)), services.config)
    if resource_type == ResourceType.CLIENT_METRICS:
        context.require(rules.DESCRIBE_CONFIGS_OF_CLUSTER)
        return describe_client_metrics(services.image.config_of_client_metrics(named_client_metrics(name)))
    if resource_type == ResourceType.BROKER_LOGGER:
        context.require(rules.DESCRIBE_CONFIGS_OF_CLUSTER)
        check_own(name, context)
        return describe_loggers()
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"configurations of resource type {resource_type} are not served")


def _entry(line: DescribedConfig, request: DescribeConfigsRequest) -> Entry:
    synonyms = [Synonym(name=synonym.name, value=synonym.value, source=synonym.source) for synonym in line.synonyms]
    return Entry(
        name=line.name,
        value=line.value,
        read_only=line.is_read_only,
        config_source=line.source,
        is_sensitive=line.key.is_sensitive,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=line.key.type,
        documentation=line.key.doc if request.include_documentation else None,
    )
