"""The configuration keys of streams groups (KIP-1071), with Kafka's names and defaults."""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.bounded_keys import bounded
from oncelog_broker.config.declared import ConfigKey, ConfigType, at_least

INT = ConfigType.INT

SESSION_TIMEOUT: Final = bounded(
    "streams",
    "session.timeout.ms",
    45_000,
    45_000,
    60_000,
    "The time without a heartbeat after which a member of a streams group is removed. Clients cannot set it.",
)
HEARTBEAT_INTERVAL: Final = bounded(
    "streams",
    "heartbeat.interval.ms",
    5_000,
    5_000,
    15_000,
    "How often members of streams groups send heartbeats. During an assignment, or while internal topics are "
    "created, the coordinator requests more frequent heartbeats.",
)
ASSIGNMENT_INTERVAL: Final = bounded(
    "streams",
    "assignment.interval.ms",
    1_000,
    0,
    15_000,
    "The shortest time between two assignments of a streams group. 0 means no minimum (KIP-1263).",
    minimum=0,
)

STREAMS_SESSION_TIMEOUT_MS, STREAMS_MIN_SESSION_TIMEOUT_MS, STREAMS_MAX_SESSION_TIMEOUT_MS = SESSION_TIMEOUT
STREAMS_HEARTBEAT_INTERVAL_MS, STREAMS_MIN_HEARTBEAT_INTERVAL_MS, STREAMS_MAX_HEARTBEAT_INTERVAL_MS = HEARTBEAT_INTERVAL
STREAMS_ASSIGNMENT_INTERVAL_MS, STREAMS_MIN_ASSIGNMENT_INTERVAL_MS, STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = (
    ASSIGNMENT_INTERVAL
)

STREAMS_MAX_SIZE = ConfigKey[int](
    "group.streams.max.size",
    INT,
    1_000,
    "The largest number of members of a streams group: each thread of each instance is a member. Kafka's "
    "default is no limit.",
    at_least(1),
)
STREAMS_NUM_STANDBY_REPLICAS = ConfigKey[int](
    "group.streams.num.standby.replicas",
    INT,
    0,
    "The number of standby tasks, which keep copies of the state, of each stateful task of a streams group.",
    at_least(0),
)
STREAMS_MAX_STANDBY_REPLICAS = ConfigKey[int](
    "group.streams.max.standby.replicas",
    INT,
    2,
    "The largest allowed value of a group's streams.num.standby.replicas.",
    at_least(0),
)
STREAMS_INITIAL_REBALANCE_DELAY_MS = ConfigKey[int](
    "group.streams.initial.rebalance.delay.ms",
    INT,
    3_000,
    "How long an empty streams group waits for more members after its first member, before tasks are assigned.",
    at_least(0),
)
