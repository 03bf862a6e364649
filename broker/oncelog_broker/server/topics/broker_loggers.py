"""The loggers of a broker as a configuration resource: DescribeConfigs and IncrementalAlterConfigs (KIP-412).

A key is the name of a logger, and its value is one of Kafka's log levels. Each broker serves only its own loggers.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.alter import AlterOperation, Changes
from oncelog_broker.config.declared import ConfigKey, ConfigSource, ConfigType, UpdateMode
from oncelog_broker.config.resolve import ConfigSynonym, DescribedConfig
from oncelog_broker.observability.log_levels import LEVELS, ROOT, level_of, logger_names
from oncelog_broker.server.topics.services import TopicContext
from oncelog_protocol.errors import ErrorCode, KafkaError

DOC: Final = "The level of this logger until the broker ends."


def check_own(name: str, context: TopicContext) -> None:
    """Raises KafkaError INVALID_REQUEST unless `name` is the id of this broker."""
    if name != str(context.services.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {context.services.node_id}: the loggers of '{name}' must be requested from that broker",
        )


def describe_loggers() -> list[DescribedConfig]:
    """Return every logger with its effective level."""
    return [_described(name, level_of(name)) for name in logger_names()]


def checked_levels(changes: Changes) -> dict[str, str | None]:
    """Return the new level of each logger; None means that the logger inherits its level.

    Raises KafkaError: INVALID_CONFIG for an unknown logger or level; INVALID_REQUEST for a list operation, and for
    removing the level of the root logger.
    """
    known, levels = set(logger_names()), dict[str, str | None]()
    for name, change in changes.items():
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger '{name}'")
        if change.operation == AlterOperation.DELETE:
            if name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger always has a level: set another one")
            levels[name] = None
        elif change.operation == AlterOperation.SET:
            if change.value not in LEVELS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"'{change.value}' is not a log level: use {', '.join(LEVELS)}"
                )
            levels[name] = change.value
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a log level is not a list: only SET and DELETE apply")
    return levels


def _described(name: str, level: str) -> DescribedConfig:
    key = ConfigKey(name, ConfigType.STRING, None, DOC, update_mode=UpdateMode.PER_BROKER)
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return DescribedConfig(key, level, source, (ConfigSynonym(name, level, source),), is_read_only=False)
