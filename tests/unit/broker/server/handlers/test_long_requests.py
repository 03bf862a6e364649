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
from oncelog_broker.server.handlers import (
    add_partitions_to_txn,
    alter_configs,
    delete_topics,
    describe_producers,
    find_coordinator,
    incremental_alter_configs,
    list_offsets,
    metadata,
    write_txn_markers,
)
from oncelog_broker.server.named import NAMES_PER_STEP
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest

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


EMPTY = NAMES[:1000]
MARKER = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}


def offsets_listed(context: Any) -> Any:
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[]) for name in EMPTY]
    return list_offsets._answer(ListOffsetsRequest(replica_id=-1, topics=topics), context)


def producers_described(context: Any) -> Any:
    topics = [DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[]) for name in EMPTY]
    return describe_producers._describe_each(DescribeProducersRequest(topics=topics), context)


def added(context: Any) -> Any:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[]) for name in EMPTY]
    transaction = add_partitions_to_txn.Transaction(
        transactional_id="t", producer_id=1, producer_epoch=0, verify_only=False, topics=topics
    )
    return add_partitions_to_txn._result(transaction, lambda _: ErrorCode.NONE, context)


def markers_written(context: Any) -> Any:
    markers = [WriteTxnMarkersRequest.WritableTxnMarker(topics=[], **MARKER) for _ in EMPTY]  # type: ignore[arg-type]
    return write_txn_markers._write_each(WriteTxnMarkersRequest(markers=markers), context)


def markers_answered(context: Any) -> Any:
    topics = [
        WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic(name=n, partition_indexes=[]) for n in EMPTY
    ]
    markers = [WriteTxnMarkersRequest.WritableTxnMarker(topics=topics, **MARKER)]  # type: ignore[arg-type]
    return write_txn_markers._response(WriteTxnMarkersRequest(markers=markers), [])


@pytest.mark.parametrize("steps_of", [offsets_listed, producers_described, added, markers_written, markers_answered])
def test_topics_without_partitions_are_steps_too(steps_of: Any) -> None:
    """Else very many of them, which name nothing, would be one."""
    slices = CountedSlices()
    slices.run(steps_of(context_of(ApiKey.LIST_OFFSETS, 1, slices)))
    assert slices.steps >= len(EMPTY)


@pytest.mark.parametrize("module", [alter_configs, incremental_alter_configs])
async def test_very_many_settings_of_one_resource_are_gone_through_with_pauses(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked at between two pauses, and no more: what is done in the end with all of them is done at once."""
    since_pause, most = 0, 0

    async def here() -> None:
        nonlocal since_pause
        since_pause = 0

    class Named(str):
        """A key that counts who looks at it."""

        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal since_pause, most
            since_pause += 1
            most = max(most, since_pause)
            return super().__hash__()

    request_type = AlterConfigsRequest if module is alter_configs else IncrementalAlterConfigsRequest
    kind: Any = request_type.AlterConfigsResource  # type: ignore[attr-defined]
    fields = {} if module is alter_configs else {"config_operation": 0}
    configs = [kind.AlterableConfig(name=Named(name), value="1", **fields) for name in EMPTY]
    resource = kind(resource_type=ResourceType.TOPIC, resource_name="t", configs=configs)

    async def alter(name: str, change: Any, validate_only: bool) -> Any:
        return change({})

    slices = SimpleNamespace(pauses=lambda: SimpleNamespace(here=here))
    image = SimpleNamespace(topic=lambda name: name)
    services = {"image": image, "configs": SimpleNamespace(alter_topic_config=alter)}
    context = context_of(ApiKey.ALTER_CONFIGS, 1, slices, **services)
    response = await module._alter(request_type(resources=[resource], validate_only=False), context)
    assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert 0 < most < 10
