"""The fast code paths (lanes) for Heartbeat, ConsumerGroupHeartbeat and OffsetCommit behave like the general handlers.
Two group coordinators, one of them without lanes, get the same requests.

Both brokers must send the same bytes, write the same files, count the same metrics, and have the same groups, committed
offsets and session timers. Three members send requests over a connection each: a member and a static member of a group
of the classic protocol, and a member of a group of the consumer protocol (KIP-848).
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.group_lanes import BEGUN, CONSUMER, MEMBERS, ORDERS, USUAL, World

from oncelog_protocol.quotas import QuotaKey

names = st.sampled_from([*MEMBERS, CONSUMER])
steps = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
requests = st.one_of(
    st.tuples(st.just("beat"), names, steps),
    st.tuples(st.just("beat"), names, steps),
    st.tuples(st.just("commit"), names, st.sampled_from([(0,), (0,), (1,), (0, 1), (7,)]), steps, st.just("")),
    st.tuples(st.just("commit"), names, st.just((0,)), st.just(0), st.sampled_from(["", None, "note", "x" * 11])),
)
changes = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("sync"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("subscribe"), st.sampled_from([[ORDERS], ["other"], [ORDERS, "other"]])),
    st.tuples(
        st.just("consumer_heartbeat"),
        st.sampled_from(
            [{"server_assignor": "range"}, {"rack_id": "r"}, {"topic_partitions": []}, {"instance_id": "i"}]
        ),
    ),
    st.tuples(st.just("encoded_otherwise"), st.sampled_from(MEMBERS), st.sampled_from([1, 3, -1, -9])),
    st.tuples(st.just("reconnect"), names, st.sampled_from([9, 9, 10, 8, 6, 5])),
    st.tuples(st.just("lead_anew")),
    st.tuples(st.just("resign")),
    st.tuples(st.just("grow")),
    st.tuples(st.just("gain_follower"), st.booleans()),
    st.tuples(st.just("follow")),
    st.tuples(st.just("gate"), st.booleans()),
    st.tuples(st.just("break_disk"), st.sampled_from([errno.ENOSPC, errno.EIO, None])),
    st.tuples(st.just("make_topic"), st.sampled_from([1, 2])),
    st.tuples(st.just("use_topic_id"), st.sampled_from([1, 2])),
    st.tuples(st.just("delete_topic")),
    st.tuples(
        st.just("configure"),
        st.sampled_from([{}, {"consumer.heartbeat.interval.ms": "7000"}, {"consumer.session.timeout.ms": "50000"}]),
    ),
    st.tuples(st.just("authorize"), st.sampled_from(["deny", "allow", "allow", "forget", "off"])),
    st.tuples(
        st.just("quota"),
        st.sampled_from([None, 0.001, 5000.0]),
        st.sampled_from(list(QuotaKey)),
        st.sampled_from(["test", "other"]),
    ),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 4.0, 11.0, 46.0])),
)
scripts = st.lists(st.tuples(changes, st.lists(requests, min_size=2, max_size=6)), min_size=1, max_size=8)


REJOINED: list[tuple[Any, ...]] = [("join", "static"), ("sync", "member"), ("sync", "static")]
"""Steps after which the group has its next generation, and older requests of its members are still remembered."""
REASSIGNED: list[tuple[Any, ...]] = [
    ("beat", CONSUMER, 0), ("advance", 2.0), ("beat", CONSUMER, 0), ("beat", CONSUMER, 0),
    ("consumer_heartbeat", {"topic_partitions": []}), ("beat", CONSUMER, 0),
]  # fmt: skip
"""Steps with which the member of the consumer protocol moves to the partitions of a new topic, in a later epoch."""
REFUSED_LATE: list[tuple[Any, ...]] = [
    ("commit", "static", (0,), 0, ""), *(("commit", name, (0,), 0, "x" * 11) for name in ("member", CONSUMER))
]  # fmt: skip
"""A commit that waits for the follower, and commits of other members whose metadata is too large."""


@settings(examples(60, of=300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scripts)
@example([(("gain_follower", True), [*USUAL, ("follow",), *USUAL]), (("advance", 6.0), USUAL)])
@example([(("gain_follower", True), USUAL), (("resign",), USUAL), (("lead_anew",), USUAL * 2)])
@example([(("authorize", "allow"), USUAL * 2), (("authorize", "forget"), USUAL)])
@example([(("break_disk", errno.ENOSPC), USUAL), (("break_disk", None), USUAL)])
@example([(("grow",), USUAL * 3), (("grow",), USUAL * 3)])
@example([(("delete_topic",), USUAL), (("make_topic", 2), USUAL)])
@example([(("configure", {"consumer.heartbeat.interval.ms": "7000"}), USUAL * 3)])
@example([(("join", "member"), [*USUAL * 2, ("sync", "member"), *USUAL])])
@example([(("reconnect", "member", 10), USUAL * 4), (("delete_topic",), USUAL), (("make_topic", 2), USUAL)])
@example([(("advance", 4.0), [("commit", name, (0,), 0, "") for name in (*MEMBERS, CONSUMER)])])
@example([(("join", "member"), [*REJOINED, ("beat", "member", -1), ("commit", "member", (0,), -1, "")])])
@example([(("make_topic", 2), [*REASSIGNED, *USUAL, ("commit", CONSUMER, (0,), -1, "")])])
@example([(("reconnect", "member", 10), USUAL * 4), (("make_topic", 2), USUAL), (("use_topic_id", 1), USUAL)])
@example([(("gain_follower", True), [("follow",), *REFUSED_LATE, ("follow",), *REFUSED_LATE[1:]])])
def test_the_group_lanes_answer_like_the_usual_way(script: list[tuple[Any, list[Any]]]) -> None:
    asyncio.run(_compare([*BEGUN, *(step for change, requests in script for step in (change, *requests))]))


async def _compare(steps: Iterable[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-lanes-") as directory:
        worlds = [World(os.path.join(directory, name), has_lanes=name == "fast") for name in ("fast", "usual")]
        for step, *arguments in steps:
            for world in worlds:
                await world.perform(step, *arguments)
            fast, usual = (world.outcome() for world in worlds)
            for what, value in usual.items():
                assert fast[what] == value, (step, arguments, what)
        fast_files, usual_files = [await world.files() for world in worlds]
        assert fast_files == usual_files
