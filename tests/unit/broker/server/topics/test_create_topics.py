"""CreateTopics and CreatePartitions at the controller: one result per topic, defaults, dry runs and rights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with, topic_id

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.image import PartitionState, Topic
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics import create_partitions, create_topics
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest

Creatable = CreateTopicsRequest.CreatableTopic
Growing = CreatePartitionsRequest.CreatePartitionsTopic


class Cluster:
    """A cluster with the topic `there`, which has two partitions, and a controller whose new topics are usable
    immediately.
    """

    def __init__(self) -> None:
        self.created: list[tuple[Any, ...]] = []
        self.grown: list[tuple[Any, ...]] = []
        self.failing: dict[str, ErrorCode] = {}

    async def create_topic(self, name: str, partitions: int, replicas: int, *more: Any, validate_only: bool) -> Topic:
        if name in self.failing:
            raise KafkaError(self.failing[name], "as the test wants it")
        self.created.append((name, partitions, replicas, *more, validate_only))
        states = {index: PartitionState(tuple(range(replicas))) for index in range(partitions)}
        return Topic(name, topic_id(name), states)

    async def create_partitions(self, name: str, count: int, assignment: Any, validate_only: bool) -> Any:
        self.grown.append((name, count, assignment, validate_only))
        return SimpleNamespace(partitions=dict.fromkeys(range(count)))

    async def _at_once(self, *_: Any) -> None:
        pass

    async def ask(self, handler: Any, api: ApiKey, request: Any, refused: Any) -> Any:
        context = asked(
            api,
            7,
            refused=refused,
            image=image_with("there"),
            config=BrokerConfig.of({"num.partitions": "4"}),
            elector=SimpleNamespace(term=lambda: None),
            topics=self,
            metadata=SimpleNamespace(wait_for=self._at_once),
            replicas=SimpleNamespace(until_opened=self._at_once),
        )
        answer = await answered(handler.handle, request, context)
        await context.services.tasks.close()
        return answer

    async def create(self, *topics: Creatable, validate: bool = False, refused: Any = ()) -> Any:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate)
        return (await self.ask(create_topics, ApiKey.CREATE_TOPICS, request, refused)).topics

    async def grow(self, *topics: Growing, validate: bool = False, refused: Any = ()) -> dict[str, int]:
        request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate)
        answer = await self.ask(create_partitions, ApiKey.CREATE_PARTITIONS, request, refused)
        return {result.name: result.error_code for result in answer.results}


def topic(name: str, partitions: int = 1, replicas: int = 1, assigned: Any = None, **configs: str) -> Creatable:
    return Creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            Creatable.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assigned or [])
        ],
        configs=[Creatable.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


async def test_the_answer_to_a_creation_has_id_counts_and_settings() -> None:
    (result,) = await Cluster().create(topic("orders", 3, 2))
    assert (result.error_code, result.topic_id) == (ErrorCode.NONE, topic_id("orders"))
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    assert "retention.ms" in {config.name for config in result.configs}


async def test_minus_one_is_the_brokers_default() -> None:
    cluster = Cluster()
    await cluster.create(topic("orders", -1, -1))
    assert cluster.created == [("orders", 4, 1, {}, None, False)]


async def test_an_assignment_by_hand_stands_alone() -> None:
    cluster = Cluster()
    by_hand = [(0, [1, 2]), (1, [2, 1])]
    beside, twice, alone = await cluster.create(
        topic("beside", 2, -1, by_hand), topic("twice", -1, -1, [(0, [1]), (0, [2])]), topic("alone", -1, -1, by_hand)
    )
    assert beside.error_code == ErrorCode.INVALID_REQUEST
    assert twice.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert alone.error_code == ErrorCode.NONE
    assert [made[4] for made in cluster.created] == [{0: [1, 2], 1: [2, 1]}]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("orders", **{"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_each_created_topic_has_its_own_result(wanted: Creatable, code: ErrorCode) -> None:
    cluster = Cluster()
    refused, made = await cluster.create(wanted, topic("returns"))
    assert (refused.error_code, made.error_code) == (code, ErrorCode.NONE)
    assert [each[0] for each in cluster.created] == ["returns"]


async def test_a_refusal_by_the_controller_is_returned_with_its_reason() -> None:
    cluster = Cluster()
    cluster.failing["orders"] = ErrorCode.INVALID_REPLICATION_FACTOR
    (result,) = await cluster.create(topic("orders"))
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REPLICATION_FACTOR, "as the test wants it")


async def test_a_topic_that_is_named_twice_is_not_made() -> None:
    cluster = Cluster()
    results = await cluster.create(topic("orders"), topic("orders", 3))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.created == []


async def test_a_dry_run_has_no_id() -> None:
    cluster = Cluster()
    (result,) = await cluster.create(topic("orders", 3), validate=True)
    assert (result.error_code, result.topic_id, result.num_partitions) == (ErrorCode.NONE, bytes(16), 3)
    assert cluster.created[0][-1] is True


async def test_the_partitions_of_one_request_are_bounded() -> None:
    cluster = Cluster()
    results = await cluster.create(topic("orders", 9000), topic("returns", 9000))
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
    assert cluster.created == []


async def test_creating_topics_and_seeing_settings_need_rights() -> None:
    cluster = Cluster()
    denied, made = await cluster.create(
        topic("secret"), topic("orders"), refused={rules.CREATE_ANY_TOPIC, (rules.CREATE_TOPIC, "secret")}
    )
    assert (denied.error_code, made.error_code) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE)
    (hidden,) = await cluster.create(topic("returns"), refused={rules.CREATED_CONFIGS})
    assert (hidden.error_code, hidden.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (hidden.num_partitions, hidden.configs) == (-1, [])


async def test_each_growing_topic_has_its_own_result() -> None:
    cluster = Cluster()
    assigned = [Growing.CreatePartitionsAssignment(broker_ids=[2, 1])]
    codes = await cluster.grow(
        Growing(name="there", count=3, assignments=assigned),
        Growing(name="secret", count=3),
        refused={(rules.CREATE_PARTITIONS, "secret")},
    )
    assert codes == {"there": ErrorCode.NONE, "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert cluster.grown == [("there", 3, [[2, 1]], False)]


async def test_growing_a_topic_twice_or_by_too_much_is_refused() -> None:
    cluster = Cluster()
    assert await cluster.grow(Growing(name="there", count=3), Growing(name="there", count=4)) == {
        "there": ErrorCode.INVALID_REQUEST
    }
    assert await cluster.grow(Growing(name="there", count=20_000)) == {"there": ErrorCode.POLICY_VIOLATION}
    assert cluster.grown == []
