"""Elections that ask brokers for their log ends: which brokers the controller asks, and how long it waits for
responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest
from tests.support.controlled_brokers import ControlledBrokers
from tests.support.hosts import host_of

from oncelog_broker.controller import candidate_questions
from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.candidate_questions import CandidateQuestions
from oncelog_broker.controller.candidates import OFFLINE, LogEnd
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError

KEY = PartitionKey("t", 0)


class Brokers:
    """The log end that each broker reports; None means that the broker does not respond."""

    def __init__(self) -> None:
        self.ends: dict[int, LogEnd | None] = {}
        self.asked: list[int] = []
        self.is_ready = asyncio.Event()
        self.is_ready.set()

    async def until_ready(self) -> None:
        await self.is_ready.wait()

    async def log_ends(
        self, broker: int, keys: Sequence[PartitionKey], timeout: float
    ) -> Mapping[PartitionKey, LogEnd]:
        self.asked.append(broker)
        end = self.ends.get(broker)
        if end is None:
            raise PeerUnavailable(broker, "no answer")
        return dict.fromkeys(keys, end)


class Scene:
    """Three brokers that all have a replica of the one partition, and another broker that is the controller."""

    def __init__(self) -> None:
        self.cluster = ControlledBrokers()
        self.brokers = Brokers()
        self.clock = ManualClock()
        self.tasks = Tasks()
        self.term: PartitionController

    async def make(self) -> None:
        for broker in (1, 2, 3):
            await self.cluster.start(broker)
        self.term = await self.control(1)
        topics = TopicController(self.cluster.sessions[1], lambda: self.term)
        topic = await topics.create_topic("t", -1, -1, assignment={0: [1, 2, 3]})
        assert topic.topic_id is not None
        self.topic_id = topic.topic_id

    async def control(self, broker: int) -> PartitionController:
        self.term = await self.cluster.control(
            broker, CandidateQuestions(self.brokers, host_of(self.clock, self.tasks))
        )
        return self.term

    def stop_all(self) -> None:
        for broker in (1, 2, 3):
            self.cluster.stop(broker)

    async def state(self) -> tuple[int, int, tuple[int, ...]]:
        return (await self.cluster.states())[0]

    async def until(self, *state: object) -> None:
        async with asyncio.timeout(20):
            while await self.state() != state:  # noqa: ASYNC110 (the store tells nobody)
                await asyncio.sleep(0.005)

    async def until_true(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110 (what the questions wait for tells nobody)
                await asyncio.sleep(0.005)

    async def until_asked(self, count: int) -> None:
        await self.until_true(lambda: len(self.brokers.asked) >= count)

    @property
    def questions(self) -> CandidateQuestions:
        assert self.term.questions is not None
        return self.term.questions


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_questions, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(candidate_questions, "RETRY_SECONDS", 0.005)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.make()
    yield scene
    await scene.tasks.close()


async def test_s81_the_most_complete_replica_leads_after_a_power_cut_of_all_brokers(scene: Scene) -> None:
    scene.brokers.ends = {1: LogEnd(0, 60), 2: LogEnd(0, 100), 3: LogEnd(0, 90)}
    scene.stop_all()
    await scene.cluster.start(1, is_log_tail_kept=False)
    term = await scene.control(1)
    assert await scene.state() == (1, 0, (1, 2, 3)), "others may have everything: nothing is written"
    await scene.cluster.start(3, is_log_tail_kept=False)
    await term.brokers_changed()
    assert scene.brokers.asked == [], "one is still away that may have everything"
    await scene.cluster.start(2, is_log_tail_kept=False)
    await term.brokers_changed()
    await scene.until(2, 1, (2,))


async def test_s81_another_controller_begins_with_the_same_knowledge(scene: Scene) -> None:
    scene.brokers.ends = {1: LogEnd(0, 60), 2: LogEnd(0, 100), 3: LogEnd(0, 90)}
    scene.stop_all()
    for broker in (1, 2):
        await scene.cluster.start(broker, is_log_tail_kept=False)
    await scene.control(1)
    scene.cluster.stop(1)
    await scene.cluster.start(1)  # no reboot this time, but an earlier reboot lost records
    await scene.control(2)
    await scene.cluster.start(3, is_log_tail_kept=False)
    await scene.term.brokers_changed()
    await scene.until(2, 1, (2,))


async def test_s81_an_unsure_replica_that_went_away_again_is_waited_for_a_limited_time(scene: Scene) -> None:
    scene.brokers.ends = {1: LogEnd(0, 60), 2: LogEnd(0, 50)}
    scene.stop_all()
    for broker in (1, 2, 3):
        await scene.cluster.start(broker, is_log_tail_kept=False)
    scene.cluster.stop(3)
    term = await scene.control(1)
    await scene.until_asked(2)
    await scene.until_true(lambda: scene.questions._absent_since)
    assert await scene.state() == (1, 0, (1, 2, 3))
    scene.clock.advance_ms(int(candidate_questions.ABSENT_SECONDS * 1000) + 1)
    await scene.until(1, 1, (1,))
    assert not term.undecided


async def test_s80_a_broker_that_cannot_open_its_log_is_skipped(scene: Scene) -> None:
    scene.brokers.ends = {1: OFFLINE, 2: LogEnd(0, 100), 3: LogEnd(0, 100)}
    scene.stop_all()
    await scene.cluster.start(1)
    term = await scene.control(1)
    await scene.until(-1, 1, (1, 2, 3))
    for broker in (2, 3):
        await scene.cluster.start(broker)
    await term.brokers_changed()
    await scene.until(2, 2, (2, 3))


async def test_s80_nobody_is_asked_before_this_broker_knows_its_own_logs(scene: Scene) -> None:
    scene.brokers.ends = {1: LogEnd(0, 100)}
    scene.brokers.is_ready.clear()
    scene.stop_all()
    await scene.cluster.start(1)
    await scene.control(1)
    for _ in range(5):
        scene.clock.advance_ms(60_000)
        await asyncio.sleep(0.01)
    assert (scene.brokers.asked, await scene.state()) == ([], (1, 0, (1, 2, 3)))
    scene.brokers.is_ready.set()
    await scene.until(1, 1, (1,))


async def test_s80_a_broker_that_does_not_answer_holds_an_election_up_for_a_limited_time(scene: Scene) -> None:
    scene.brokers.ends = {1: LogEnd(0, 60), 2: None}
    scene.stop_all()
    for broker in (1, 2):
        await scene.cluster.start(broker)
    await scene.control(1)
    await scene.until_asked(4)
    assert await scene.state() == (1, 0, (1, 2, 3))
    scene.clock.advance_ms(int(candidate_questions.ANSWER_SECONDS * 1000) + 1)
    await scene.until(1, 1, (1, 2))


async def test_s80_an_abandoned_partition_is_offline_until_its_log_returns_or_an_operator_decides(scene: Scene) -> None:
    for broker in (2, 3):
        scene.cluster.stop(broker)
    await scene.term.brokers_changed()
    assert await scene.state() == (1, 0, (1,))
    for broker in (2, 3):
        await scene.cluster.start(broker)
    await scene.term.brokers_changed()
    scene.brokers.ends = {1: OFFLINE, 2: LogEnd(0, 90), 3: LogEnd(0, 95)}
    known = scene.term.view.states[KEY]
    proposal = Proposal(1, known.state.leader_epoch, known.version, [Member(1)], is_log_offline=True)
    (answer,) = await scene.term.alter(1, scene.term.view.brokers[1].epoch, [(scene.topic_id, 0, proposal)])
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.NEW_LEADER_ELECTED
    assert await scene.state() == (-1, 1, (1,))
    await scene.control(1)  # a new controller that does not know the leader's report
    await scene.until_asked(1)
    await scene.until_true(lambda: scene.questions._offline_since)
    assert await scene.state() == (-1, 1, (1,))
    outcomes = await scene.term.elect(ElectionType.UNCLEAN, [KEY])
    assert outcomes == {KEY: None}
    assert await scene.state() == (3, 2, (3,))


async def test_s80_a_log_that_is_open_again_leads_again(scene: Scene) -> None:
    scene.brokers.ends = {1: OFFLINE}
    for broker in (2, 3):
        scene.cluster.stop(broker)
    await scene.term.brokers_changed()
    known = scene.term.view.states[KEY]
    proposal = Proposal(1, known.state.leader_epoch, known.version, [Member(1)], is_log_offline=True)
    await scene.term.alter(1, scene.term.view.brokers[1].epoch, [(scene.topic_id, 0, proposal)])
    assert await scene.state() == (-1, 1, (1,))
    scene.brokers.ends = {1: LogEnd(0, 100)}
    await scene.until_true(lambda: scene.questions._offline_since)
    assert scene.brokers.asked == []
    scene.clock.advance_ms(int(candidate_questions.OFFLINE_SECONDS * 1000) + 1)
    await scene.until(1, 2, (1,))


async def test_s81_a_reassignment_takes_a_replica_in_sync_away_when_one_that_stays_has_answered(scene: Scene) -> None:
    assert await scene.term.reassign([(KEY, [2, 3])]) == [None]
    await scene.until_asked(2)
    assert (await scene.state())[2] == (1, 2, 3), "both may be dead, their sessions not being over"
    scene.brokers.ends[3] = LogEnd(0, 60)
    await scene.until(3, 1, (2, 3))


async def test_s80_a_partition_without_a_leader_gets_one_when_its_reassignment_has_ended(scene: Scene) -> None:
    """A simulated seed (10415): the end of the reassignment made the election possible, and nobody decided it."""
    known = scene.term.view.states[KEY]
    proposal = Proposal(
        1, known.state.leader_epoch, known.version, [Member(1), Member(2), Member(3)], is_log_offline=True
    )
    await scene.term.alter(1, scene.term.view.brokers[1].epoch, [(scene.topic_id, 0, proposal)])
    assert await scene.state() == (-1, 1, (1, 2, 3))
    assert await scene.term.reassign([(KEY, [2, 3])]) == [None]
    scene.stop_all()
    for broker in (1, 2, 3):
        await scene.cluster.start(broker)
    await scene.control(1)
    scene.brokers.ends[3] = LogEnd(0, 60)  # the brokers 1 and 2 do not answer
    await scene.until(3, 2, (2, 3))
