"""AlterPartition from the request to the response, with the real controller."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.replicas import alter_partition
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest

TopicRequest = AlterPartitionRequest.TopicData
PartitionRequest = TopicRequest.PartitionData


class Scene:
    """Two brokers, a topic with one partition on both, and a request of broker 1 to the controller."""

    @classmethod
    async def set(cls):
        scene = cls()
        scene.cluster = ControlledBrokers()
        for broker in (1, 2):
            await scene.cluster.start(broker)
        scene.term = await scene.cluster.control(2)
        topics = TopicController(scene.cluster.sessions[2], lambda: scene.term)
        scene.topic = await topics.create_topic("t", -1, -1, assignment={0: [1, 2]})
        scene.current = lambda: scene.term
        return scene

    def epoch(self, broker):
        return self.term.view.brokers[broker].epoch

    def request(self, *isr, topic_id=None, leader_epoch=0, partition_epoch=0, broker_epoch=None):
        state = PartitionRequest.BrokerState
        partition = PartitionRequest(
            partition_index=0,
            leader_epoch=leader_epoch,
            new_isr=list(isr),
            new_isr_with_epochs=[state(broker_id=broker, broker_epoch=self.epoch(broker)) for broker in isr],
            partition_epoch=partition_epoch,
        )
        return AlterPartitionRequest(
            broker_id=1,
            broker_epoch=self.epoch(1) if broker_epoch is None else broker_epoch,
            topics=[TopicRequest(topic_id=topic_id or self.topic.topic_id, partitions=[partition])],
        )

    async def ask(self, request, version=3, settings=None, listener="PLAINTEXT"):
        tasks = Tasks()
        services = SimpleNamespace(
            authorizer=None,
            config=BrokerConfig.of(settings or {}),
            tasks=tasks,
            slices=Slices(SystemClock(), tasks),
            at_work=asyncio.Semaphore(1),
            elector=SimpleNamespace(term=lambda: self.current()),
        )
        context = RequestContext(services, SimpleNamespace(listener=listener), ApiKey.ALTER_PARTITION, version, 0, "b")
        answer = alter_partition.handle(request, context)
        return answer if hasattr(answer, "error_code") else await answer


def shown(answer):
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition.error_code, partition.leader_id, partition.leader_epoch, partition.isr, partition.partition_epoch


@pytest.mark.parametrize("version", [2, 3])
async def test_a_granted_isr_change_is_answered_with_the_new_state_each_time(version):
    scene = await Scene.set()
    for _ in range(2):
        assert shown(await scene.ask(scene.request(1), version)) == (ErrorCode.NONE, 1, 0, [1], 1)
    assert await scene.cluster.states() == {0: (1, 0, (1,))}


async def test_errors_of_single_partitions_are_returned():
    scene = await Scene.set()
    for request, code in (
        (scene.request(1, topic_id=b"x" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (scene.request(1, leader_epoch=1), ErrorCode.NOT_CONTROLLER),
        (scene.request(2), ErrorCode.NEW_LEADER_ELECTED),
        (scene.request(1), ErrorCode.FENCED_LEADER_EPOCH),
    ):
        assert shown(await scene.ask(request))[0] == code


async def test_errors_of_the_whole_request():
    scene = await Scene.set()
    stale = await scene.ask(scene.request(1, broker_epoch=0))
    assert (stale.error_code, stale.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
    scene.cluster.sessions[2].is_cut = True
    assert (await scene.ask(scene.request(1))).error_code == ErrorCode.REQUEST_TIMED_OUT
    scene.cluster.sessions[2].reconnect()
    await scene.cluster.admin.delete("/controller")
    await scene.cluster.control(1)
    assert (await scene.ask(scene.request(1))).error_code == ErrorCode.NOT_CONTROLLER

    def nobody():
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    scene.current = nobody
    assert (await scene.ask(scene.request(1))).error_code == ErrorCode.NOT_CONTROLLER


async def test_clients_cannot_change_the_isr():
    scene = await Scene.set()
    settings = {
        "listeners": "BROKERS://127.0.0.1:1,CLIENTS://127.0.0.1:2",
        "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    answer = await scene.ask(scene.request(1), settings=settings, listener="CLIENTS")
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await scene.cluster.states() == {0: (1, 0, (1, 2))}
