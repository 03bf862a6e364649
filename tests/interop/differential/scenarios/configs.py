"""Compares DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, and configurations in CreateTopics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.interop.differential.calls import create
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.topics import create_topics, topic
from tests.interop.differential.side import NODE_ID, Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation

TOPIC = int(ResourceType.TOPIC)
BROKER = int(ResourceType.BROKER)
LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32
SET = int(ConfigOperation.SET)
DELETE = int(ConfigOperation.DELETE)
APPEND = int(ConfigOperation.APPEND)
SUBTRACT = int(ConfigOperation.SUBTRACT)

VALUES: dict[str, Sequence[str | None]] = {
    "retention.ms": ("abc", None, "", "-1", "-2", " 5 "),
    "no.such.key": ("1",),
    "": ("5",),
    "cleanup.policy": ("nonsense", "compact,delete", "delete,delete", " compact , delete ", ""),
    "segment.bytes": ("1", "1000000", "1048576"),
    "max.message.bytes": ("-1",),
    "compression.type": ("gzip", "none"),
    "message.timestamp.type": ("x",),
    "message.format.version": ("3.0",),
    "message.downconversion.enable": ("true",),
    "message.timestamp.difference.max.ms": ("5",),
    "message.timestamp.before.max.ms": ("-1",),
    "min.insync.replicas": ("0", "5"),
    "min.cleanable.dirty.ratio": ("2",),
    "unclean.leader.election.enable": ("maybe",),
    "preallocate": ("TRUE",),
    "flush.messages": ("0",),
    "segment.ms": ("0",),
    "segment.jitter.ms": ("-1",),
    "segment.index.bytes": ("3",),
    "file.delete.delay.ms": ("-1",),
    "index.interval.bytes": ("-1",),
    "retention.bytes": ("1e3",),
    "delete.retention.ms": ("9223372036854775808",),
    "max.compaction.lag.ms": ("0",),
    "compression.gzip.level": ("5", "99"),
    "compression.lz4.level": ("5",),
    "compression.zstd.level": ("5",),
    "local.retention.ms": ("1000",),
    "local.retention.bytes": ("1000",),
    "remote.storage.enable": ("false", "true"),
    "remote.log.copy.disable": ("false",),
    "leader.replication.throttled.replicas": ("*", "", "x"),
    "follower.replication.throttled.replicas": ("0:7",),
    "internal.segment.bytes": ("1000",),
}


@scenario
def values(side: Side) -> None:
    """Send keys and values that CreateTopics accepts or refuses."""
    for key, candidates in VALUES.items():
        for value in candidates:
            asked = topic(side.own("c"), configs=[(key, value)])
            create_topics(side, f"{key}={value}", asked, only_validate=True)
    for pairs, label in (
        ([("retention.ms", "1"), ("retention.ms", "2")], "key twice"),
        ([("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")], "lags the wrong way round"),
    ):
        create_topics(side, label, topic(side.own("c"), configs=pairs), only_validate=True)


@scenario
def of_a_new_topic(side: Side) -> None:
    """Compare all keys of a topic with their values and sources, as CreateTopics and DescribeConfigs return them."""
    asked = topic(side.own("a"), 2, configs=[("retention.ms", "5000")])
    answer = side.get(ApiKey.CREATE_TOPICS, 7, {"topics": [asked], "timeout_ms": 5000})
    created = [
        {"name": one.name, "value": one.value, "read_only": one.read_only, "source": one.config_source}
        for one in answer.topics[0].configs
    ]
    side.note("CreateTopics", created)
    create(side, "b", retention_ms=5000)
    for version in (1, 4):
        describe(side, "all keys", TOPIC, side.own("b"), version=version)


def describe(
    side: Side, label: str, kind: int, name: str, keys: Sequence[str] | None = None, *, version: int = 4, **more: Any
) -> None:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys and list(keys)}
    side.ask(ApiKey.DESCRIBE_CONFIGS, version, {"resources": [resource], **more}, label)


BROKER_KEYS = (
    *("num.partitions", "auto.create.topics.enable", "log.retention.ms", "log.retention.hours", "message.max.bytes"),
    *("transactional.id.expiration.ms", "transaction.max.timeout.ms", "offsets.retention.minutes"),
    *("group.min.session.timeout.ms", "group.max.session.timeout.ms", "producer.id.expiration.ms"),
    *("log.segment.bytes", "compression.type", "log.cleanup.policy", "default.replication.factor"),
    *("min.insync.replicas", "log.message.timestamp.type", "max.connections", "node.id", "broker.id"),
    *("fetch.max.bytes", "max.incremental.fetch.session.cache.slots", "offset.metadata.max.bytes"),
    *("socket.request.max.bytes", "connections.max.idle.ms", "delete.topic.enable"),
    *("log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms"),
)


@scenario
def of_a_broker(side: Side) -> None:
    """Compare the values and types of the broker's keys on which clients depend."""
    resource = {"resource_type": BROKER, "resource_name": str(NODE_ID), "configuration_keys": None}
    answer = side.get(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
    found = {one.name: [one.value, one.config_type] for one in answer.results[0].configs}
    for key in BROKER_KEYS:
        side.note(key, found.get(key))


@scenario
def describing(side: Side) -> None:
    """Send DescribeConfigs for all types of resources."""
    create(side, "a", retention_ms=5000)
    mine = side.own("a")
    describe(side, "named", TOPIC, mine, ["retention.ms", "no.such"])
    describe(side, "synonyms", TOPIC, mine, ["retention.ms"], include_synonyms=True)
    describe(side, "empty list of keys", TOPIC, mine, [])
    describe(side, "unknown topic", TOPIC, side.own("none"))
    describe(side, "empty name", TOPIC, "")
    describe(side, "bad name", TOPIC, "bad name")
    describe(side, "broker", BROKER, str(NODE_ID), ["num.partitions"])
    describe(side, "another broker", BROKER, "9", ["num.partitions"])
    describe(side, "no broker", BROKER, "x", ["num.partitions"])
    describe(side, "all brokers", BROKER, "", ["num.partitions"])
    describe(side, "logger", LOGGER, str(NODE_ID), ["kafka"])
    describe(side, "logger of another", LOGGER, "9")
    describe(side, "client metrics", CLIENT_METRICS, "x", ["interval.ms"])
    describe(side, "group", GROUP, side.own("g"), ["consumer.session.timeout.ms"])
    for kind in (0, 99):
        describe(side, f"type {kind}", kind, "x")
    one = {"resource_type": TOPIC, "resource_name": mine, "configuration_keys": ["retention.ms"]}
    side.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [one, one]}, "twice")
    side.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": []}, "none")
    for version in range(1, 5):
        describe(side, "each version", TOPIC, mine, ["retention.ms"], version=version)
    answer = side.get(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [one], "include_documentation": True})
    side.note("has documentation", bool(answer.results[0].configs[0].documentation))


