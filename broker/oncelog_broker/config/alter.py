"""Checks changes of settings by CreateTopics, AlterConfigs and IncrementalAlterConfigs. The functions have no side
effects: they take the old overrides and return the new overrides.

Overrides are text in the form that `ConfigKey.format` returns, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.client_metrics_keys import (
    CLIENT_METRICS_KEYS,
    INTERVAL_MS,
    MATCH,
    MAX_INTERVAL_MS,
    METRICS,
    MIN_INTERVAL_MS,
    split_pattern,
)
from oncelog_broker.config.declared import ConfigKey, ConfigType, InvalidConfig, UpdateMode, unknown_key
from oncelog_broker.config.group_keys import GROUP_KEYS, GroupBounds
from oncelog_broker.config.overrides import override_key
from oncelog_broker.config.stored import readable_topic_overrides
from oncelog_broker.config.topic_keys import TOPIC_KEYS
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)


class AlterOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of IncrementalAlterConfigs; `value` is None for DELETE."""

    name: str
    operation: int
    value: str | None


Changes = Mapping[str, ConfigChange]
"""Maps each configuration key to the change of its value. The number of changes needs no limit, because there are few
known keys, and processing ends at the first unknown key.
"""


def check_topic_overrides(overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Check the settings in CreateTopics, which are the complete overrides of the new topic.

    Raises KafkaError(INVALID_CONFIG).
    """
    checked = {name: _checked(_topic_key(name), value) for name, value in overrides.items()}
    _check_together(checked)
    return checked


def valid_topic_overrides(topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a topic that another broker has created, without the settings that this broker does not
    support; a warning is logged for each unsupported setting.
    """
    valid: dict[str, str] = {}
    for name, value in overrides.items():
        try:
            valid = check_topic_overrides({**valid, name: value})
        except KafkaError as error:
            logger.warning("unsupported topic setting skipped", extra={"topic": topic, "reason": error.message})
    return valid


def alter_topic_overrides(current: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return the overrides of a topic after all `changes`. Raises KafkaError if a change is invalid.

    If the topic has no value of its own, APPEND and SUBTRACT change a copy of the default, as in Kafka. DELETE of an
    unset or unknown key changes nothing, since tools for Kafka delete keys that they may have set. The error is
    INVALID_CONFIG for an unknown key, an invalid value, or a list operation on a key that is not a list, and
    INVALID_REQUEST for an unknown operation.
    """
    altered = dict(current)
    for name, change in changes.items():
        if change.operation == AlterOperation.DELETE:
            altered.pop(name, None)
        else:
            _apply(altered, _topic_key(name), change)
    _check_together(altered)
    return altered


def alter_broker_overrides(current: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return the dynamic settings of a broker, or of all brokers, after `changes`. Raises KafkaError like
    `alter_topic_overrides`.

    The error for a read-only key is INVALID_REQUEST, as in Kafka. If one of Kafka's dynamic keys has no effect in
    oncelog, its value is stored nevertheless.
    """
    altered = dict(current)
    for name, change in changes.items():
        if change.operation == AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        key = BROKER_KEYS.get(name) or _effectless_key(name, change.value)
        if key.update_mode is UpdateMode.READ_ONLY:
            raise _only_at_a_start(name)
        _apply(altered, key, change)
    return altered


def alter_group_overrides(current: Mapping[str, str], changes: Changes, broker: BrokerConfig) -> dict[str, str]:
    """Return the overrides of a group after `changes`. Raises KafkaError INVALID_CONFIG for an unknown key, for a value
    outside the limits in the broker's settings, and for a heartbeat interval that is not below the session timeout.
    """
    altered = dict(current)
    for name, change in changes.items():
        if change.operation == AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        if name not in GROUP_KEYS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key(name, GROUP_KEYS) + " (group configuration)")
        group_key = GROUP_KEYS[name]
        _apply(altered, group_key.key, change)
        if group_key.bounds is None:
            continue
        _check_bounds(name, group_key.key.parse(altered[name]), group_key.bounds, broker)
    for protocol in ("consumer", "share", "streams"):
        session, heartbeat = (
            _of_group(f"{protocol}.{name}", altered, broker) for name in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if heartbeat >= session:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{protocol}.heartbeat.interval.ms={heartbeat}: must be below {protocol}.session.timeout.ms={session}",
            )
    return altered


def _check_bounds(name: str, value: int, bounds: GroupBounds, broker: BrokerConfig) -> None:
    """Check a group's value against the bounds in the broker's settings. Raises KafkaError INVALID_CONFIG if it is not
    between them.
    """
    if bounds.most is None:
        return
    most = broker[bounds.most]
    if bounds.least is None:
        if value > most:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value}: must be at most {most} ({bounds.most.name})")
        return
    least = broker[bounds.least]
    if not least <= value <= most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name}={value}: must be from {least} to {most} ({bounds.least.name}, {bounds.most.name})",
        )


