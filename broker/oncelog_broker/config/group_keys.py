"""The configuration keys of groups of the consumer protocol (KIP-848), with Kafka's names and defaults, and the keys
that a single group may override (`GROUP_KEYS`).

Most keys in `GROUP_KEYS` correspond to three broker keys: the value for groups without an override, and the minimum and
maximum of overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog_broker.config import share_keys, streams_keys
from oncelog_broker.config.declared import ConfigKey, ConfigType, at_least, each_of, one_of
from oncelog_protocol.light_classes import NamedTuple

BOOLEAN, INT, LIST, STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST, ConfigType.STRING

CONSUMER_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.consumer.session.timeout.ms",
    INT,
    45_000,
    "The time without a heartbeat after which a member of a group of the consumer protocol is removed. Clients "
    "cannot set it.",
    at_least(1),
)
CONSUMER_MIN_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.consumer.min.session.timeout.ms",
    INT,
    45_000,
    "The smallest allowed value of a group's consumer.session.timeout.ms.",
    at_least(1),
)
CONSUMER_MAX_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.consumer.max.session.timeout.ms",
    INT,
    60_000,
    "The largest allowed value of a group's consumer.session.timeout.ms.",
    at_least(1),
)
CONSUMER_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.heartbeat.interval.ms",
    INT,
    5_000,
    "How often members of groups of the consumer protocol send heartbeats. During an assignment, the "
    "coordinator requests more frequent heartbeats.",
    at_least(1),
)
CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.min.heartbeat.interval.ms",
    INT,
    5_000,
    "The smallest allowed value of a group's consumer.heartbeat.interval.ms.",
    at_least(1),
)
CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.max.heartbeat.interval.ms",
    INT,
    15_000,
    "The largest allowed value of a group's consumer.heartbeat.interval.ms.",
    at_least(1),
)
CONSUMER_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.assignment.interval.ms",
    INT,
    1_000,
    "The shortest time between two assignments of a group of the consumer protocol, so that a thousand members "
    "that start together do not cause a thousand assignments. 0 means no minimum (KIP-1263).",
    at_least(0),
)
CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.min.assignment.interval.ms",
    INT,
    0,
    "The smallest allowed value of a group's consumer.assignment.interval.ms.",
    at_least(0),
)
CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    "group.consumer.max.assignment.interval.ms",
    INT,
    15_000,
    "The largest allowed value of a group's consumer.assignment.interval.ms.",
    at_least(0),
)
CONSUMER_MAX_SIZE = ConfigKey[int](
    "group.consumer.max.size",
    INT,
    10_000,
    "The largest number of members of a group of the consumer protocol. Kafka's default is no limit.",
    at_least(1),
)
CONSUMER_ASSIGNORS = ConfigKey[tuple[str, ...]](
    "group.consumer.assignors",
    LIST,
    ("uniform", "range"),
    "The assignors that members may name. If no member names an assignor, the first one of the list is used. "
    "Kafka also accepts class names.",
    each_of("uniform", "range"),
)
CONSUMER_MIGRATION_POLICY = ConfigKey[str](
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    "Whether a group with members may change between the classic and the consumer protocol: to the consumer "
    "protocol when the first member with that protocol joins (upgrade), back to the classic protocol when the "
    "last such member has left (downgrade), in both directions (bidirectional), or not at all (disabled).",
    one_of("disabled", "downgrade", "upgrade", "bidirectional"),
)
CONSUMER_REGEX_REFRESH_INTERVAL_MS = ConfigKey[int](
    "group.consumer.regex.refresh.interval.ms",
    INT,
    600_000,
    "The longest time after which regular expressions of subscriptions are matched with the names of topics "
    "again, so that changed rights take effect. New topics are found within ten seconds.",
    at_least(10_000),
)


class GroupBounds(NamedTuple):
    """The broker keys of a group key: `broker` has the value for groups without an override, `least` and `most` have
    the limits for overrides; None means that the broker sets no such limit."""

    broker: ConfigKey[int]
    least: ConfigKey[int] | None = None
    most: ConfigKey[int] | None = None


class GroupKey(NamedTuple):
    """A key that a single group may override; `bounds` is None if no broker keys correspond to the group key."""

    key: ConfigKey[Any]
    bounds: GroupBounds | None = None


def _of_broker(name: str, bounds: GroupBounds, doc: str, minimum: int = 1) -> GroupKey:
    return GroupKey(ConfigKey(name, INT, bounds.broker.default, doc, at_least(minimum)), bounds)


GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    key.key.name: key
    for key in (
        _of_broker(
            "consumer.session.timeout.ms",
            GroupBounds(CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_MIN_SESSION_TIMEOUT_MS, CONSUMER_MAX_SESSION_TIMEOUT_MS),
            "How long a member of this group may be silent before it is removed.",
        ),
        _of_broker(
            "consumer.heartbeat.interval.ms",
            GroupBounds(
                CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_MIN_HEARTBEAT_INTERVAL_MS, CONSUMER_MAX_HEARTBEAT_INTERVAL_MS
            ),
            "How often members of this group send heartbeats.",
        ),
        _of_broker(
            "consumer.assignment.interval.ms",
            GroupBounds(
                CONSUMER_ASSIGNMENT_INTERVAL_MS,
                CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
                CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
            ),
            "The shortest time between two assignments of this group.",
            minimum=0,
        ),
        _of_broker(
            "share.session.timeout.ms",
            GroupBounds(*share_keys.SESSION_TIMEOUT),
            "How long a member of this share group may be silent before it is removed.",
        ),
        _of_broker(
            "share.heartbeat.interval.ms",
            GroupBounds(*share_keys.HEARTBEAT_INTERVAL),
            "How often members of this share group send heartbeats.",
        ),
        _of_broker(
            "share.assignment.interval.ms",
            GroupBounds(*share_keys.ASSIGNMENT_INTERVAL),
            "The shortest time between two assignments of this share group.",
            minimum=0,
        ),
        _of_broker(
            "share.record.lock.duration.ms",
            GroupBounds(*share_keys.RECORD_LOCK_DURATION),
            "How long a member of this share group has a record that it was given.",
        ),
        _of_broker(
            "share.delivery.count.limit",
            GroupBounds(*share_keys.DELIVERY_COUNT_LIMIT),
            "How often a record is delivered to this share group at most.",
        ),
        _of_broker(
            "share.partition.max.record.locks",
            GroupBounds(*share_keys.PARTITION_MAX_RECORD_LOCKS),
            "How many records of a share partition of this group may be in flight at a time.",
        ),
        _of_broker(
            "streams.session.timeout.ms",
            GroupBounds(*streams_keys.SESSION_TIMEOUT),
            "How long a member of this streams group may be silent before it is removed.",
        ),
        _of_broker(
            "streams.heartbeat.interval.ms",
            GroupBounds(*streams_keys.HEARTBEAT_INTERVAL),
            "How often members of this streams group send heartbeats.",
        ),
        _of_broker(
            "streams.assignment.interval.ms",
            GroupBounds(*streams_keys.ASSIGNMENT_INTERVAL),
            "The shortest time between two assignments of this streams group.",
            minimum=0,
        ),
        _of_broker(
            "streams.num.standby.replicas",
            GroupBounds(streams_keys.STREAMS_NUM_STANDBY_REPLICAS, most=streams_keys.STREAMS_MAX_STANDBY_REPLICAS),
            "How many standby tasks each stateful task of this streams group has.",
            minimum=0,
        ),
        _of_broker(
            "streams.initial.rebalance.delay.ms",
            GroupBounds(streams_keys.STREAMS_INITIAL_REBALANCE_DELAY_MS),
            "How long the first member of this streams group waits for others before tasks are assigned.",
            minimum=0,
        ),
        GroupKey(
            ConfigKey(
                "share.auto.offset.reset",
                STRING,
                "latest",
                "Where a share partition of this group begins: latest, earliest, or by_duration: and an ISO 8601 "
                "duration, such as by_duration:PT1H, for the first record that is not older.",
                share_keys.reset_strategy(),
            )
        ),
        GroupKey(
            ConfigKey(
                "share.isolation.level",
                STRING,
                "read_uncommitted",
                "Whether this share group gets records of transactions before they are committed, and of aborted ones.",
                one_of("read_uncommitted", "read_committed"),
            )
        ),
        GroupKey(
            ConfigKey(
                "share.renew.acknowledge.enable",
                BOOLEAN,
                True,
                "Whether members of this share group may renew the acquisition locks of their records.",
            )
        ),
    )
}
"""The keys that a group may override, by name."""