Operation = tuple[str, int, str | None]


def alter(
    side: Side, label: str, kind: int, name: str, *operations: Operation, only_validate: bool = False, version: int = 1
) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key, "config_operation": what, "value": value} for key, what, value in operations],
    }
    asked = {"resources": [resource], "validate_only": only_validate}
    return side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, asked, label)


STEPS: tuple[tuple[str, Sequence[Operation]], ...] = (
    ("set", [("retention.ms", SET, "1000")]),
    ("set nonsense", [("retention.ms", SET, "x")]),
    ("set null", [("retention.ms", SET, None)]),
    ("set empty", [("retention.ms", SET, "")]),
    ("append to a number", [("retention.ms", APPEND, "5")]),
    ("subtract from a number", [("retention.ms", SUBTRACT, "5")]),
    ("delete", [("retention.ms", DELETE, None)]),
    ("delete again", [("retention.ms", DELETE, None)]),
    ("delete with a value", [("retention.ms", DELETE, "77")]),
    ("append", [("cleanup.policy", APPEND, "compact")]),
    ("append again", [("cleanup.policy", APPEND, "compact")]),
    ("append nonsense", [("cleanup.policy", APPEND, "nonsense")]),
    ("subtract", [("cleanup.policy", SUBTRACT, "delete")]),
    ("subtract again", [("cleanup.policy", SUBTRACT, "delete")]),
    ("append null", [("cleanup.policy", APPEND, None)]),
    ("set a list", [("cleanup.policy", SET, "delete,compact")]),
    ("set an unknown key", [("no.such", SET, "1")]),
    ("delete an unknown key", [("no.such", DELETE, None)]),
    ("key twice", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
    ("one is bad", [("retention.ms", SET, "7"), ("segment.ms", SET, "x")]),
    ("none", []),
    ("empty key", [("", SET, "1")]),
)


@scenario
def altering_topics(side: Side) -> None:
    """Change a topic step by step with IncrementalAlterConfigs."""
    create(side, "a")
    mine = side.own("a")
    for label, operations in STEPS:
        alter(side, label, TOPIC, mine, *operations)
        _show(side, "a", f"after: {label}")
    alter(side, "only validated", TOPIC, mine, ("retention.ms", SET, "4242"), only_validate=True)
    _show(side, "a", "after validation")
    alter(side, "null of an unknown topic", TOPIC, side.own("none"), ("retention.ms", SET, None))
    for name, label in ((side.own("none"), "unknown topic"), ("", "empty name"), ("bad name", "bad name")):
        alter(side, label, TOPIC, name, ("retention.ms", SET, "1"))
    alter(side, "version 0", TOPIC, mine, ("retention.ms", SET, "5"), version=0)
    side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [], "validate_only": False}, "no resources")


