"""Compares Metadata, DescribeTopicPartitions, DescribeCluster, FindCoordinator, ApiVersions, and smaller APIs of the
cluster.
"""

from __future__ import annotations

from typing import Any

from tests.interop.differential.calls import GROUP, TRANSACTION, coordinator, create
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


def metadata(side: Side, label: str, *topics: Plain, version: int = 12, create: bool = False, **more: bool) -> Any:
    asked = {"topics": list(topics), "allow_auto_topic_creation": create, **more}
    return side.ask(ApiKey.METADATA, version, asked, label)


@scenario
def topics_by_name(side: Side) -> None:
    """Request known, unknown and invalid topic names, in every version of Metadata (unknown names only in versions that
    need not create topics).
    """
    create(side, "a", 2)
    for version in range(14):
        metadata(side, "known", {"name": side.own("a")}, version=version)
        if version >= 4:
            metadata(side, "unknown", {"name": side.own("none")}, version=version)
        for name in ("bad name", ""):
            metadata(side, f"name {name!r}", {"name": name}, version=version)
        if version:
            metadata(side, "no topics", version=version)
    metadata(side, "twice", {"name": side.own("a")}, {"name": side.own("a")})
    for version in (8, 10, 12):
        more = {"include_cluster_authorized_operations": True} if version < 11 else {}
        more["include_topic_authorized_operations"] = True
        metadata(side, "operations", {"name": side.own("a")}, version=version, **more)
    coordinator(side, "x", GROUP)
    coordinator(side, "x", TRANSACTION)
    metadata(side, "internal", {"name": "__consumer_offsets"}, {"name": "__transaction_state"})


@scenario
def topics_by_id(side: Side) -> None:
    create(side, "a")
    mine = side.topic_ids["a"]
    metadata(side, "by id", {"name": None, "topic_id": mine})
    metadata(side, "unknown id", {"name": None, "topic_id": b"\7" * 16})
    metadata(side, "both", {"name": side.own("a"), "topic_id": mine})
    metadata(side, "both, not the same", {"name": side.own("b"), "topic_id": mine})
    metadata(side, "neither", {"name": None})
    metadata(side, "name and id of one", {"name": side.own("a")}, {"name": None, "topic_id": mine})
    metadata(side, "id in a version for names", {"name": side.own("a"), "topic_id": mine}, version=10)


@scenario
def automatic_creation(side: Side) -> None:
    """Request unknown topics with automatic creation, in versions that can enable it and in those that always create
    topics.
    """
    create(side, "a.b")
    for version in (0, 1, 3, 4, 8, 12):
        metadata(side, "asked for", {"name": side.own(f"v{version}")}, version=version, create=True)
        asked = {"topics": [{"name": side.own(f"v{version}")}]}
        side.get(ApiKey.METADATA, 1, asked, until=lambda answer: answer.topics[0].error_code == 0)
        metadata(side, "then", {"name": side.own(f"v{version}")}, version=version)
    for name, label in (("bad name", "bad"), ("", "empty"), ("x" * 250, "long")):
        metadata(side, f"name: {label}", {"name": name}, create=True)
    metadata(side, "collides", {"name": side.own("a_b")}, create=True)
    metadata(side, "not to be created", {"name": side.own("none")})


@scenario
def partitions_in_pages(side: Side) -> None:
    """DescribeTopicPartitions."""
    create(side, "a", 2)
    mine = {"name": side.own("a")}

    def ask(label: str, *topics: Plain, limit: int = 10, cursor: tuple[str, int] | None = None) -> None:
        asked: Plain = {"topics": list(topics), "response_partition_limit": limit}
        if cursor is not None:
            asked["cursor"] = {"topic_name": side.own(cursor[0]), "partition_index": cursor[1]}
        side.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked, label)

    ask("known and unknown", mine, {"name": side.own("none")}, limit=2000)
    ask("limit 1", mine, limit=1)
    ask("limit 0", mine, limit=0)
    ask("from partition 1", mine, cursor=("a", 1))
    ask("cursor behind the list", mine, cursor=("zzz", 0))
    ask("cursor at partition -1", mine, cursor=("a", -1))


