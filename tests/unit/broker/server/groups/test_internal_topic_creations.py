"""Internal topics are created by one request per topic at a time, and a failed creation is reported for a while."""

from __future__ import annotations

import asyncio

import pytest

from oncelog_broker.coordinator.group.streams.configured_topology import WantedTopic
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.groups import internal_topic_creations
from oncelog_broker.server.groups.internal_topic_creations import InternalTopicCreations
from oncelog_protocol.errors import ErrorCode, KafkaError

ONE, TWO, THREE = (WantedTopic(name, 1, -1, {}) for name in ("one", "two", "three"))


class Scene:
    """Each creation of a topic waits until the method `answer` sets the result of the creation."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = {topic.name: asyncio.get_running_loop().create_future() for topic in (ONE, TWO, THREE)}
        self.clock = ManualClock()
        self.tasks = Tasks()
        self.creations = InternalTopicCreations(self.create, self.clock, self.tasks)

    async def create(self, topic: WantedTopic) -> None:
        self.asked.append(topic.name)
        await self.answers[topic.name]

    def begin(self, *topics: WantedTopic) -> asyncio.Task[None]:
        return self.creations.begin(self.creations.wanted(topics), 10.0)

    def answer(self, topic: WantedTopic, error: Exception | None = None) -> None:
        if error is None:
            self.answers[topic.name].set_result(None)
        else:
            self.answers[topic.name].set_exception(error)


async def test_a_topic_is_created_once_at_a_time() -> None:
    scene = Scene()
    creation = scene.begin(ONE, TWO)
    assert scene.creations.wanted([ONE, TWO, THREE]) == [THREE]
    scene.answer(ONE)
    scene.answer(TWO)
    await creation
    assert scene.asked == ["one", "two"]
    assert scene.creations.wanted([ONE]) == [ONE], "it may have been deleted since"
    await scene.tasks.close()


async def test_an_error_is_told_for_a_while_and_not_provoked_again_meanwhile() -> None:
    scene = Scene()
    creation = scene.begin(ONE, TWO)
    scene.answer(ONE, KafkaError(ErrorCode.INVALID_CONFIG, "no such key"))
    scene.answer(TWO, KafkaError(ErrorCode.NOT_CONTROLLER))
    await creation
    errors = scene.creations.errors_of([ONE, TWO, THREE])
    assert errors == {"one": "no such key", "two": ErrorCode.NOT_CONTROLLER.meaning}
    assert scene.creations.wanted([ONE, THREE]) == [THREE]
    scene.clock.advance_ms(10_000)
    assert scene.creations.errors_of([ONE, TWO]) == {}
    assert scene.creations.wanted([ONE]) == [ONE]
    await scene.tasks.close()


async def test_only_so_many_errors_and_creations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topic_creations, "MAX_ERRORS", 1)
    monkeypatch.setattr(internal_topic_creations, "MAX_UNDER_WAY", 2)
    scene = Scene()
    assert scene.creations.wanted([ONE, TWO, THREE]) == [ONE, TWO]
    creation = scene.begin(ONE, TWO, THREE)
    assert scene.creations.wanted([THREE]) == []
    for topic in (ONE, TWO):
        scene.answer(topic, KafkaError(ErrorCode.INVALID_CONFIG, "no"))
    await creation
    assert scene.creations.errors_of([ONE, TWO]) == {"two": "no"}
    await scene.tasks.close()


async def test_other_errors_do_not_leave_topics_under_way() -> None:
    scene = Scene()
    creation = scene.begin(ONE, TWO)
    scene.answer(ONE, RuntimeError("a bug"))
    await asyncio.wait([creation])
    assert scene.creations.wanted([ONE, TWO]) == [ONE, TWO]
    await scene.tasks.close()