def _show(side: Side, name: str, label: str) -> None:
    """Record the keys that are set. A change becomes visible immediately or soon, so the request is repeated until the
    response no longer changes.
    """
    resource = {"resource_type": TOPIC, "resource_name": side.own(name), "configuration_keys": None}
    seen: list[list[str]] = []

    def stays(answer: Any) -> bool:
        found = answer.results[0].configs
        seen.append(sorted(f"{one.name}={one.value}" for one in found if one.config_source == 1))
        return len(seen) > 3 and seen[-1] == seen[-2] == seen[-3]

    side.get(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}, until=stays)
    side.note(label, seen[-1])


@scenario
def emptying_a_list(side: Side) -> None:
    """Subtract the last element of cleanup.policy, and change keys that are lists of replicas."""
    create(side, "a")
    mine = side.own("a")
    throttled = "leader.replication.throttled.replicas"
    alter(side, "subtract the last", TOPIC, mine, ("cleanup.policy", SUBTRACT, "delete"), only_validate=True)
    alter(side, "append replicas", TOPIC, mine, (throttled, APPEND, "0:7"))
    alter(side, "append more replicas", TOPIC, mine, (throttled, APPEND, "1:7"))
    alter(side, "subtract replicas", TOPIC, mine, (throttled, SUBTRACT, "0:7"))
    alter(side, "delete replicas", TOPIC, mine, (throttled, DELETE, None))


@scenario
def subtracting_nonsense(side: Side) -> None:
    """Subtract elements that the list of the key cannot contain."""
    create(side, "a")
    alter(side, "subtract nonsense", TOPIC, side.own("a"), ("cleanup.policy", SUBTRACT, "nonsense"))


@scenario
def unknown_operation(side: Side) -> None:
    """Send an unknown operation, after which Apache Kafka's controller resigns and is elected again."""
    create(side, "a")
    alter(side, "operation 9", TOPIC, side.own("a"), ("retention.ms", 9, "1"))
    asked = {"topics": [topic(side.own("b"))], "timeout_ms": 5000}
    side.get(ApiKey.CREATE_TOPICS, 7, asked, until=lambda answer: answer.topics[0].error_code in (0, 36))


@scenario
def resource_twice(side: Side) -> None:
    """Send two values for the same key of one topic in one request."""
    create(side, "a")
    one: Plain = {"resource_type": TOPIC, "resource_name": side.own("a")}
    values = ("5000", "6000")
    twice = [one | {"configs": [{"name": "retention.ms", "config_operation": SET, "value": value}]} for value in values]
    side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": twice, "validate_only": False}, "resource twice")
    _show(side, "a", "after a resource twice")


