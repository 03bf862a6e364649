"""Compares the APIs with which brokers keep the state of share partitions at a share coordinator (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.interop.differential.calls import create
from tests.interop.differential.scenario import scenario
from tests.interop.differential.share_members import settle_shares
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey

StateBatch = tuple[int, int, int, int]
"""First offset, last offset, delivery state, and delivery count."""
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
UNKNOWN_TOPIC: Final = b"unknown.unknown."


class State:
    """Sends requests about the state of one share partition."""

    def __init__(self, side: Side, group: str = "g", topic_id: bytes | None = None, partition: int = 0) -> None:
        self._side = side
        self._group = side.own(group) if group else ""
        self._topic_id = side.topic_ids["a"] if topic_id is None else topic_id
        self._partition = partition

    def initialize(self, label: str, *, epoch: int = 0, start: int = 0) -> None:
        self._ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, label, state_epoch=epoch, start_offset=start)

    def read(self, label: str, *, leader_epoch: int = 0) -> None:
        self._ask(ApiKey.READ_SHARE_GROUP_STATE, 0, label, leader_epoch=leader_epoch)

    def write(
        self,
        label: str,
        batches: Sequence[StateBatch] = (),
        *,
        epoch: int = 0,
        leader_epoch: int = 0,
        start: int = -1,
        version: int = 1,
        **more: int,
    ) -> None:
        names = "first_offset", "last_offset", "delivery_state", "delivery_count"
        found = [dict(zip(names, one, strict=True)) for one in batches]
        self._ask(
            ApiKey.WRITE_SHARE_GROUP_STATE,
            version,
            label,
            state_epoch=epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            state_batches=found,
            **more,
        )

    def delete(self, label: str) -> None:
        self._ask(ApiKey.DELETE_SHARE_GROUP_STATE, 0, label)

    def summary(self, label: str, *, leader_epoch: int = 0, version: int = 1) -> None:
        settle_shares(self._side)
        self._ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, label, leader_epoch=leader_epoch)

    def _ask(self, api: ApiKey, version: int, label: str, **fields: Any) -> None:
        partitions = [{"partition": self._partition, **fields}]
        asked = {"group_id": self._group, "topics": [{"topic_id": self._topic_id, "partitions": partitions}]}
        self._side.ask(api, version, asked, label)


def new_state(side: Side, **more: int) -> State:
    create(side, "a", 2)
    settle_shares(side)
    state = State(side)
    state.initialize("new", **more)
    return state


@scenario
def unknown_states(side: Side) -> None:
    """Ask for states that do not exist, of partitions and topics that do not exist, and of a group without a name."""
    create(side, "a")
    settle_shares(side)
    for state, label in (
        (State(side), "not initialized"),
        (State(side, topic_id=UNKNOWN_TOPIC), "unknown topic"),
        (State(side, partition=9), "unknown partition"),
        (State(side, partition=-1), "negative partition"),
        (State(side, group=""), "empty group id"),
    ):
        state.read(label)
        state.write(label, [(0, 1, ACKNOWLEDGED, 1)], start=0)
        state.summary(label)
        state.delete(label)
        state.initialize(label)


@scenario
def writing(side: Side) -> None:
    """Write states, and read them in both forms."""
    state = new_state(side)
    state.read("new")
    state.summary("new")
    state.write("first", [(0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 2)], start=0, delivery_complete_count=5)
    state.read("first")
    state.summary("first")
    state.write("overlapping", [(3, 6, ARCHIVED, 3)], version=0)
    state.read("overlapping")
    state.summary("overlapping", version=0)
    state.write("start moves", start=5)
    state.read("start moves")
    state.write("start moves back", start=2)
    state.read("start moves back")
    state.write("nothing")
    state.write("joined", [(7, 9, ARCHIVED, 3), (10, 20, ARCHIVED, 3)])
    state.read("joined")
    state.write("with a gap", [(30, 31, AVAILABLE, 1)])
    state.read("with a gap")
    state.summary("at last")
    state.delete("delete")
    state.read("deleted")
    state.delete("delete again")


@scenario
def epochs(side: Side) -> None:
    """Read and write with older and newer epochs of the state and of the leader."""
    state = new_state(side, epoch=3, start=10)
    state.write("older state", epoch=2, start=11)
    state.write("newer state", epoch=4, start=12)
    state.write("no state epoch", epoch=-1, start=13)
    state.read("new leader", leader_epoch=5)
    state.write("older leader", epoch=3, leader_epoch=4, start=14)
    state.write("newer leader", epoch=3, leader_epoch=6, start=15)
    state.write("no leader epoch", epoch=3, leader_epoch=-1, start=16)
    state.write("right", epoch=3, leader_epoch=5, start=17)
    state.read("older leader", leader_epoch=4)
    state.read("no leader epoch", leader_epoch=-1)
    state.summary("older leader", leader_epoch=4)
    state.summary("newer leader", leader_epoch=7)
    state.summary("no leader epoch", leader_epoch=-1)
    state.initialize("older epoch", epoch=2, start=20)
    state.initialize("same epoch", epoch=3, start=21)
    state.summary("after the same epoch", leader_epoch=-1)
    state.initialize("newer epoch", epoch=4, start=22)
    state.read("at last", leader_epoch=5)


@scenario
def odd_values(side: Side) -> None:
    """Write batches and offsets that are not valid."""
    state = new_state(side)
    for label, one in (
        ("last before first", (5, 4, ACKNOWLEDGED, 1)),
        ("negative", (-5, -2, ACKNOWLEDGED, 1)),
        ("state 1", (0, 1, 1, 1)),
        ("state 9", (0, 1, 9, 1)),
        ("count -1", (0, 1, ACKNOWLEDGED, -1)),
    ):
        state.write(label, [one])
        state.read(label)
    state.write("twice", [(0, 3, ACKNOWLEDGED, 1), (0, 3, ARCHIVED, 2)])
    state.read("twice")
    state.write("below the start", [(0, 1, ACKNOWLEDGED, 1)], start=100)
    state.read("below the start")
    for api, version in (
        (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0),
        (ApiKey.READ_SHARE_GROUP_STATE, 0),
        (ApiKey.WRITE_SHARE_GROUP_STATE, 1),
        (ApiKey.DELETE_SHARE_GROUP_STATE, 0),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1),
    ):
        side.ask(api, version, {"group_id": side.own("g"), "topics": []}, "no topics")
