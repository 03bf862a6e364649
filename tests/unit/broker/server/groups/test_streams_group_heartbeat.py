"""StreamsGroupHeartbeat: which clients may join, with which topics, in which clusters; and the internal topics that the
broker creates.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.handlers import answered, asked, group_coordinator, image_with
from tests.support.streams_groups import SIMPLE, WORD_COUNT, StreamsDriver, internal, subtopology, topology

from oncelog_broker.coordinator.group.config import GroupConfig, StreamsGroupSettings
from oncelog_broker.coordinator.group.streams.configured_topology import WantedTopic
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import streams_group_heartbeat
from oncelog_broker.server.groups.internal_topic_creations import InternalTopicCreations
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.streams_group_heartbeat import StatusCode, StreamsGroupHeartbeatRequest

MISSING = StatusCode.MISSING_INTERNAL_TOPICS


class Scene:
    """A group coordinator without initial rebalance delay, and the topic creations that the coordinator requests."""

    def __init__(self) -> None:
        self.driver = StreamsDriver(GroupConfig(streams=StreamsGroupSettings(initial_rebalance_delay_ms=0)))
        self.created: list[WantedTopic] = []
        self.refused: KafkaError | None = None
        self.tasks = Tasks()
        self.creations = InternalTopicCreations(self.create, ManualClock(), self.tasks)

    async def create(self, topic: WantedTopic) -> None:
        if self.refused is not None:
            raise self.refused
        self.created.append(topic)

    async def beat(self, *, refused: Any = (), is_clustered: bool = False, **said: Any) -> Any:
        fields = {
            "group_id": "g",
            "member_id": "m1",
            "member_epoch": 0,
            "endpoint_information_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "topology": SIMPLE,
            "process_id": "p",
        }
        if "member_epoch" not in said:  # a member that joins has no tasks
            fields |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        context = asked(
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            0,
            refused=refused,
            groups=group_coordinator(self.driver.machine),
            internal_topics=self.creations,
            is_clustered=is_clustered,
            image=image_with(),
        )
        answer = await answered(streams_group_heartbeat.handle, StreamsGroupHeartbeatRequest(**fields | said), context)
        await context.services.tasks.close()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        return answer


@pytest.fixture
def scene() -> Scene:
    return Scene()


def detail(answer: Any) -> str:
    (found,) = [status.status_detail for status in answer.status if status.status_code == MISSING]
    return str(found)


async def test_a_member_joins_stays_and_leaves(scene: Scene) -> None:
    answer = await scene.beat()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m1", 2)
    assert [tasks.partitions for tasks in answer.active_tasks] == [[0, 1, 2, 3]]
    stays = {"topology": None, "rebalance_timeout_ms": -1, "process_id": None}
    answer = await scene.beat(member_epoch=2, **stays)
    assert (answer.error_code, answer.active_tasks, answer.status) == (ErrorCode.NONE, None, [])
    assert (await scene.beat(member_epoch=-1, **stays)).member_epoch == -1
    assert (await scene.beat(member_id="")).error_code == ErrorCode.INVALID_REQUEST
    assert scene.created == []


async def test_streams_groups_are_disabled_in_a_cluster_with_an_older_broker(scene: Scene) -> None:
    """The brokers in the image that `image_with` returns announce no feature levels."""
    assert (await scene.beat(is_clustered=True)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert scene.driver.machine.ids() == []


async def test_a_heartbeat_needs_rights_on_the_group_and_on_each_topic(scene: Scene) -> None:
    denied = await scene.beat(refused={(rules.STREAMS_HEARTBEAT, "g")})
    assert denied.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    for name in ("t", "words-repartition", "counts-changelog"):
        denied = await scene.beat(topology=WORD_COUNT, refused={(rules.STREAMS_TOPICS, name)})
        assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert scene.driver.machine.ids() == []


async def test_topics_that_no_application_may_use(scene: Scene) -> None:
    answer = await scene.beat(topology=topology(subtopology("0", "__consumer_offsets", "t")))
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
    )
    answer = await scene.beat(topology=topology(subtopology("0", "t", sinks=["a/b"])))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    answer = await scene.beat(topology=topology(subtopology("0", "t", changelogs=[internal("c", 1)])))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


async def test_missing_internal_topics_are_created(scene: Scene) -> None:
    answer = await scene.beat(topology=WORD_COUNT)
    assert answer.error_code == ErrorCode.NONE
    assert detail(answer) == "Internal topics are missing: counts-changelog, words-repartition"
    assert [(topic.name, topic.partitions, topic.configs) for topic in scene.created] == [
        ("counts-changelog", 4, {"cleanup.policy": "compact"}),
        ("words-repartition", 4, {"cleanup.policy": "delete"}),
    ]


async def test_who_may_not_create_one_topic_creates_none(scene: Scene) -> None:
    on_topic = (rules.STREAMS_CREATE_TOPIC, "counts-changelog")
    denied = {rules.STREAMS_CREATE_ANY_TOPIC, on_topic}
    answer = await scene.beat(topology=WORD_COUNT, refused=denied)
    assert detail(answer).endswith("; Unauthorized to CREATE on topics counts-changelog.")
    assert scene.created == []
    await scene.beat(topology=WORD_COUNT, refused={on_topic})
    assert len(scene.created) == 2, "a right on the cluster is enough"
    scene.created.clear()
    await scene.beat(topology=WORD_COUNT, refused={rules.STREAMS_CREATE_ANY_TOPIC})
    assert len(scene.created) == 2, "and so are rights on the topics"


async def test_why_a_topic_could_not_be_created_is_told(scene: Scene) -> None:
    scene.refused = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    await scene.beat(topology=WORD_COUNT)
    answer = await scene.beat(topology=WORD_COUNT)
    assert detail(answer) == (
        "Internal topics are missing: counts-changelog, words-repartition; "
        "Creation failed: counts-changelog (too few brokers), words-repartition (too few brokers)."
    )


async def test_what_the_coordinator_refuses(scene: Scene) -> None:
    answer = await scene.beat(member_epoch=5, topology=None)
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