THROTTLED_DISKS = "replica.alter.log.dirs.io.max.bytes.per.second"


@scenario
def altering_others(side: Side) -> None:
    """Send IncrementalAlterConfigs with validate_only, for brokers and other resources."""
    node = str(NODE_ID)
    for label, kind, name, operation in (
        ("broker, bad value", BROKER, node, ("log.cleaner.threads", SET, "x")),
        ("broker, unknown key", BROKER, node, ("no.such.key", SET, "x")),
        ("broker, read-only", BROKER, node, ("node.id", SET, "3")),
        ("broker, of all brokers", BROKER, node, ("log.retention.ms", SET, "3600000")),
        ("all brokers", BROKER, "", ("log.retention.ms", SET, "3600000")),
        ("all brokers, bad value", BROKER, "", ("message.max.bytes", SET, "abc")),
        ("all brokers, of one broker", BROKER, "", ("listeners", SET, "PLAINTEXT://:1")),
        ("all brokers, no effect", BROKER, "", ("num.io.threads", SET, "3")),
        ("all brokers, a promise", BROKER, "", ("max.connections.per.ip.overrides", SET, "10.0.0.1:5")),
        ("all brokers, at a start", BROKER, "", ("max.connections.per.ip", SET, "100")),
        ("all brokers, delete an unknown key", BROKER, "", ("no.such.key", DELETE, None)),
        ("broker, delete what a reassignment throttles", BROKER, node, (THROTTLED_DISKS, DELETE, None)),
        ("another broker", BROKER, "9", ("log.retention.ms", SET, "1")),
        ("no broker", BROKER, "x", ("log.retention.ms", SET, "1")),
        ("logger", LOGGER, node, ("kafka.server", SET, "INFO")),
        ("group", GROUP, side.own("g"), ("consumer.session.timeout.ms", SET, "50000")),
        ("client metrics", CLIENT_METRICS, side.own("m"), ("interval.ms", SET, "1000")),
        ("client metrics, too often", CLIENT_METRICS, side.own("m"), ("interval.ms", SET, "99")),
        ("client metrics, no number", CLIENT_METRICS, side.own("m"), ("interval.ms", SET, "often")),
        ("client metrics, unknown key", CLIENT_METRICS, side.own("m"), ("interval", SET, "1000")),
        ("client metrics, unknown attribute", CLIENT_METRICS, side.own("m"), ("match", SET, "user=alice")),
        ("client metrics, no pattern", CLIENT_METRICS, side.own("m"), ("match", SET, "client_id=(")),
        ("client metrics, no name", CLIENT_METRICS, "", ("interval.ms", SET, "1000")),
        ("type 0", 0, "x", ("a", SET, "1")),
        ("type 99", 99, "x", ("a", SET, "1")),
    ):
        alter(side, label, kind, name, operation, only_validate=True)


@scenario
def altering_all_at_once(side: Side) -> None:
    """Send AlterConfigs, which replaces all configurations of a resource."""
    create(side, "a", segment_ms=60_000)
    for version in range(3):
        _replace(side, f"version {version}", {"retention.ms": f"900{version}"}, version)
        _show(side, "a", f"after version {version}")
    _replace(side, "none", {})
    _show(side, "a", "after none")
    _replace(side, "null", {"retention.ms": None})
    _replace(side, "unknown key", {"no.such": "1"})
    _replace(side, "empty name", {"retention.ms": "1"}, name="")
    _replace(side, "null of an unknown topic", {"retention.ms": None}, name=side.own("none"))
    _replace(side, "key twice", {"retention.ms": "1"}, times=2)
    _show(side, "a", "at last")


def _replace(
    side: Side, label: str, configs: dict[str, str | None], version: int = 2, *, name: str | None = None, times: int = 1
) -> None:
    resource = {
        "resource_type": TOPIC,
        "resource_name": side.own("a") if name is None else name,
        "configs": [{"name": key, "value": value} for key, value in configs.items()] * times,
    }
    side.ask(ApiKey.ALTER_CONFIGS, version, {"resources": [resource], "validate_only": False}, label)
