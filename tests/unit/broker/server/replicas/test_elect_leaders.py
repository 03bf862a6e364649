"""ElectLeaders and ControlledShutdown from the request to the response, with the real controller."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.replicas import controlled_shutdown, elect_leaders
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest


class Scene:
    """Brokers 1 and 2, where 2 is the controller and leads all three partitions of a topic.

    Broker 1 is the preferred leader of the first two partitions, and in sync only with the first one.
    """

    @classmethod
    async def set(cls):
        scene = cls()
        scene.cluster = ControlledBrokers()
        for broker in (1, 2):
            await scene.cluster.start(broker)
        term = scene.term = await scene.cluster.control(2)
        topics = TopicController(scene.cluster.sessions[2], lambda: term)
        topic = await topics.create_topic("t", -1, -1, assignment={0: [1, 2], 1: [1, 2], 2: [2, 1]})
        epochs = {broker: live.epoch for broker, live in term.view.live.items()}
        # Broker 1 leaves the ISR of the first two partitions, and rejoins one of them.
        given = [(topic.topic_id, index, Proposal(1, 0, 0, [Member(2)])) for index in (0, 1)]
        await term.alter(1, epochs[1], given)
        back = Proposal(2, 1, 1, [Member(2), Member(1)])
        await term.alter(2, epochs[2], [(topic.topic_id, 0, back)])
        scene.current = lambda: term
        scene.cache = await MetadataCache.start(scene.cluster.admin)
        scene.tasks = Tasks()
        return scene

    def context(self, api, version):
        services = SimpleNamespace(
            authorizer=None,
            config=BrokerConfig.of({}),
            tasks=self.tasks,
            slices=Slices(SystemClock(), self.tasks),
            at_work=asyncio.Semaphore(1),
            metadata=self.cache,
            node_id=1,
            image=ClusterImage("c"),  # an image without a controller
            elector=SimpleNamespace(term=lambda: self.current()),
        )
        return RequestContext(services, SimpleNamespace(listener="PLAINTEXT"), api, version, 0, "test")

    async def elect(self, *partitions, topic="t", kind=0, version=2):
        wanted = ElectLeadersRequest.TopicPartitions
        named = [wanted(topic=topic, partitions=list(partitions))] if partitions else None
        request = ElectLeadersRequest(election_type=kind, topic_partitions=named, timeout_ms=60_000)
        answer = await elect_leaders.handle(request, self.context(ApiKey.ELECT_LEADERS, version))
        found = {
            (each.topic, one.partition_id): one.error_code
            for each in answer.replica_election_results
            for one in each.partition_result
        }
        return answer.error_code, found

    async def close(self):
        await self.cache.close()
        await self.tasks.close()


@pytest.fixture
async def scene():
    scene = await Scene.set()
    yield scene
    await scene.close()


async def test_each_partition_has_its_own_result_and_the_image_shows_the_leader(scene):
    assert await scene.elect(2, 1, 0, 0, 7) == (
        0,
        {
            ("t", 2): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ("t", 0): ErrorCode.NONE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    state = scene.cache.image.partition("t", 0)
    assert (state.leader, state.leader_epoch) == (1, 2)


async def test_partitions_that_need_no_election_are_omitted_if_all_are_asked_for(scene):
    assert await scene.elect() == (
        0,
        {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE},
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_an_error_of_the_whole_request_is_returned_once(scene, version):
    assert await scene.elect(0, kind=2, version=version) == (ErrorCode.INVALID_REQUEST, {})

    def depose():
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    scene.current = depose
    assert await scene.elect(0, version=version) == (ErrorCode.NOT_CONTROLLER, {})


async def test_an_error_of_the_whole_request_is_repeated_per_partition_in_old_versions(scene):
    def depose():
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    scene.current = depose
    wrong = {("t", 0): ErrorCode.NOT_CONTROLLER, ("t", 1): ErrorCode.NOT_CONTROLLER}
    assert await scene.elect(0, 1, version=0) == (0, wrong)


async def test_a_stopping_broker_learns_which_partitions_it_still_leads(scene):
    def ask(broker, epoch):
        request = ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)
        return controlled_shutdown.handle(request, scene.context(ApiKey.CONTROLLED_SHUTDOWN, 3))

    epochs = {broker: live.epoch for broker, live in scene.term.view.live.items()}
    assert (await ask(1, epochs[1] - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    first = await ask(1, epochs[1])
    assert (first.error_code, first.remaining_partitions) == (ErrorCode.NONE, [])
    second = await ask(2, epochs[2])
    left = sorted((each.topic_name, each.partition_index) for each in second.remaining_partitions)
    assert left == [("t", 0), ("t", 1), ("t", 2)]
