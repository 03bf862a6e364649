"""Requests with very many names are handled in steps, between which other requests run."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.groups import find_coordinator
from oncelog_broker.server.records import describe_producers, list_offsets
from oncelog_broker.server.replicas import alter_partition_reassignments, elect_leaders
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.duplicate_names import NAMES_PER_STEP
from oncelog_broker.server.topics import alter_configs, delete_topics, incremental_alter_configs, metadata
from oncelog_broker.server.transactions import add_partitions_to_txn, write_txn_markers
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest
from oncelog_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest

NAMES = [f"name-{number}" for number in range(3 * NAMES_PER_STEP)]
NO_SUCH_TYPE = 7


class CountedSlices(Slices):
    """Counts how many times the work could have paused."""

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


def test_coordinators_of_an_unknown_type_are_refused_in_steps() -> None:
    slices = CountedSlices()
    request = FindCoordinatorRequest(key_type=NO_SUCH_TYPE, coordinator_keys=NAMES)
    response: Any = find_coordinator.handle(request, context_of(ApiKey.FIND_COORDINATOR, 4, slices))
    assert [each.key for each in response.coordinators] == NAMES
    assert slices.steps == len(NAMES)


def test_topics_named_twice_are_answered_in_steps() -> None:
    slices = CountedSlices()
    topic = MetadataRequest.MetadataRequestTopic
    topics = [topic(name=name) for name in [*NAMES, *NAMES]]
    named: Any = slices.run(metadata._named_once(topics))
    assert [each.name for each in named] == NAMES
    assert slices.steps == len(topics) / NAMES_PER_STEP


async def test_topics_are_deleted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topic is examined only in its own step."""
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
    """Topics without partitions must count as work, too, because otherwise one step could handle any number of them."""
    slices = CountedSlices()
    slices.run(steps_of(context_of(ApiKey.LIST_OFFSETS, 1, slices)))
    assert slices.steps >= len(EMPTY)


class Named(str):
    """A topic name that counts how many times it is hashed, and so looked up, between two pauses."""

    __slots__ = ()
    since_pause = 0
    most = 0

    def __hash__(self) -> int:
        Named.since_pause += 1
        Named.most = max(Named.most, Named.since_pause)
        return super().__hash__()


@pytest.fixture
def paused_slices(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Slices that reset the count of `Named` at each pause."""
    monkeypatch.setattr(Named, "most", 0)

    async def here() -> None:
        Named.since_pause = 0

    return SimpleNamespace(pauses=lambda: SimpleNamespace(here=here))


@pytest.mark.parametrize("module", [alter_configs, incremental_alter_configs])
async def test_very_many_settings_of_one_resource_are_gone_through_with_pauses(module: Any, paused_slices: Any) -> None:
    """Settings are examined one by one with pauses in between; only the final step handles all settings together."""
    request_type = AlterConfigsRequest if module is alter_configs else IncrementalAlterConfigsRequest
    kind: Any = request_type.AlterConfigsResource  # type: ignore[attr-defined]
    fields = {} if module is alter_configs else {"config_operation": 0}
    configs = [kind.AlterableConfig(name=Named(name), value="1", **fields) for name in EMPTY]
    resource = kind(resource_type=ResourceType.TOPIC, resource_name="t", configs=configs)

    async def alter(name: str, change: Any, validate_only: bool) -> Any:
        return change({})

    image = SimpleNamespace(topic=lambda name: name)
    services = {"image": image, "configs": SimpleNamespace(alter_topic_config=alter), "config": {}}
    context = context_of(ApiKey.ALTER_CONFIGS, 1, paused_slices, **services)
    response = await module._alter(request_type(resources=[resource], validate_only=False), context)
    assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert 0 < Named.most < 10


MANY = range(1000)


class Refusals:
    """A controller that refuses everything, and counts the refusals that are still referenced."""

    def __init__(self, fails: KafkaError | None = None) -> None:
        self.alive: weakref.WeakSet[KafkaError] = weakref.WeakSet()
        self._fails = fails

    def _refusal(self) -> KafkaError:
        refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.alive.add(refusal)
        return refusal

    async def elect(self, kind: object, keys: Any) -> Any:
        if self._fails is not None:
            raise self._fails
        return {key: self._refusal() for key in sorted(keys, key=lambda key: key.partition)}

    async def reassign(self, wanted: Any, *, may_change_replication_factor: bool) -> Any:
        return [self._refusal() for _ in wanted]


async def shown(shows: Any) -> None:
    assert shows(None)


def election_of_many() -> ElectLeadersRequest:
    """Return a request for an election in which each partition is named twice."""
    topic = ElectLeadersRequest.TopicPartitions(topic=Named("t"), partitions=[*MANY, *MANY])
    return ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout_ms=1000)


@pytest.mark.parametrize("module", [elect_leaders, alter_partition_reassignments])
async def test_very_many_refusals_are_freed_as_they_are_answered(module: Any) -> None:
    """Freeing all refusals together would be a long step of its own."""
    controller, left = Refusals(), list[int]()

    async def here() -> None:
        left.append(len(controller.alive))

    slices = SimpleNamespace(pauses=lambda: SimpleNamespace(here=here))
    elector, cache = SimpleNamespace(term=lambda: controller), SimpleNamespace(wait_for=shown)
    context = context_of(ApiKey.ELECT_LEADERS, 2, slices, elector=elector, metadata=cache)
    if module is elect_leaders:
        elected = await module._elect(election_of_many(), context)
        answered = [result.error_code for each in elected.replica_election_results for result in each.partition_result]
        assert answered == 2 * len(MANY) * [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    else:
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        partitions = [kind.ReassignablePartition(partition_index=index, replicas=[1]) for index in MANY]
        request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[kind(name="t", partitions=partitions)])
        await module._reassign(request, context)
    assert max(left) == len(MANY)
    assert left[-1] <= 2


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("fails", [None, KafkaError(ErrorCode.NOT_CONTROLLER)], ids=["refused", "fails"])
async def test_partitions_whose_leaders_are_to_be_elected_are_looked_up_with_pauses(
    version: int, fails: KafkaError | None, paused_slices: Any
) -> None:
    class Controller(Refusals):
        async def elect(self, kind: object, keys: Any) -> Any:
            if self._fails is not None:
                raise self._fails
            return dict.fromkeys(set(keys))

    view = SimpleNamespace(states={})
    controller = Controller(fails)
    controller.view = view  # type: ignore[attr-defined]
    elector, cache = SimpleNamespace(term=lambda: controller), SimpleNamespace(wait_for=shown)
    context = context_of(ApiKey.ELECT_LEADERS, version, paused_slices, elector=elector, metadata=cache)
    response = await elect_leaders._elect(election_of_many(), context)
    assert response.error_code == (ErrorCode.NOT_CONTROLLER if fails and version else ErrorCode.NONE)
    assert 0 < Named.most < 10
