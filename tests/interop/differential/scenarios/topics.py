"""Compares CreateTopics, CreatePartitions and DeleteTopics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import EARLIEST, LATEST, coordinator, create, fill, list_offsets
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.fetch import fetch_request
from tests.interop.differential.side import NODE_ID, Side

from oncelog_protocol.api import ApiKey

Assignment = Sequence[tuple[int, Sequence[int]]]


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignment: Assignment = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> Plain:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [{"partition_index": index, "broker_ids": list(brokers)} for index, brokers in assignment],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


def create_topics(side: Side, label: str, *topics: Plain, version: int = 7, only_validate: bool = False) -> None:
    """Send CreateTopics, and record the response without its configurations, which `configs.of_a_new_topic`
    compares.
    """
    asked = {"topics": list(topics), "timeout_ms": 5000, "validate_only": only_validate}
    side.ask(ApiKey.CREATE_TOPICS, version, asked, f"{label}{' (only validated)' if only_validate else ''}")
    answer = side.transcript[-1].answer
    for one in answer["topics"] if isinstance(answer, dict) else ():
        one.pop("configs", None)


@scenario
def names(side: Side) -> None:
    """Use invalid names, names of internal topics, and names that collide."""
    for name in ("", ".", "..", "a b", "a/b", "ä", "x" * 249, "x" * 250, "a\0b", "__mine"):
        create_topics(side, f"name {name[:10]!r} of {len(name)}", topic(name), only_validate=True)
    create_topics(side, "__cluster_metadata", topic("__cluster_metadata"), only_validate=True)
    create(side, "a.b")
    for only_validate in (False, True):
        create_topics(side, "collides", topic(side.own("a_b")), only_validate=only_validate)
        create_topics(side, "exists", topic(side.own("a.b")), only_validate=only_validate)
    create_topics(side, "twice", topic(side.own("x")), topic(side.own("x")))
    create_topics(side, "none")
    for version in range(2, 8):
        create_topics(side, "in each version", topic(side.own(f"v{version}"), 2), version=version)


@scenario
def colliding_pair(side: Side) -> None:
    """Create two topics in one request whose names collide."""
    create_topics(side, "two that collide", topic(side.own("x_y")), topic(side.own("x.y")))


@scenario
def numbers(side: Side) -> None:
    """Vary the numbers of partitions and replicas."""
    for partitions in (0, -1, -2, 1, 3):
        for replicas in (1, -1, 0, -2, 2, 3):
            for version in (2, 4, 7):
                label = f"{partitions} partitions, {replicas} replicas"
                asked = topic(side.own("n"), partitions, replicas)
                create_topics(side, label, asked, only_validate=True, version=version)
    create_topics(side, "2^31-1 partitions", topic(side.own("n"), 2**31 - 1), only_validate=True)


@scenario
def assignments(side: Side) -> None:
    """Let the client assign the replicas."""
    cases: dict[str, tuple[int, int, Assignment]] = {
        "assigned": (-1, -1, [(0, [NODE_ID])]),
        "assigned, and numbers": (1, 1, [(0, [NODE_ID])]),
        "assigned, and replicas": (-1, 1, [(0, [NODE_ID])]),
        "unknown broker": (-1, -1, [(0, [9])]),
        "broker twice": (-1, -1, [(0, [NODE_ID, NODE_ID])]),
        "no brokers": (-1, -1, [(0, [])]),
        "begins at 1": (-1, -1, [(1, [NODE_ID])]),
        "a hole": (-1, -1, [(0, [NODE_ID]), (2, [NODE_ID])]),
        "partition twice": (-1, -1, [(0, [NODE_ID]), (0, [NODE_ID])]),
        "partition -1": (-1, -1, [(-1, [NODE_ID])]),
        "uneven": (-1, -1, [(0, [NODE_ID]), (1, [NODE_ID, NODE_ID])]),
    }
    for label, (partitions, replicas, assignment) in cases.items():
        create_topics(side, label, topic(side.own("a"), partitions, replicas, assignment), only_validate=True)


@scenario
def more_partitions(side: Side) -> None:
    """CreatePartitions."""
    create(side, "a", 2)

    def ask(
        label: str,
        count: int,
        brokers: Sequence[Sequence[int]] | None = None,
        *,
        name: str = side.own("a"),
        version: int = 3,
        only_validate: bool = True,
    ) -> None:
        new = None if brokers is None else [{"broker_ids": list(one)} for one in brokers]
        topics = [{"name": name, "count": count, "assignments": new}]
        asked = {"topics": topics, "timeout_ms": 5000, "validate_only": only_validate}
        side.ask(ApiKey.CREATE_PARTITIONS, version, asked, label)

    for count in (0, -1, 1, 2):
        ask(f"to {count}", count)
    for version in range(4):
        ask("to 3", 3, version=version)
    for label, count, brokers in (
        ("assigned", 3, [[NODE_ID]]),
        ("assigned to none", 3, []),
        ("too few assigned", 4, [[NODE_ID]]),
        ("too many assigned", 3, [[NODE_ID], [NODE_ID]]),
        ("unknown broker", 3, [[9]]),
        ("broker twice", 3, [[NODE_ID, NODE_ID]]),
        ("no broker", 3, [[]]),
    ):
        ask(label, count, brokers)
    ask("unknown topic", 3, name=side.own("none"))
    ask("empty name", 3, name="")
    ask("to 3, done", 3, only_validate=False)
    again = {"name": side.own("a"), "count": 5}
    for label, topics in (("topic twice", [again, again]), ("none", [])):
        asked = {"topics": topics, "timeout_ms": 5000, "validate_only": False}
        side.ask(ApiKey.CREATE_PARTITIONS, 3, asked, label)


@scenario
def more_partitions_of_internal_topics(side: Side) -> None:
    """Send CreatePartitions for internal topics with validate_only, because the number of partitions of internal topics
    must not change.
    """
    for kind, name in enumerate(("__consumer_offsets", "__transaction_state")):
        coordinator(side, "a", kind)
        asked = {
            "topics": [{"name": name, "count": 1000, "assignments": None}],
            "timeout_ms": 5000,
            "validate_only": True,
        }
        side.ask(ApiKey.CREATE_PARTITIONS, 3, asked, name)


def delete_topics(side: Side, label: str, *topics: tuple[str | None, bytes], version: int = 6) -> None:
    """Send DeleteTopics by name and by id; before version 6 only by name."""
    asked: Plain = {"timeout_ms": 5000}
    if version < 6:
        asked["topic_names"] = [name for name, _ in topics]
    else:
        asked["topics"] = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    side.ask(ApiKey.DELETE_TOPICS, version, asked, label)


NO_ID = bytes(16)
UNKNOWN_ID = b"\7" * 16


@scenario
def deleting(side: Side) -> None:
    """Delete topics by right and wrong names and ids."""
    for number in range(8):
        create(side, f"t{number}")
    for version in range(1, 6):
        delete_topics(side, "by name", (side.own(f"t{version}"), NO_ID), version=version)
    for version in (4, 5):
        delete_topics(side, "unknown", (side.own("none"), NO_ID), version=version)
    delete_topics(side, "by name", (side.own("t6"), NO_ID))
    by_id = None, side.topic_ids["t7"]
    delete_topics(side, "by id", by_id)
    delete_topics(side, "by id, again", by_id)
    delete_topics(side, "unknown id", (None, UNKNOWN_ID))
    delete_topics(side, "neither", (None, NO_ID))
    delete_topics(side, "both", (side.own("t0"), side.topic_ids["t0"]))
    delete_topics(side, "empty name", ("", NO_ID))
    delete_topics(side, "none")


@scenario
def deleting_twice(side: Side) -> None:
    """Name one topic twice in one request."""
    for name in ("names", "mixed"):
        create(side, name)
    delete_topics(side, "unknown twice", (side.own("none"), NO_ID), (side.own("none"), NO_ID), version=5)
    delete_topics(side, "name twice", (side.own("names"), NO_ID), (side.own("names"), NO_ID))
    delete_topics(side, "name and its id", (side.own("mixed"), NO_ID), (None, side.topic_ids["mixed"]))


@scenario
def made_again(side: Side) -> None:
    """Create a topic of the same name again, which gets another id."""
    create(side, "a")
    old = side.topic_ids["a"]
    fill(side, "a", [batch()])
    delete_topics(side, "deleted", (side.own("a"), NO_ID))
    asked: dict[str, Any] = {"topics": [{"name": side.own("a")}], "allow_auto_topic_creation": False}
    side.get(ApiKey.METADATA, 12, asked, until=lambda answer: answer.topics[0].error_code)
    create(side, "a")
    wanted = {"topic_id": old, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    side.ask(ApiKey.FETCH, 13, fetch_request([wanted]), "old id")
    asked = {"topics": [{"topic_id": old, "name": None}], "allow_auto_topic_creation": False}
    side.ask(ApiKey.METADATA, 12, asked, "old id")
    for timestamp in (EARLIEST, LATEST):
        list_offsets(side, "a", timestamp, "new log")


@scenario
def preferred_leaders(side: Side) -> None:
    """Send ElectLeaders; with one broker all partitions already have their preferred leader."""
    create(side, "a", 2)

    def ask(label: str, topics: Sequence[tuple[str, list[int]]], *, kind: int = 0, version: int = 2) -> None:
        named = [{"topic": name, "partitions": partitions} for name, partitions in topics]
        asked: Plain = {"topic_partitions": named, "timeout_ms": 5000}
        if version >= 1:
            asked["election_type"] = kind
        side.ask(ApiKey.ELECT_LEADERS, version, asked, label)

    own = side.own("a")
    for version in range(3):
        ask("preferred", [(own, [0])], version=version)
    for kind in (0, 1):
        ask(f"type {kind}", [(own, [0, 1])], kind=kind)
        ask(f"type {kind}, no such partition", [(own, [2])], kind=kind)
        ask(f"type {kind}, no such topic", [(side.own("none"), [0])], kind=kind)
        ask(f"type {kind}, nothing", [], kind=kind)
    ask("partition twice", [(own, [0, 0])])
    for version in range(3):
        asked: Plain = {"topic_partitions": None, "timeout_ms": 5000}
        if version >= 1:
            asked["election_type"] = 0
        side.ask(ApiKey.ELECT_LEADERS, version, asked, "all")
