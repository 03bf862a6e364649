"""Requests to share coordinators on this broker and on another one: their content, the responses, and which requests
are retried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import MachineRuntime, answered, asked
from tests.support.memory_peers import Fate, MemoryPeers

from oncelog_broker.coordinator.share import share_state_calls as module
from oncelog_broker.coordinator.share.share_coordinator import ShareCoordinator
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.coordinator.share.share_state_calls import ShareStateCalls
from oncelog_broker.coordinator.share.share_state_machine import ShareStateMachine, StateWrite
from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.shares import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from oncelog_protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from oncelog_protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from oncelog_protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from oncelog_protocol.messages.write_share_group_state import WriteShareGroupStateRequest

TOPIC = b"t" * 16
HERE, THERE = 1, 2
KEYS = [ShareKey("g", TOPIC, partition) for partition in range(4)]
WRITE = StateWrite(5, 3, 2, 1, (StateBatch(4, 4, DeliveryState.ACKNOWLEDGED, 1),))
HANDLERS: dict[type, tuple[ApiKey, int, Any]] = {
    InitializeShareGroupStateRequest: (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, initialize_share_group_state),
    ReadShareGroupStateRequest: (ApiKey.READ_SHARE_GROUP_STATE, 0, read_share_group_state),
    WriteShareGroupStateRequest: (ApiKey.WRITE_SHARE_GROUP_STATE, 1, write_share_group_state),
    DeleteShareGroupStateRequest: (ApiKey.DELETE_SHARE_GROUP_STATE, 0, delete_share_group_state),
    ReadShareGroupStateSummaryRequest: (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, read_share_group_state_summary),
}


class OneMachine(MachineRuntime[ShareStateMachine]):
    """The runtime of one broker; `leaders` maps the text of a share partition's key to its coordinating broker."""

    def __init__(self, leaders: dict[str, int]) -> None:
        super().__init__(ShareStateMachine(lambda: 0, lambda topic_id, partition: topic_id == TOPIC))
        self.leaders = leaders

    def leader_of(self, key: str) -> int:
        return self.leaders.get(key, NO_LEADER)


class Brokers:
    """Broker 1 sends the requests; it coordinates share partitions 0 and 1 itself, and broker 2 coordinates 2 and 3."""

    def __init__(self) -> None:
        self.leaders = {key.text: HERE if key.partition < 2 else THERE for key in KEYS}
        self.peers = MemoryPeers()
        self.coordinators = {broker: self._coordinator() for broker in (HERE, THERE)}
        self.refused: Any = ()
        self.peers.handlers[THERE] = self.serve
        self.calls = ShareStateCalls(HERE, self.coordinators[HERE], self.peers)

    def _coordinator(self) -> Any:
        coordinator = ShareCoordinator.__new__(ShareCoordinator)
        coordinator.runtime = OneMachine(self.leaders)  # type: ignore[assignment]
        return coordinator

    async def serve(self, request: Any) -> Any:
        api, version, handler = HANDLERS[type(request)]
        context = asked(api, version, shares=self.coordinators[THERE], refused=self.refused)
        context.connection.listener = "PLAINTEXT"
        context.services.config = SimpleNamespace()
        answer = await answered(handler.handle, request, context)
        await context.services.tasks.close()
        return answer


@pytest.fixture
async def brokers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Brokers]:
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr("oncelog_broker.server.request.context.RequestContext.is_for_brokers", True)
    brokers = Brokers()
    assert set((await brokers.calls.initialize(dict.fromkeys(KEYS, (5, 1)))).values()) == {None}
    yield brokers


def code(result: object) -> ErrorCode:
    assert isinstance(result, KafkaError)
    return result.code


async def test_states_are_begun_written_read_and_deleted_here_and_there(brokers: Brokers) -> None:
    for key in KEYS[1:3]:
        assert isinstance(await brokers.calls.read(key, 3), ShareState)
        assert await brokers.calls.write(key, WRITE) is None
        state = await brokers.calls.read(key, 4)
        assert isinstance(state, ShareState)
        assert (state.state_epoch, state.start_offset, state.batches) == (5, 2, WRITE.batches)
    summaries = await brokers.calls.summaries(KEYS)
    shown = {key: summary[:4] for key, summary in summaries.items() if isinstance(summary, ShareState)}
    assert shown == {key: (5, 4, 2, 1) if key in KEYS[1:3] else (5, -1, 1, NOT_SET) for key in KEYS}
    assert set((await brokers.calls.delete(KEYS)).values()) == {None}
    for key in KEYS:
        assert code(await brokers.calls.read(key, 4)) is ErrorCode.INVALID_REQUEST
    gone = await brokers.calls.summaries(KEYS)
    assert {summary.start_offset for summary in gone.values() if isinstance(summary, ShareState)} == {NOT_SET}


async def test_one_request_goes_to_a_broker_for_all_of_its_share_partitions(brokers: Brokers) -> None:
    before = len(brokers.peers.sent)
    await brokers.calls.summaries(KEYS)
    assert len(brokers.peers.sent) == before + 1


async def test_refusals_come_back_with_their_codes(brokers: Brokers) -> None:
    await brokers.calls.read(KEYS[2], 7)
    assert code(await brokers.calls.read(KEYS[2], 6)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(await brokers.calls.write(KEYS[2], WRITE._replace(leader_epoch=6))) is ErrorCode.FENCED_LEADER_EPOCH
    fenced = await brokers.calls.initialize({KEYS[2]: (4, 0)})
    assert code(fenced[KEYS[2]]) is ErrorCode.FENCED_STATE_EPOCH


async def test_q8_a_lost_answer_is_asked_for_again_and_the_change_is_one(brokers: Brokers) -> None:
    await brokers.calls.read(KEYS[2], 3)
    brokers.peers.fates = [Fate.ANSWER_LOST, Fate.LOST]
    assert await brokers.calls.write(KEYS[2], WRITE) is None
    state = await brokers.calls.read(KEYS[2], 3)
    assert isinstance(state, ShareState)
    assert state.batches == WRITE.batches


async def test_a_coordinator_that_is_not_found_is_asked_again_and_then_told(brokers: Brokers) -> None:
    brokers.leaders.clear()
    assert code(await brokers.calls.read(KEYS[0], 3)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.coordinators[HERE].runtime.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    brokers.leaders[KEYS[0].text] = HERE
    assert code(await brokers.calls.read(KEYS[0], 3)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_only_brokers_may_ask(brokers: Brokers) -> None:
    brokers.refused = {
        rules.READ_SHARE_STATE,
        rules.WRITE_SHARE_STATE,
        rules.INITIALIZE_SHARE_STATE,
        rules.DELETE_SHARE_STATE,
        rules.SUMMARISE_SHARE_STATE,
    }
    key = KEYS[3]
    results = [
        await brokers.calls.read(key, 3),
        await brokers.calls.write(key, WRITE),
        (await brokers.calls.initialize({key: (9, 0)}))[key],
        (await brokers.calls.delete([key]))[key],
        (await brokers.calls.summaries([key]))[key],
    ]
    assert [code(result) for result in results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 5
