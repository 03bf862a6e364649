"""What requests of very many names make of these: in steps, between which others have their turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.handlers import delete_topics, find_coordinator, metadata
from oncelog_broker.server.named import NAMES_PER_STEP
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.metadata import MetadataRequest

NAMES = [f"name-{number}" for number in range(3 * NAMES_PER_STEP)]
NO_SUCH_TYPE = 7


class CountedSlices(Slices):
    """How often the work might have been paused."""

    def __init__(self) -> None:
        super().__init__(ManualClock(), Tasks())
        self.steps = 0

    def run(self, steps: Steps[Any], **options: Any) -> Any:
        return super().run(self._counted(steps), **options)

    def _counted(self, steps: Steps[Any]) -> Steps[Any]:
        while True:
            try:
                job = next(steps)
            except StopIteration as end:
                return end.value
            self.steps += 1
            yield job


def context_of(api_key: ApiKey, version: int, slices: Any, **services: Any) -> Any:
    parts: Any = SimpleNamespace(authorizer=None, slices=slices, **services)
    return RequestContext(parts, None, api_key, version, 0, None)  # type: ignore[arg-type]


def test_coordinators_of_a_type_that_there_is_not() -> None:
    slices = CountedSlices()
    request = FindCoordinatorRequest(key_type=NO_SUCH_TYPE, coordinator_keys=NAMES)
    response: Any = find_coordinator.handle(request, context_of(ApiKey.FIND_COORDINATOR, 4, slices))
    assert [each.key for each in response.coordinators] == NAMES
    assert slices.steps == len(NAMES)


def test_topics_that_are_asked_for_twice() -> None:
    slices = CountedSlices()
    topic = MetadataRequest.MetadataRequestTopic
    topics = [topic(name=name) for name in [*NAMES, *NAMES]]
    named: Any = slices.run(metadata._named_once(topics))
    assert [each.name for each in named] == NAMES
    assert slices.steps == len(topics) / NAMES_PER_STEP


async def test_topics_to_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is looked at before it is its turn."""
    made, at_pause = list[str](), list[int]()
    state = delete_topics.TopicState

    def noted(**fields: Any) -> Any:
        made.append(fields["name"])
        return state(**fields)

    async def here() -> None:
        at_pause.append(len(made))

    monkeypatch.setattr(delete_topics, "TopicState", noted)
    elector = SimpleNamespace(term=lambda: 1)
    slices = SimpleNamespace(pauses=lambda: SimpleNamespace(here=here))
    config = {delete_topics.DELETE_TOPIC_ENABLE: False}
    context = context_of(ApiKey.DELETE_TOPICS, 5, slices, elector=elector, config=config)
    request = DeleteTopicsRequest(topic_names=NAMES[:100], timeout_ms=1000)
    response = await delete_topics._delete_all(request, context)
    assert {each.error_code for each in response.responses} == {ErrorCode.TOPIC_DELETION_DISABLED}
    assert at_pause == list(range(1, 101))