@scenario
def describe(side: Side) -> None:
    """DescribeCluster."""
    for version in (0, 1, 2):
        side.ask(ApiKey.DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": False}, "plain")
    side.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True}, "operations")
    for kind in (0, 2, 3):
        asked = {"include_cluster_authorized_operations": False, "endpoint_type": kind}
        side.ask(ApiKey.DESCRIBE_CLUSTER, 1, asked, f"endpoint type {kind}")


@scenario
def features(side: Side) -> None:
    """Send UpdateFeatures with a feature's present level, with a feature that no broker has, and with an unknown type
    of change.
    """
    for version in (0, 1, 2):
        for label, feature, level, kind in (
            ("in force", "transaction.version", 2, 1),
            ("unknown", "no.such.version", 1, 1),
            ("unknown type", "transaction.version", 2, 9),
        ):
            update = {"feature": feature, "max_version_level": level, "upgrade_type": kind}
            side.ask(ApiKey.UPDATE_FEATURES, version, {"feature_updates": [update], "validate_only": True}, label)


@scenario
def config_resources(side: Side) -> None:
    """Send ListConfigResources with types that have no resources, and an unknown type."""
    side.ask(ApiKey.LIST_CONFIG_RESOURCES, 0, {}, "client metrics")
    for label, kinds in (("client metrics", [16]), ("brokers", [4]), ("loggers", [8]), ("unknown type", [3])):
        side.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": kinds}, label)


@scenario
def find_coordinators(side: Side) -> None:
    """Send FindCoordinator for all types of coordinators, in every version."""
    coordinator(side, "x", GROUP)
    coordinator(side, "x", TRANSACTION)
    for version in range(7):
        for kind in (0, 1, 2, 3, -1):
            if version < 4:
                keys: list[Plain] = [{"key": "k", "key_type": kind}, {"key": "", "key_type": kind}]
            else:
                several: tuple[list[str], ...] = (["k", ""], [], ["k", "k"])
                keys = [{"coordinator_keys": names, "key_type": kind} for names in several]
            for number, asked in enumerate(keys):
                label = f"type {kind}, {('filled', 'empty', 'twice')[number]}"
                side.ask(ApiKey.FIND_COORDINATOR, version, asked, label, retried=())


@scenario
def versions(side: Side) -> None:
    """Send ApiVersions, and compare the served APIs and which clients are accepted."""
    for version in range(5):
        asked = {"client_software_name": "a", "client_software_version": "1"}
        answer = side.get(ApiKey.API_VERSIONS, version, asked)
        side.note(f"error in version {version}", answer.error_code)
    served = {one.api_key: [one.min_version, one.max_version] for one in answer.api_keys}
    for key in ApiKey:
        side.note(key.message_name, served.get(key))
    for feature in ("transaction.version", "group.version", "metadata.version", "eligible.leader.replicas.version"):
        side.note(feature, [one.max_version_level for one in answer.finalized_features if one.name == feature])


@scenario
def client_names(side: Side) -> None:
    """Send ApiVersions with valid and invalid names and versions of clients, and in versions of ApiVersions that do not
    exist yet.
    """
    for name, version in (
        *(("", ""), ("a", ""), ("", "1"), ("a b", "1"), ("-a", "1"), ("a-", "1"), ("a.b-c", "1.0-x")),
        *(("ä", "1"), ("a", "1 0"), ("a_b", "1"), ("a", ".")),
    ):
        asked = {"client_software_name": name, "client_software_version": version}
        for api_version in (3, 4):
            answer = side.get(ApiKey.API_VERSIONS, api_version, asked)
            side.note(f"v{api_version}: {name!r} {version!r}", [answer.error_code, bool(answer.api_keys)])
    for api_version in (5, 99, 32767, -1):
        side.raw_answer(ApiKey.API_VERSIONS, api_version, b"\0\1\1\0", f"v{api_version}", shown=10)
