"""The configuration keys of groups of the consumer protocol (KIP-848), with Kafka's names and defaults.

Three of them may be set for a single group (`GROUP_KEYS`), between the bounds that the broker sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog_broker.config.declared import ConfigKey, ConfigType, at_least, each_of, one_of

INT, LIST, STRING = ConfigType.INT, ConfigType.LIST, ConfigType.STRING

CONSUMER_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.consumer.session.timeout.ms",
    INT,
    45_000,
    "How long a member of a group of the consumer protocol may be silent before it is removed. The client has no say.",
    at_least(1),
)
CONSUMER_MIN_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.consumer.min.session.timeout.ms",
    INT,
    45_000,
    "The least that a group may set as its consumer.session.timeout.ms.",
    at_least(1),
)
CONSUMER_MAX_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.consumer.max.session.timeout.ms",
    INT,
    60_000,
    "The most that a group may set as its consumer.session.timeout.ms.",
    at_least(1),
)
CONSUMER_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.heartbeat.interval.ms",
    INT,
    5_000,
    "How often members of groups of the consumer protocol send heartbeats. While an assignment is under way they are "
    "asked to send them more often.",
    at_least(1),
)
CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.min.heartbeat.interval.ms",
    INT,
    5_000,
    "The least that a group may set as its consumer.heartbeat.interval.ms.",
    at_least(1),
)
CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.max.heartbeat.interval.ms",
    INT,
    15_000,
    "The most that a group may set as its consumer.heartbeat.interval.ms.",
    at_least(1),
)
CONSUMER_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.assignment.interval.ms",
    INT,
    1_000,
    "The least time between two assignments of a group of the consumer protocol, so that a thousand members that start "
    "together do not mean a thousand assignments. 0: none (KIP-1263).",
    at_least(0),
)
CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.min.assignment.interval.ms",
    INT,
    0,
    "The least that a group may set as its consumer.assignment.interval.ms.",
    at_least(0),
)
CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.max.assignment.interval.ms",
    INT,
    15_000,
    "The most that a group may set as its consumer.assignment.interval.ms.",
    at_least(0),
)
CONSUMER_MAX_SIZE = ConfigKey[int](
    "group.consumer.max.size",
    INT,
    10_000,
    "The most members that one group of the consumer protocol may have. Kafka's default is no limit.",
    at_least(1),
)
CONSUMER_ASSIGNORS = ConfigKey[tuple[str, ...]](
    "group.consumer.assignors",
    LIST,
    ("uniform", "range"),
    "The assignors that members may name; the first one is used where none is named. Kafka also takes class names.",
    each_of("uniform", "range"),
)
CONSUMER_MIGRATION_POLICY = ConfigKey[str](
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    "Whether a group with members may change between the classic and the consumer protocol: to the consumer protocol "
    "when its first such member joins (upgrade), back when the last one has left (downgrade), both, or not at all.",
    one_of("disabled", "downgrade", "upgrade", "bidirectional"),
)
CONSUMER_REGEX_REFRESH_INTERVAL_MS = ConfigKey[int](
    "group.consumer.regex.refresh.interval.ms",
    INT,
    600_000,
    "How often at least regular expressions of subscriptions are compared with the names of topics, so that changed "
    "rights have an effect. New topics are found within ten seconds.",
    at_least(10_000),
)


class GroupKey(NamedTuple):
    """A key that may be set for a group: `broker` is the key that applies otherwise, `least` and `most` are the keys of
    the bounds."""

    key: ConfigKey[int]
    broker: ConfigKey[int]
    least: ConfigKey[int]
    most: ConfigKey[int]


GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    key.key.name: key
    for key in (
        GroupKey(
            ConfigKey(
                "consumer.session.timeout.ms",
                INT,
                CONSUMER_SESSION_TIMEOUT_MS.default,
                "How long a member of this group may be silent before it is removed.",
                at_least(1),
            ),
            CONSUMER_SESSION_TIMEOUT_MS,
            CONSUMER_MIN_SESSION_TIMEOUT_MS,
            CONSUMER_MAX_SESSION_TIMEOUT_MS,
        ),
        GroupKey(
            ConfigKey(
                "consumer.heartbeat.interval.ms",
                INT,
                CONSUMER_HEARTBEAT_INTERVAL_MS.default,
                "How often members of this group send heartbeats.",
                at_least(1),
            ),
            CONSUMER_HEARTBEAT_INTERVAL_MS,
            CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        GroupKey(
            ConfigKey(
                "consumer.assignment.interval.ms",
                INT,
                CONSUMER_ASSIGNMENT_INTERVAL_MS.default,
                "The least time between two assignments of this group.",
                at_least(0),
            ),
            CONSUMER_ASSIGNMENT_INTERVAL_MS,
            CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
            CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
        ),
    )
}
"""The keys that a group may override, by name."""
