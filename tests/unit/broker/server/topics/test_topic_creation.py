"""The controller auto-creates topics, whichever broker is the controller."""

from types import SimpleNamespace

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.replication.peers import PeerUnavailable, Purpose
from oncelog_broker.server.topics.topic_creation import TopicCreation
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_topics import CreateTopicsResponse

TOPIC = Topic("t", b"i" * 16, {0: PartitionState((2,), (2,), 2, 0, 0)})


class Scene:
    """Broker 1 of a cluster of two brokers; `asked` lists the requests that reached a controller, and whether they were
    sent or called directly.
    """

    def __init__(self, controller, answer=ErrorCode.NONE, settings=None):
        self.asked = []
        self.answer = answer
        image = ClusterImage("c", {1: Broker(1, 1, ()), 2: Broker(2, 2, ())}, controller_id=controller)
        image = image.with_topic(TOPIC)

        async def shown(_):
            return image

        async def opened(_):
            return None

        self.creation = TopicCreation(
            lambda: BrokerConfig.of({"node.id": "1", **(settings or {})}),
            SimpleNamespace(image=image, wait_for=shown),
            SimpleNamespace(until_opened=opened),
            SimpleNamespace(create_topic=self.create_here),
            self,
            may_degrade=False,
        )

    async def create_here(self, name, partitions, replicas, overrides):
        self.asked.append((1, name, partitions, replicas))
        if self.answer is not ErrorCode.NONE:
            raise KafkaError(self.answer)

    async def send(self, broker_id, request, *, purpose, timeout):
        assert purpose is Purpose.CONTROL
        (topic,) = request.topics
        self.asked.append((broker_id, topic.name, topic.num_partitions, topic.replication_factor))
        if self.answer is None:
            raise PeerUnavailable(broker_id, "away")
        result = CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=self.answer)
        return CreateTopicsResponse(topics=[result])


@pytest.mark.parametrize("controller", [1, 2])
@pytest.mark.parametrize("answer", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
async def test_the_local_or_remote_controller_creates_the_topic(controller, answer):
    scene = Scene(controller, answer, {"num.partitions": "4"})
    await scene.creation.create("t")
    assert scene.asked == [(controller, "t", 4, 1)]


@pytest.mark.parametrize(
    ("controller", "answer", "code"),
    [
        (2, None, ErrorCode.LEADER_NOT_AVAILABLE),
        (2, ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
        (1, ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
        (2, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
async def test_the_controllers_answer_is_returned_or_becomes_retriable(controller, answer, code):
    with pytest.raises(KafkaError) as raised:
        await Scene(controller, answer).creation.create("t")
    assert raised.value.code is code


async def test_an_internal_topic_that_would_have_too_few_replicas_is_not_asked_for(caplog):
    scene = Scene(2)
    for _ in range(3):
        with pytest.raises(KafkaError) as raised:
            await scene.creation.create("__consumer_offsets")
        assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.asked == []
    reason = "__consumer_offsets needs 3 replicas, but 2 brokers are alive: start more, or ask for fewer"
    assert [record.reason for record in caplog.records] == [reason], "told once"
