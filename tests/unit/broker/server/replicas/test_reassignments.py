"""AlterPartitionReassignments and ListPartitionReassignments with the real controller."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.controller.leadership import claim_controllership
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.replicas import alter_partition_reassignments, list_partition_reassignments
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from oncelog_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

Asked = AlterPartitionReassignmentsRequest.ReassignableTopic
Listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


class Scene:
    """Three brokers, where broker 1 is the controller, and a topic with two partitions on brokers 1 and 2."""

    @classmethod
    async def set(cls):
        scene = cls()
        scene.cluster = ControlledBrokers()
        for broker in (1, 2, 3):
            await scene.cluster.start(broker)
        term = await scene.cluster.control(1)
        scene.term = lambda: term
        topics = TopicController(scene.cluster.sessions[1], scene.term)
        await topics.create_topic("t", -1, -1, assignment={0: [1, 2], 1: [2, 1]})
        return scene

    async def ask(self, module, request, key, version=0):
        tasks = Tasks()
        services = SimpleNamespace(
            authorizer=None,
            tasks=tasks,
            slices=Slices(SystemClock(), tasks),
            at_work=asyncio.Semaphore(1),
            node_id=1,
            image=ClusterImage("c"),  # an image without a controller
            elector=SimpleNamespace(term=lambda: self.term()),
        )
        answer = module.handle(request, RequestContext(services, SimpleNamespace(), key, version, 0, "a"))
        return answer if hasattr(answer, "error_code") else await answer

    async def move(self, targets, *, topic="t", **more):
        partitions = [Asked.ReassignablePartition(partition_index=p, replicas=to) for p, to in targets.items()]
        request = AlterPartitionReassignmentsRequest(topics=[Asked(name=topic, partitions=partitions)], **more)
        return await self.ask(alter_partition_reassignments, request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1)

    async def list(self, topics=None):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = await self.ask(list_partition_reassignments, request, ApiKey.LIST_PARTITION_REASSIGNMENTS)
        return {
            (topic.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
            for topic in answer.topics
            for each in topic.partitions
        }


def codes(answer):
    assert answer.error_code == ErrorCode.NONE
    return [each.error_code for topic in answer.responses for each in topic.partitions]


async def test_reassignments_under_way_are_listed():
    scene = await Scene.set()
    assert await scene.list() == {}
    assert codes(await scene.move({0: [3, 2], 1: None})) == [ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    begun = {("t", 0): ([3, 2, 1], [3], [1])}
    assert await scene.list() == begun
    assert (
        await scene.list([Listed(name="t", partition_indexes=[0, 1, 7, 0]), Listed(name="u", partition_indexes=[0])])
        == begun
    )
    assert await scene.list([Listed(name="t", partition_indexes=[1])]) == {}
    assert await scene.list([]) == {}
    assert codes(await scene.move({0: None})) == [ErrorCode.NONE]
    assert await scene.list() == {}


async def test_a_change_of_the_replication_factor_can_be_forbidden():
    scene = await Scene.set()
    answer = await scene.move({0: [3]}, allow_replication_factor_change=False)
    assert codes(answer) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert answer.allow_replication_factor_change is False
    (partition,) = answer.responses[0].partitions
    assert partition.error_message == "The replication factor would change from 2 to 1."


async def test_unknown_topics_have_their_error_and_names_that_are_no_paths_too():
    scene = await Scene.set()
    for name in ("u", "", "a/b", "../t"):
        assert codes(await scene.move({0: [1]}, topic=name)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_controller_that_has_not_read_everything_reads_it_first():
    """If the controller had not read the entire tree, ongoing reassignments would seem to be complete."""
    scene = await Scene.set()
    await scene.move({0: [3, 2]})
    scene.cluster.stop(1)
    claimed = await claim_controllership(scene.cluster.sessions[2], 2, now_ms=1)
    term = PartitionController(scene.cluster.sessions[2], claimed)
    scene.term = lambda: term
    assert list(await scene.list()) == [("t", 0)]


@pytest.mark.parametrize("is_deposed", [False, True])
async def test_a_broker_that_is_not_controller_refuses_reassignments(is_deposed):
    scene = await Scene.set()
    if is_deposed:
        scene.cluster.sessions[1].expire()
        await scene.cluster.control(2)
        scene.cluster.shared._sessions[1] = scene.cluster.sessions[1]  # a former controller that can still write
    else:

        def term():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

        scene.term = term
    answer = await scene.move({0: [3]})
    assert answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
    assert answer.responses == []
    if not is_deposed:
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert await scene.list() == {}


async def test_an_unreachable_store_is_an_error_of_the_reassignment():
    scene = await Scene.set()
    scene.cluster.sessions[1].is_cut = True
    answer = await scene.move({0: [3]})
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
