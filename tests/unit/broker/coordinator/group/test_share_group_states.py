"""The group coordinator initializes, describes and deletes states of share groups at the share coordinators, in order,
and handles their failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import pytest
from tests.support.consumer_groups import id_of
from tests.support.handlers import MachineRuntime
from tests.support.share_groups import ShareDriver

from oncelog_broker.coordinator.group.share_group_states import ShareGroupStates
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

T = id_of("t")
KEYS = [ShareKey("g", T, partition) for partition in range(4)]


class Calls:
    """Replaces ShareStateCalls: `states` are the initialized states; requests for those in `failing` return errors."""

    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self.failing: set[ShareKey] = set()

    def _result(self, key: ShareKey, value: Any = None) -> Any:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if key in self.failing else value

    async def initialize(self, starts: Mapping[ShareKey, tuple[int, int]]) -> dict[ShareKey, Any]:
        self.states |= {key: ShareState(start[0], -1, start[1]) for key, start in starts.items()}
        return {key: self._result(key) for key in starts}

    async def delete(self, keys: Collection[ShareKey]) -> dict[ShareKey, Any]:
        for key in keys:
            if key not in self.failing:
                self.states.pop(key, None)
        return {key: self._result(key) for key in keys}

    async def summaries(self, keys: Collection[ShareKey]) -> dict[ShareKey, Any]:
        return {key: self._result(key, self.states.get(key, ShareState(0, 0, NOT_SET))) for key in keys}


class Group:
    """A share group with one member, and the I/O part of the group coordinator."""

    def __init__(self) -> None:
        self.driver = ShareDriver()
        self.runtime = MachineRuntime(self.driver.machine)
        self.calls, self.tasks = Calls(), Tasks()
        self.states = ShareGroupStates(self.runtime, self.calls, self.tasks)  # type: ignore[arg-type]
        self.client = self.driver.share_client()
        self.client.join()

    async def begin(self) -> None:
        for wanted in self.driver.begun:
            self.states.begin(wanted)
        self.driver.begun.clear()
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    group = Group()
    yield group
    await group.tasks.close()


async def test_states_are_begun_in_the_epoch_of_the_group(group: Group) -> None:
    await group.begin()
    assert {state.state_epoch for state in group.calls.states.values()} == {2}
    assert group.driver.share_group.state_partitions.assignable() == {T: frozenset(range(4))}


async def test_states_that_could_not_be_begun_are_not_assigned(group: Group) -> None:
    group.calls.failing = {KEYS[1]}
    await group.begin()
    assert group.driver.share_group.state_partitions.assignable() == {T: frozenset({0, 2, 3})}
    group.client.beat()
    group.calls.failing.clear()
    await group.begin()
    assert group.driver.share_group.state_partitions.assignable() == {T: frozenset(range(4))}


async def test_descriptions_are_of_what_was_begun_or_asked(group: Group) -> None:
    await group.begin()
    described = await group.states.describe("g", None)
    assert isinstance(described, dict)
    assert set(described) == set(KEYS)
    described = await group.states.describe("g", {T: frozenset({7})})
    assert isinstance(described, dict)
    (state,) = described.values()
    assert isinstance(state, ShareState)
    assert state.start_offset == NOT_SET


async def test_a_group_that_does_not_exist_is_described_without_states(group: Group) -> None:
    await group.begin()
    assert await group.states.describe("unknown", None) == {}
    described = await group.states.describe("unknown", {T: frozenset({0})})
    assert isinstance(described, dict)
    (state,) = described.values()
    assert isinstance(state, ShareState)
    assert state.start_offset == NOT_SET


async def test_offsets_are_altered_while_nobody_reads(group: Group) -> None:
    await group.begin()
    refused = await group.states.alter("g", {T: {0: 7}})
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.NON_EMPTY_GROUP
    group.client.leave()
    assert await group.states.alter("g", {T: {0: 7}}) == {}
    assert group.calls.states[KEYS[0]].start_offset == 7
    group.calls.failing = {KEYS[1]}
    errors = await group.states.alter("g", {T: {0: 8, 1: 9}})
    assert isinstance(errors, dict)
    assert set(errors) == {KEYS[1]}
    known = await group.states.describe("g", None)
    assert isinstance(known, dict)
    assert {KEYS[0], KEYS[1]} <= set(known), "a state that could not be begun anew stays as it was"


async def test_a_state_that_never_was_is_not_kept_where_it_cannot_be_begun(group: Group) -> None:
    group.calls.failing = {KEYS[0]._replace(group_id="new")}
    assert isinstance(await group.states.alter("new", {T: {0: 7}}), dict)
    assert await group.states.describe("new", None) == {}


async def test_offsets_of_topics_are_deleted_and_again_after_a_failure(group: Group) -> None:
    await group.begin()
    group.client.leave()
    group.calls.failing = {KEYS[2]}
    outcomes = await group.states.delete_offsets("g", frozenset({T}))
    assert isinstance(outcomes, dict)
    assert isinstance(outcomes[T], KafkaError)
    assert group.driver.share_group.state_partitions.deleting == {T: "t"}
    group.calls.failing.clear()
    assert await group.states.delete_offsets("g", frozenset({T})) == {T: None}
    assert group.calls.states == {}
    assert await group.states.delete_offsets("g", frozenset({T})) == {}


async def test_a_group_is_deleted_with_its_state_or_stays(group: Group) -> None:
    await group.begin()
    assert await settled(group.states.is_share_group("g"))
    assert not await settled(group.states.is_share_group("unknown"))
    group.client.leave()
    group.calls.failing = {KEYS[2]}
    assert isinstance(await group.states.delete_group("g"), KafkaError)
    assert group.driver.machine.ids() == ["g"]
    group.calls.failing.clear()
    assert await group.states.delete_group("g") is None
    assert group.driver.machine.ids() == []
    assert group.calls.states == {}
