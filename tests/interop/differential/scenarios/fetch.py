"""Compares Fetch: offsets, epochs, limits, many partitions, sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import coordinator, create, fetch, fill
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


def filled(side: Side, name: str = "a") -> None:
    """Fill a topic with five batches of two records."""
    create(side, name)
    fill(side, name, [batch(2) for _ in range(5)])


def fetch_request(topics: Sequence[Plain], **more: Any) -> Plain:
    defaults = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100_000, "isolation_level": 0, "session_epoch": -1}
    return {**defaults, "topics": list(topics), **more}


def wanted(side: Side, topic: str, partitions: Sequence[int], offset: int = 0, max_bytes: int = 10_000) -> Plain:
    return {
        "topic": side.own(topic),
        "topic_id": side.topic_ids.get(topic, bytes(16)),
        "partitions": [
            {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
            for partition in partitions
        ],
    }


@scenario
def offsets(side: Side) -> None:
    """Fetch from offsets at the ends of the log, inside it and outside it, in every version."""
    filled(side)
    for version in range(4, 19):
        for offset in (0, 1, 9, 10, 11, -1):
            fetch(side, "a", offset, version=version)


@scenario
def epochs(side: Side) -> None:
    """Fetch with leader epochs, and with the epoch of the last record that a reader has (KIP-595)."""
    filled(side)
    for version in (9, 12, 17):
        for epoch in (0, 1, -1):
            fetch(side, "a", label=f"leader epoch {epoch}", leader_epoch=epoch, version=version)
    fetch(side, "a", label="leader epoch -2", leader_epoch=-2)
    for epoch in (0, 1, 5, -1):
        for offset in (5, 50):
            fetch(side, "a", offset, f"last epoch {epoch}", last_epoch=epoch, leader_epoch=0)


@scenario
def odd_values(side: Side) -> None:
    """Fetch partitions and topics that do not exist, and send numbers that no consumer sends."""
    filled(side)
    fetch(side, "a", label="partition 5", partition=5)
    fetch(side, "none", label="unknown topic")
    fetch(side, "none", label="zero id", version=13)
    unknown = {"topic_id": b"\7" * 16, "partitions": wanted(side, "a", [0])["partitions"]}
    side.ask(ApiKey.FETCH, 13, fetch_request([unknown]), "unknown id")
    fetch(side, "a", label="isolation level 2", isolation=2)
    fetch(side, "a", label="negative partition_max_bytes", partition_max_bytes=-1)
    fetch(side, "a", label="negative max_bytes", max_bytes=-1, partition_max_bytes=-1)
    topics = [wanted(side, "a", [0])]
    side.ask(ApiKey.FETCH, 12, fetch_request(topics, max_wait_ms=-1, min_bytes=-1), "negative wait")
    side.ask(ApiKey.FETCH, 12, fetch_request(topics, replica_id=5), "as replica 5", retried=())
    coordinator(side, "x")
    side.ask(ApiKey.FETCH, 12, fetch_request([wanted(side, "__transaction_state", [0], 10**9)]), "internal topic")


@scenario
def limits(side: Side) -> None:
    """Fetch with limits of bytes per partition and in total; the first batch is always returned entirely."""
    filled(side)
    for limit in (0, 1, 61):
        fetch(side, "a", label=f"partition limit {limit}", partition_max_bytes=limit)
        fetch(side, "a", label=f"limit {limit}", max_bytes=limit, partition_max_bytes=10_000)
    for limit in (100, 150, 200):
        fetch(side, "a", label=f"ends inside a batch: partition limit {limit}", partition_max_bytes=limit)
        fetch(side, "a", label=f"ends inside a batch: limit {limit}", max_bytes=limit, partition_max_bytes=10_000)
    fetch(side, "a", 1, "inside a batch, limit 1", partition_max_bytes=1)


@scenario
def many_partitions(side: Side) -> None:
    """Fetch several partitions with a total limit, which is used up in the order in which they are requested."""
    create(side, "a", 3)
    for partition in range(3):
        fill(side, "a", [batch(2, size=200)], partition)

    def many(partitions: Sequence[int], max_bytes: int, label: str = "", each: int = 10_000, version: int = 12) -> None:
        topics = [wanted(side, "a", partitions, max_bytes=each)]
        label = label or f"partitions {', '.join(map(str, partitions))} limit {max_bytes}"
        side.ask(ApiKey.FETCH, version, fetch_request(topics, max_bytes=max_bytes), label)

    for partitions, limit in (((0, 1, 2), 10_000), ((2, 0, 1), 10_000), ((2, 0, 1), 1)):
        many(partitions, limit)
    many((2, 0, 1), 500, "the second partition is cut")
    many((2, 0, 1), 1000, "the third partition is cut")
    many((0, 1), 10_000, "one byte of each", each=1)
    many((0, 0), 10_000, "partition twice")
    for version in (12, 15):
        many((0, 9, 1), 10_000, "an unknown partition between", version=version)


@scenario
def sessions(side: Side) -> None:
    """Use a fetch session from its first request to its end, and send requests that fit no session."""
    for version in (7, 12, 13, 17):
        name = f"v{version}"
        create(side, name, 2)
        fill(side, name, [batch(2)])
        session = Session(side, name, version)
        answer = session.fetch(0, 0, "new", [0, 1])
        session.id = answer.session_id
        session.fetch(session.id, 1, "nothing moved")
        session.fetch(session.id, 2, "moved on", [0], offset=2)
        session.fetch(session.id, 3, "nothing new")
        fill(side, name, [batch()])
        session.fetch(session.id, 4, "something new")
        session.fetch(session.id, 4, "epoch again")
        session.fetch(session.id, 9, "epoch jumps")
        session.fetch(session.id, 5, "one forgotten", forgotten=[0])
        session.fetch(session.id, 6, "after one was forgotten")
        session.fetch(session.id, -1, "close and fetch", [0])
        session.fetch(session.id, 7, "after it was closed")
        session.fetch(999_999, 1, "unknown")
        session.fetch(999_999, 0, "unknown, epoch 0", [0])
        session.fetch(999_999, -1, "unknown, close")
        session.fetch(0, 5, "no session, epoch 5", [0])
        session.fetch(0, -1, "no session, no topics")


@scenario
def empty_sessions(side: Side) -> None:
    """Use fetch sessions without partitions."""
    create(side, "a")
    session = Session(side, "a", 12)
    session.fetch(0, 0, "new without partitions")
    opened = session.fetch(0, 0, "new", [0]).session_id
    session.fetch(opened, 1, "the last one forgotten", forgotten=[0, 1])
    session.fetch(opened, 2, "after the last was forgotten")


@scenario
def sessions_with_errors(side: Side) -> None:
    """Use a fetch session with unreadable partitions, which each response must mention."""
    create(side, "a")
    fill(side, "a", [batch(2)])
    session = Session(side, "a", 12)
    opened = session.fetch(0, 0, "new", [0]).session_id
    unknown = [wanted(side, "none", [0])]
    side.ask(ApiKey.FETCH, 12, fetch_request(unknown, session_id=opened, session_epoch=1), "an unknown topic added")
    session.fetch(opened, 2, "unknown topic again")
    session.fetch(opened, 3, "unknown partition", [7])
    session.fetch(opened, 4, "out of range", [0], offset=100)
    session.fetch(opened, 5, "out of range again")
    session.version = 13
    session.fetch(opened, 6, "names, then ids", [0])


class Session:
    """The requests of a fetch session for the partitions of one topic."""

    def __init__(self, side: Side, topic: str, version: int) -> None:
        self.version = version
        self.id = 0
        self._side = side
        self._topic = topic

    def fetch(
        self,
        session: int,
        epoch: int,
        label: str,
        partitions: Sequence[int] = (),
        *,
        offset: int = 0,
        forgotten: Sequence[int] = (),
    ) -> Any:
        side, topic = self._side, self._topic
        topics = [wanted(side, topic, partitions, offset)] if partitions else []
        left = {"topic": side.own(topic), "topic_id": side.topic_ids[topic], "partitions": list(forgotten)}
        asked = fetch_request(
            topics,
            session_id=session,
            session_epoch=epoch,
            forgotten_topics_data=[left] if forgotten else [],
        )
        return side.ask(ApiKey.FETCH, self.version, asked, label)
