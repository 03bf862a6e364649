"""Which Heartbeat, ConsumerGroupHeartbeat and OffsetCommit requests take the fast code path (the lane)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.group_lanes import BEGUN, CONSUMER, USUAL, World

from oncelog_broker.server.lanes import heartbeat, offset_commit
from oncelog_broker.server.lanes.consumer_group_heartbeat import ConsumerGroupHeartbeatLane
from oncelog_broker.server.lanes.heartbeat import HeartbeatLane
from oncelog_broker.server.lanes.offset_commit import OffsetCommitLane
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.quotas import QuotaKey
from oncelog_protocol.templates import NoTemplate


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests that each kind of lane has served."""
    counts: Counter[str] = Counter()
    for kind in (HeartbeatLane, OffsetCommitLane):
        serve: Any = kind.serve

        def counted(self: Any, *arguments: Any, serve: Any = serve) -> bool:
            is_served: bool = serve(self, *arguments)
            counts[type(self).__name__] += is_served
            return is_served

        monkeypatch.setattr(kind, "serve", counted)
    return counts


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A broker with two stable groups, whose lanes recognise the next requests."""
    made = World(str(tmp_path / "data"), has_lanes=True)
    for step, *arguments in BEGUN:
        await made.perform(step, *arguments)
    yield made
    await made.files()


async def test_the_usual_requests_of_members_take_the_lanes(world: World, served: Counter[str]) -> None:
    served.clear()
    for step, *arguments in USUAL:
        await world.perform(step, *arguments)
    assert served == {"HeartbeatLane": 2, "ConsumerGroupHeartbeatLane": 1, "OffsetCommitLane": 3}


@pytest.mark.parametrize("version", [6, 7, 8, 9, 10])
async def test_every_newer_version_of_a_commit_takes_the_lane(world: World, served: Counter[str], version: int) -> None:
    await world.perform("reconnect", "member", version)
    for _ in range(4):  # the first request of a version compiles it, and the lane remembers no connection's first
        await world.perform("commit", "member", (0,), 0, "note")
    served.clear()
    await world.perform("commit", "member", (0,), 0, "note")
    assert served == {"OffsetCommitLane": 1}


@pytest.mark.parametrize("name", ["member", CONSUMER])
async def test_a_commit_that_is_refused_late_is_not_remembered(world: World, name: str) -> None:
    """The refusal of metadata that is too large waits until the earlier commits are replicated."""
    too_large = ("commit", name, (0,), 0, "x" * 11)
    await world.perform("gain_follower", True)
    await world.perform("follow")
    await world.perform("commit", "static", (0,), 0, "")
    count = len(world.senders[name].client.answers())
    await world.perform(*too_large)
    assert len(world.senders[name].client.answers()) == count, "the response comes later"
    await world.perform("follow")
    await world.perform(*too_large)
    codes = [
        response.topics[0].partitions[0].error_code for _, response in world.senders[name].client.answers()[count:]
    ]
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2


@pytest.mark.parametrize(
    "change",
    [
        ("join", "member"),
        ("delete_topic",),
        ("resign",),
        ("gate", False),
        ("authorize", "deny"),
        ("leave", "static"),
        ("quota", 5000.0, QuotaKey.REQUEST_PERCENTAGE, "test"),
    ],
)
async def test_requests_that_need_work_do_not_take_the_lanes(
    world: World, served: Counter[str], change: tuple[Any, ...]
) -> None:
    await world.perform(*change)
    served.clear()
    await world.perform("commit", "member", (0,), 0, "")
    if change[0] != "delete_topic":  # a heartbeat does not depend on topics
        await world.perform("beat", "member", 0)
    assert served.total() == 0


async def test_a_changed_response_replaces_the_remembered_one(world: World, served: Counter[str]) -> None:
    """After a change of the heartbeat interval, the handler serves the next heartbeat, and the lane a later one."""
    await world.perform("configure", {"consumer.heartbeat.interval.ms": "7000"})
    served.clear()
    await world.perform("beat", CONSUMER, 0)
    assert served.total() == 0
    await world.perform("beat", CONSUMER, 0)
    assert served == {"ConsumerGroupHeartbeatLane": 1}
    (_, first), (_, second) = world.senders[CONSUMER].client.answers()[-2:]
    assert first.heartbeat_interval_ms == second.heartbeat_interval_ms == 7000


async def test_a_changed_topic_is_left_to_the_handler(world: World, served: Counter[str]) -> None:
    await world.perform("make_topic", 2)
    served.clear()
    await world.perform("beat", CONSUMER, 0)
    assert served.total() == 0


async def test_a_lane_forgets_requests_of_earlier_generations(world: World, served: Counter[str]) -> None:
    """A lane that is full remembers a request of a new generation in place of the oldest one."""
    lanes = world.senders["member"].client.connection.lanes
    beats: Any = lanes[ApiKey.HEARTBEAT << 16 | 4]
    commits: Any = lanes[ApiKey.OFFSET_COMMIT << 16 | 9]
    for number in range(offset_commit.MAX_KNOWN + 10):
        await world.perform("commit", "member", (0,), 0, f"{number}")
    assert len(commits._known) == offset_commit.MAX_KNOWN
    for _ in range(heartbeat.MAX_KNOWN + 4):
        for step in ("join", "member"), ("join", "static"), ("sync", "member"):
            await world.perform(*step)
        for _ in range(2):
            await world.perform("beat", "member", 0)
    assert len(beats._known) == heartbeat.MAX_KNOWN
    await world.perform("commit", "member", (0,), 0, "new")
    served.clear()
    await world.perform("beat", "member", 0)
    await world.perform("commit", "member", (0,), 0, "new")
    assert served == {"HeartbeatLane": 1, "OffsetCommitLane": 1}


async def test_a_full_lane_does_not_learn_in_vain(world: World, served: Counter[str]) -> None:
    """A member that commits other metadata each time would otherwise make the lane prepare a template each time."""
    commits: Any = world.senders["member"].client.connection.lanes[ApiKey.OFFSET_COMMIT << 16 | 9]
    for number in range(offset_commit.MAX_KNOWN):
        await world.perform("commit", "member", (0,), 0, f"{number}")
    known = list(commits._known)
    for number in range(3):
        await world.perform("commit", "member", (0,), 0, f"more {number}")
    assert list(commits._known) == known
    assert len(known) == offset_commit.MAX_KNOWN


async def test_a_lane_of_commits_remembers_no_layout_of_a_forgotten_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: Any = world.senders["member"].client.connection.lanes[ApiKey.OFFSET_COMMIT << 16 | 9]
    monkeypatch.setattr(offset_commit, "MAX_KNOWN", 4)
    for size in range(4, 8):
        await world.perform("commit", "member", (0,), 0, "x" * size)
    sizes = set(commits._layouts)
    assert len(commits._known) == 4
    for step in ("join", "member"), ("join", "static"), ("sync", "member"):
        await world.perform(*step)
    for size in (8, 9, 10, 8):
        await world.perform("commit", "member", (0,), 0, "x" * size)
    assert len(commits._known) == 4
    assert set(commits._layouts) == {each.frame_size for each in commits._known.values()}
    assert len(set(commits._layouts) - sizes) == 3


async def test_a_lane_of_commits_keeps_no_layout_of_a_request_without_a_template(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: Any = world.senders["member"].client.connection.lanes[ApiKey.OFFSET_COMMIT << 16 | 9]

    def without_template(*_: Any) -> None:
        raise NoTemplate

    monkeypatch.setattr(offset_commit, "Remembered", without_template)
    before = set(commits._layouts)
    for size in range(4, 8):
        await world.perform("commit", "member", (0,), 0, "x" * size)
    assert set(commits._layouts) == before


async def test_without_lanes_no_request_takes_one(tmp_path: Path, served: Counter[str]) -> None:
    world = World(str(tmp_path / "data"), has_lanes=False)
    for step, *arguments in [*BEGUN, *USUAL]:
        await world.perform(step, *arguments)
    assert served.total() == 0
    assert all(answer.wire.bytes for answer in (sender.client for sender in world.senders.values()))
    await world.files()


def test_the_lane_of_the_consumer_protocol_is_a_lane_of_heartbeats() -> None:
    """So the fixture `served` counts its requests, too."""
    assert issubclass(ConsumerGroupHeartbeatLane, HeartbeatLane)
