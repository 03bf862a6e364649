"""Code that DescribeConfigs, AlterConfigs and IncrementalAlterConfigs share: find a resource, change its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from oncelog_broker.config.alter import AlterOperation, Changes, ConfigChange, add_change
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.client_metrics_keys import MATCH
from oncelog_broker.coordinator.patterns import check_id_pattern
from oncelog_broker.metadata.topic_names import check_topic_name
from oncelog_broker.observability.log_levels import set_levels
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_broker.server.request.wait_for_metadata import wait_until_shown
from oncelog_broker.server.topics.broker_loggers import check_own
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_configs import ResourceType

TIMEOUT_MS = 30_000
"""The timeout of a change in ms; these requests have no timeout field."""


class Rules(NamedTuple):
    """The authorization rules of an API that changes settings: one rule for each type of resource."""

    topic: Rule
    group: Rule
    cluster: Rule


Change = Callable[[dict[str, str]], Mapping[str, str]]
"""Type of a function that computes new overrides from the old overrides; raises KafkaError to refuse the change."""


class ChangesOf(NamedTuple):
    """The changes that a request has for a resource, as one function for each possible type of the resource (topic,
    broker, group).

    The field `levels` is a function that returns the new levels of a broker's loggers. It raises KafkaError to refuse
    the change.
    """

    topic: Change
    group: Change
    client_metrics: Change
    broker: Change
    levels: Callable[[], Mapping[str, str | None]]


def check_named_once(resource_type: int, name: str, mentions: Counter[tuple[int, str]]) -> None:
    """Raises KafkaError INVALID_REQUEST if the request names this resource several times; each mention is then refused.
    `mentions`: how often the request names each resource, by type and name.
    """
    if (count := mentions[resource_type, name]) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"'{name}' is named {count} times in the request.")


def existing_topic(name: str, context: TopicContext) -> str:
    """Return the topic name `name`, if the topic exists. Raises KafkaError INVALID_TOPIC_EXCEPTION or
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    check_topic_name(name)
    if context.services.image.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return name


def named_group(name: str) -> str:
    """Return the name of a group, which may have settings without existing. Raises KafkaError INVALID_REQUEST for an
    empty name.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no settings for all groups: name a group")
    return name


def broker_of(name: str, context: TopicContext) -> int | None:
    """Return the id of this broker, or None for "", which means the settings of all brokers. Raises KafkaError
    INVALID_REQUEST for any other name.
    """
    if name == "":
        return None
    if name != str(context.services.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {context.services.node_id}; '{name}' must be asked for its own settings.",
        )
    return context.services.node_id


def named_client_metrics(name: str) -> str:
    """Return the name of a subscription of client metrics, which need not exist. Raises KafkaError INVALID_REQUEST for
    an empty name.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "subscriptions of client metrics have names: name one")
    return name


async def _check_patterns(changes: Changes) -> None:
    """Check the patterns that a change of client metrics sets or appends. Raises KafkaError INVALID_CONFIG."""
    change = changes.get(MATCH.name)
    if change is None or change.operation not in (AlterOperation.SET, AlterOperation.APPEND):
        return
    for text in MATCH.parse(change.value or ""):
        pattern = text.partition("=")[2].strip()
        if error := await check_id_pattern(pattern):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"'{pattern}' in {MATCH.name} is not a pattern: {error}")


def check_may_change(rules: Rules, resource_type: int, name: str, context: TopicContext) -> None:
    """Raises the authorization error of the API's rule, unless the client may change the resource."""
    if resource_type == ResourceType.TOPIC:
        context.require(rules.topic, name)
    elif resource_type == ResourceType.GROUP:
        context.require(rules.group, name)
    else:
        context.require(rules.cluster)


class AlteredResource(Protocol):
    """A topic, group or broker that an AlterConfigs or IncrementalAlterConfigs request names."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=AlteredResource)


async def alter_each(
    resources: Sequence[R],
    rules: Rules,
    changes_of: Callable[[R], Iterable[ConfigChange]],
    to_overrides: Callable[[Changes, BrokerConfig], ChangesOf],
    validate_only: bool,
    context: TopicContext,
) -> list[tuple[R, KafkaError | None]]:
    """Alter the settings of each resource, and return each resource with its error or None.

    `rules`: the rights that a client needs for each type of resource. `changes_of`: returns the changes that the
    request has for a resource. `to_overrides`: converts these changes to functions that compute the new overrides, one
    function for each type of resource.
    """
    outcomes: list[tuple[R, KafkaError | None]] = []
    pauses = context.services.slices.pauses()
    mentions = await with_pauses(counted((r.resource_type, r.resource_name) for r in resources), pauses.here)
    for resource in resources:
        await pauses.here()
        kind, name = resource.resource_type, resource.resource_name
        changes = dict[str, ConfigChange]()
        try:
            check_named_once(kind, name, mentions)
            check_may_change(rules, kind, name, context)
            for asked in changes_of(resource):
                await pauses.here()
                add_change(changes, asked)
            if kind == ResourceType.CLIENT_METRICS:
                await _check_patterns(changes)
            change = to_overrides(changes, context.services.config)
            await change_configs(kind, name, change, validate_only, context)
        except KafkaError as error:
            outcomes.append((resource, error.as_value()))
        else:
            outcomes.append((resource, None))
    return outcomes


async def change_configs(
    resource_type: int,
    name: str,
    change: ChangesOf,
    validate_only: bool,
    context: TopicContext,
) -> None:
    """Change the settings of a topic, broker, group or subscription of client metrics, and wait until this broker
    applies them. Raises KafkaError.
    """
    services = context.services
    if resource_type == ResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no settings for all topics: name a topic")
        existing_topic(name, context)
        topic_overrides = await services.configs.alter_topic_config(name, change.topic, validate_only)
        if not validate_only:
            await wait_until_shown(
                services.metadata, lambda image: image.config_of_topic(name) == topic_overrides, TIMEOUT_MS
            )
    elif resource_type == ResourceType.BROKER:
        broker_id = broker_of(name, context)
        broker_overrides = await services.configs.alter_broker_config(broker_id, change.broker, validate_only)
        if not validate_only:
            await wait_until_shown(
                services.metadata,
                lambda image: image.broker_configs.get(broker_id, {}) == broker_overrides,
                TIMEOUT_MS,
            )
    elif resource_type == ResourceType.GROUP:
        group_id = named_group(name)
        group_overrides = await services.configs.alter_group_config(group_id, change.group, validate_only)
        if not validate_only:
            await wait_until_shown(
                services.metadata, lambda image: image.config_of_group(group_id) == group_overrides, TIMEOUT_MS
            )
    elif resource_type == ResourceType.CLIENT_METRICS:
        subscription = named_client_metrics(name)
        settings = await services.configs.alter_client_metrics_config(
            subscription, change.client_metrics, validate_only
        )
        if not validate_only:
            await wait_until_shown(
                services.metadata, lambda image: image.config_of_client_metrics(subscription) == settings, TIMEOUT_MS
            )
    elif resource_type == ResourceType.BROKER_LOGGER:
        check_own(name, context)
        levels = change.levels()
        if not validate_only:
            set_levels(levels)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"configurations of resource type {resource_type} are not served")
