"""However many partitions or reassignments a request has, no write exceeds the limit: the request is split, or refused
before a write is tried (S78).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.controller import topic_room
from oncelog_broker.controller import topics as topics_module
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.topic_room import FIXED_BYTES, MAX_TOPIC_BYTES, TopicRoom
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.controller.writer import size_of
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import ReplicaAssignment, TopicAssignment, encode_topic
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import MAX_REQUEST_BYTES, Operation, RequestTooLarge
from oncelog_broker.runtime.slices import no_pause
from oncelog_protocol.errors import ErrorCode, KafkaError

BROKERS = (1001, 1002, 1003, 2001, 2002, 2003)
BEFORE, AFTER = BROKERS[:3], BROKERS[3:]


class Limited:
    """Brokers with a metadata store that limits the size of a write in bytes, and counts the writes that it refuses."""

    def __init__(self) -> None:
        self.cluster = ControlledBrokers()
        self.limit = MAX_REQUEST_BYTES
        self.refused = 0
        self.writes = 0

    async def start(self) -> PartitionController:
        for broker in BROKERS:
            await self.cluster.start(broker)
        self.cluster.sessions[BROKERS[0]].on_write = self._check
        return await self.cluster.control(BROKERS[0])

    def _check(self, operations: Sequence[Operation]) -> None:
        self.writes += 1
        if size_of(operations) > self.limit:
            self.refused += 1
            raise RequestTooLarge(operations[-1].path, "too large")


@pytest.fixture
def limited() -> Limited:
    return Limited()


@pytest.fixture
async def term(limited: Limited) -> PartitionController:
    return await limited.start()


@pytest.fixture
def topics(limited: Limited, term: PartitionController) -> TopicController:
    return TopicController(limited.cluster.sessions[BROKERS[0]], lambda: term)


def made(count: int, brokers: Sequence[int] = BEFORE) -> dict[int, Sequence[int]]:
    return dict.fromkeys(range(count), brokers)


@pytest.mark.parametrize("count", [1, 10, 999, 12_000])
async def test_s78_the_size_of_a_topic_node_is_known_before_it_is_written(count: int) -> None:
    moving = ReplicaAssignment((*AFTER, *BEFORE), AFTER, BEFORE)
    view = ClusterView()
    view.put_topic("t", TopicAssignment(bytes(range(16)), dict.fromkeys(range(count), ReplicaAssignment(BEFORE))))
    room, granted = TopicRoom(view, no_pause), 0
    for partition in range(count):
        try:
            await room.take(PartitionKey("t", partition), moving)
        except KafkaError as error:
            assert error.code is ErrorCode.POLICY_VIOLATION
            break
        granted += 1
    assignments = {p: moving if p < granted else ReplicaAssignment(BEFORE) for p in range(count)}
    size = len(encode_topic(TopicAssignment(bytes(range(16)), assignments)))
    assert size <= MAX_TOPIC_BYTES
    assert granted == count or size > MAX_TOPIC_BYTES - 2 * FIXED_BYTES - 2 * count, "not much room was left unused"
    assert (granted < count) == (count == 12_000)


async def test_s78_reassignments_that_do_not_fit_are_refused_and_the_others_begin(
    limited: Limited, term: PartitionController, topics: TopicController, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create_topic("t", 0, 0, assignment=made(40))
    monkeypatch.setattr(topic_room, "MAX_TOPIC_BYTES", 2500)
    wanted = [(PartitionKey("t", partition), AFTER) for partition in range(40)]
    errors = await term.reassign(wanted)
    begun = [error is None for error in errors]
    assert 5 < sum(begun) < 35
    assert begun == sorted(begun, reverse=True), "the first ones have begun"
    refused = next(error for error in errors if error is not None)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "Request the others when these are done" in str(refused)
    data, _ = await limited.cluster.admin.get(paths.topic("t"))
    assert len(data) <= 2500
    assert limited.refused == 0
    cancelled = await term.reassign([(key, None) for (key, _), is_begun in zip(wanted, begun, strict=True) if is_begun])
    assert cancelled == [None] * sum(begun)


async def test_s78_a_piece_that_is_too_large_is_written_in_halves(
    limited: Limited, term: PartitionController, topics: TopicController
) -> None:
    await topics.create_topic("t", 0, 0, assignment=made(40))
    data, _ = await limited.cluster.admin.get(paths.topic("t"))
    limited.limit = 3 * len(data) + 5000  # this write has the topic's node and the states of some partitions
    errors = await term.reassign([(PartitionKey("t", partition), AFTER) for partition in range(40)])
    assert errors == [None] * 40
    assert limited.refused
    assert all(term.view.assignment(PartitionKey("t", p)).is_reassigned for p in range(40))  # type: ignore[union-attr]


async def test_s78_one_change_that_is_too_large_is_given_up_at_once(
    limited: Limited, term: PartitionController, topics: TopicController, caplog: pytest.LogCaptureFixture
) -> None:
    await topics.create_topic("t", 0, 0, assignment=made(2))
    limited.limit, limited.writes = 100, 0
    (error,) = await term.reassign([(PartitionKey("t", 0), AFTER)])
    assert error is not None
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert limited.writes == 1
    assert [line for line in caplog.records if "too large for the metadata store" in line.message]
    limited.limit = MAX_REQUEST_BYTES
    assert await term.reassign([(PartitionKey("t", 0), AFTER)]) == [None]


async def test_s78_a_topic_that_cannot_be_one_node_is_refused(
    limited: Limited, term: PartitionController, topics: TopicController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_room, "MAX_TOPIC_BYTES", 1000)
    await topics.create_topic("small", 0, 0, assignment=made(10))
    changes: list[Any] = [
        topics.create_topic("t", 0, 0, assignment=made(60)),
        topics.create_partitions("small", 60, [BEFORE] * 50),
    ]
    for change in changes:
        with pytest.raises(KafkaError, match="use several topics") as raised:
            await change
        assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert limited.refused == 0


async def test_s78_first_states_take_the_room_that_is_left(
    limited: Limited, term: PartitionController, topics: TopicController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "MAX_REQUEST_BYTES", topics_module.SPARE_BYTES + 15_000)
    limited.limit = topics_module.SPARE_BYTES + 15_000
    await topics.create_topic("t", 0, 0, assignment=made(150))
    await topics.create_partitions("t", 300, [BEFORE] * 150)
    states = await limited.cluster.states()
    assert len(states) == 300
    assert all(leader in BEFORE for leader, _, _ in states.values())


async def test_s78_settings_that_are_too_large_are_refused_with_a_word(
    limited: Limited, term: PartitionController
) -> None:
    """The error is not NOT_CONTROLLER, because clients would retry that error for ever."""
    limited.limit = 2000
    configs = ConfigController(limited.cluster.sessions[BROKERS[0]])
    with pytest.raises(KafkaError, match="does not fit into one write") as raised:
        await configs.alter_broker_config(None, lambda before: {**before, "k": "v" * 3000})
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