def alter_client_metrics_overrides(current: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return the settings of a subscription of client metrics after `changes`. Raises KafkaError INVALID_REQUEST for
    an unknown key and for an interval outside its limits, INVALID_CONFIG for an invalid value, a repeated list element,
    or a pattern for an attribute that clients do not have.
    """
    altered = dict(current)
    for name, change in changes.items():
        if change.operation == AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        if name not in CLIENT_METRICS_KEYS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, unknown_key(name, CLIENT_METRICS_KEYS) + " (client metrics configuration)"
            )
        _apply(altered, CLIENT_METRICS_KEYS[name], change)
    if INTERVAL_MS.name in altered and not (
        MIN_INTERVAL_MS <= INTERVAL_MS.parse(altered[INTERVAL_MS.name]) <= MAX_INTERVAL_MS
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{INTERVAL_MS.name}={altered[INTERVAL_MS.name]}: must be from {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}",
        )
    for key in (METRICS, MATCH):
        items = key.parse(altered.get(key.name, ""))
        if len(set(items)) < len(items):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration {key.name} has an element twice")
    try:
        for pattern in MATCH.parse(altered.get(MATCH.name, "")):
            split_pattern(pattern)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return altered


def _of_group(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> int:
    """Return the effective value of a key for a group with these overrides."""
    bounds = GROUP_KEYS[name].bounds
    assert bounds is not None
    return int(overrides[name]) if name in overrides else broker[bounds.broker]


def _effectless_key(name: str, value: str | None) -> ConfigKey[Any]:
    """Return the declaration of one of Kafka's dynamic keys without effect in oncelog. Raises KafkaError for any other
    name.
    """
    from oncelog_broker.config import effectless_keys

    reason = effectless_keys.reason_to_refuse(name, value)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration {name} of Apache Kafka's is not supported: {reason}")
    found = effectless_keys.dynamic_keys().get(name)
    if found is not None:
        return found
    if override_key(name) is not None or effectless_keys.is_effectless(name):
        raise _only_at_a_start(name)
    known = (*BROKER_KEYS, *effectless_keys.dynamic_keys())
    raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key(name, known))


def _only_at_a_start(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {name} cannot change while the broker runs")


def _topic_key(name: str) -> ConfigKey[Any]:
    if name not in TOPIC_KEYS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key(name, TOPIC_KEYS) + " (topic configuration)")
    return TOPIC_KEYS[name].key


def add_change(changes: dict[str, ConfigChange], change: ConfigChange) -> None:
    """Add a change of a configuration key to the earlier changes of the same request. Raises
    KafkaError(INVALID_REQUEST) for errors that do not depend on the resource: a duplicate key, or a missing value."""
    if change.name in changes:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {change.name} is changed twice in one request")
    if change.value is None and change.operation != AlterOperation.DELETE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {change.name} has no value")
    changes[change.name] = change


def _apply(overrides: dict[str, str], key: ConfigKey[Any], change: ConfigChange) -> None:
    match change.operation:
        case AlterOperation.SET:
            overrides[key.name] = _checked(key, change.value)
        case AlterOperation.APPEND | AlterOperation.SUBTRACT:
            overrides[key.name] = _list_changed(overrides.get(key.name), key, change)
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} on configuration {key.name}"
            )


def _list_changed(current: str | None, key: ConfigKey[Any], change: ConfigChange) -> str:
    operation = AlterOperation(change.operation)
    if key.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{operation.name} requires a list, configuration {key.name} is none"
        )
    items = list(_parsed(key, current) or ())
    if operation is AlterOperation.SUBTRACT:  # SUBTRACT ignores a missing or invalid element
        unwanted = {item.strip() for item in (change.value or "").split(",")}
        return _checked(key, ",".join(item for item in items if item not in unwanted))
    for item in filter(None, _checked(key, change.value).split(",")):
        if item not in items:
            items.append(item)
    return _checked(key, ",".join(items))


def _parsed(key: ConfigKey[Any], current: str | None) -> Any:
    """Return the present value of a key; the key's default if the value is unset or unreadable."""
    try:
        return key.default if current is None else key.parse(current)
    except InvalidConfig:
        return key.default


def _checked(key: ConfigKey[Any], value: str | None) -> str:
    """Return `value` in the form that is stored. Raises KafkaError INVALID_CONFIG for an invalid value."""
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration {key.name} has no value: expected {key.expected}")
    try:
        return _text(key, key.parse(value))
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _text(key: ConfigKey[Any], value: object) -> str:
    text = key.format(value)
    assert text is not None, f"{key.name} is a secret, which needs a store of its own"
    return text


def _check_together(overrides: Mapping[str, str]) -> None:
    """Check the rules that concern several keys of a topic. The check ignores stored values that this release cannot
    read.
    """
    overrides = readable_topic_overrides(overrides)

    def value(name: str) -> Any:
        key = TOPIC_KEYS[name].key
        return key.parse(overrides[name]) if name in overrides else key.default

    shortest, longest = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    if shortest > longest:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms {shortest} is greater than max.compaction.lag.ms {longest}",
        )
