"""DeleteTopics with the real controller, on a broker whose image lags."""

import asyncio
from types import SimpleNamespace

from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata.model import reader
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.topics import delete_topics
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest


async def test_deleting_by_id_spares_a_re_created_topic_of_the_name():
    cluster = ControlledBrokers()
    await cluster.start(1)
    term = await cluster.control(1)
    topics = TopicController(cluster.sessions[1], lambda: term)
    first = await topics.create_topic("t", 1, 1)
    image = await reader.read_image(cluster.admin)
    await topics.delete_topic("t")
    second = await topics.create_topic("t", 1, 1)
    tasks = Tasks()
    services = SimpleNamespace(
        authorizer=None,
        config=BrokerConfig.of({}),
        tasks=tasks,
        slices=Slices(SystemClock(), tasks),
        at_work=asyncio.Semaphore(1),
        image=image,
        clock=SystemClock(),
        elector=SimpleNamespace(term=lambda: term),
        topics=topics,
    )
    context = RequestContext(services, SimpleNamespace(listener="PLAINTEXT"), ApiKey.DELETE_TOPICS, 6, 0, "test")
    named = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=first.topic_id)
    answer = await delete_topics.handle(DeleteTopicsRequest(topics=[named], timeout_ms=60_000), context)
    assert [each.error_code for each in answer.responses] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert (await reader.read_image(cluster.admin)).topic("t").topic_id == second.topic_id
    await tasks.close()
