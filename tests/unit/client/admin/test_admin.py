import asyncio
from typing import Any

import pytest

from oncelog import Admin, NewTopic, TopicPartition
from oncelog.admin.resources import ConfigResource, ResourceType, by_node
from oncelog.errors import ClientClosed, PartialFailure, RequestTimedOut, StaleMetadata, TopicAlreadyExists
from oncelog.metadata.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse


def created(broker: Any, *codes_first: int) -> Any:
    codes = list(codes_first)

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        code = codes.pop(0) if codes else 0
        results = []
        for topic in request.topics:
            topic_code = code or (ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in broker.topics else 0)
            if not topic_code and not request.validate_only:
                broker.topics[topic.name] = topic.num_partitions
            results.append(
                CreateTopicsResponse.CreatableTopicResult(
                    name=topic.name, error_code=topic_code, error_message=None, num_partitions=topic.num_partitions
                )
            )
        return CreateTopicsResponse(topics=results)

    return create


async def test_topics_are_made_described_and_listed(fake_broker: Any) -> None:
    fake_broker.handlers[CreateTopicsRequest] = created(fake_broker)
    async with Admin(fake_broker.address) as admin:
        made = await admin.create_topics([NewTopic("a", 3, 1, configs={"retention.ms": "5"})])
        assert made["a"].num_partitions == 3
        assert await admin.list_topics() == ["a", "topic"]
        assert len((await admin.describe_topics(["a"]))["a"].partitions) == 3
        assert (await admin.describe_cluster()).cluster_id == "cluster"
    (request,) = fake_broker.requests_of(CreateTopicsRequest)
    assert request.topics[0].configs[0].name == "retention.ms"


async def test_replicas_may_be_placed_by_hand(fake_broker: Any) -> None:
    fake_broker.handlers[CreateTopicsRequest] = created(fake_broker)
    async with Admin(fake_broker.address) as admin:
        await admin.create_topics([NewTopic("a", replica_assignments={0: [1], 1: [1]})], validate_only=True)
    (request,) = fake_broker.requests_of(CreateTopicsRequest)
    assert [place.broker_ids for place in request.topics[0].assignments] == [[1], [1]]
    assert (request.topics[0].num_partitions, request.validate_only) == (-1, True)


async def test_a_single_error_is_raised_itself_and_several_together(fake_broker: Any) -> None:
    fake_broker.handlers[CreateTopicsRequest] = created(fake_broker)
    async with Admin(fake_broker.address) as admin:
        with pytest.raises(TopicAlreadyExists, match="topic"):
            await admin.create_topics([NewTopic("topic", 1, 1)])
        with pytest.raises(PartialFailure) as raised:
            await admin.create_topics([NewTopic("topic", 1, 1), NewTopic("b", 1, 1)])
        with pytest.raises(StaleMetadata, match="none"):
            await admin.describe_topics(["none"])
    assert list(raised.value.results) == ["b"]
    assert isinstance(raised.value.errors["topic"], TopicAlreadyExists)


async def test_a_moved_controller_is_looked_up_again(fake_broker: Any, fast: dict[str, int]) -> None:
    fake_broker.handlers[CreateTopicsRequest] = created(fake_broker, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER)
    async with Admin(fake_broker.address, **fast) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])
    assert len(fake_broker.requests_of(CreateTopicsRequest)) == 3


async def test_a_call_ends_in_time(fake_broker: Any, fast: dict[str, int]) -> None:
    fake_broker.handlers[CreateTopicsRequest] = lambda request: None
    async with Admin(fake_broker.address, **fast, default_api_timeout_ms=20) as admin:
        with pytest.raises(RequestTimedOut):
            await admin.create_topics([NewTopic("a", 1, 1)])


@pytest.mark.virtual_time
async def test_partitions_are_asked_of_their_leaders_again_where_they_moved(
    fake_broker: Any, fast: dict[str, int]
) -> None:
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    def delete(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        code = codes.pop() if codes else 0
        result = DeleteRecordsResponse.DeleteRecordsTopicResult
        return DeleteRecordsResponse(
            topics=[
                result(
                    name=topic.name,
                    partitions=[
                        result.DeleteRecordsPartitionResult(
                            partition_index=wanted.partition_index, low_watermark=wanted.offset, error_code=code
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    fake_broker.handlers[DeleteRecordsRequest] = delete
    here, nowhere = TopicPartition("topic", 0), TopicPartition("topic", 9)
    async with Admin(fake_broker.address, **fast) as admin:
        assert await admin.delete_records({here: 4}) == {here: 4}
        with pytest.raises(PartialFailure) as raised:
            await admin.delete_records({here: 4, nowhere: 1}, timeout_ms=30)
    assert raised.value.results == {here: 4}
    assert "topic-9" in str(raised.value)


async def test_offsets_of_partitions_are_listed(fake_broker: Any) -> None:
    here = TopicPartition("topic", 0)
    async with Admin(fake_broker.address) as admin:
        assert (await admin.list_offsets({here: LATEST_TIMESTAMP}))[here].offset == 0
        assert (await admin.list_offsets({here: EARLIEST_TIMESTAMP}))[here].offset == 0


async def test_a_topic_lives_through_all_admin_calls(fake_broker: Any) -> None:
    admin = Admin(fake_broker.address)
    with pytest.raises(ClientClosed, match="not started"):
        await admin.list_topics()
    await admin.start()
    listing = asyncio.ensure_future(admin.list_topics())
    assert await listing == ["topic"]
    await admin.close()
    await admin.close()
    with pytest.raises(ClientClosed, match="is closed"):
        await admin.list_topics()


async def test_a_topic_that_does_not_exist_is_named(fake_broker: Any) -> None:
    async with Admin(fake_broker.address) as admin:
        with pytest.raises(StaleMetadata, match="nosuch: unknown topic"):
            await admin.describe_topics(["nosuch"])


def test_resources_are_named_in_words() -> None:
    resources = ConfigResource.topic("t"), ConfigResource.broker(1), ConfigResource.broker()
    assert [f"{resource}" for resource in resources] == ["topic t", "broker 1", "broker default"]


async def test_a_single_name_is_not_a_list_of_letters(fake_broker: Any) -> None:
    async with Admin(fake_broker.address) as admin:
        for call in (admin.delete_topics, admin.describe_topics):
            with pytest.raises(TypeError, match=r"a list of names, such as \['orders'\]"):
                await call("orders")


def test_the_configuration_of_a_broker_is_asked_of_that_broker() -> None:
    resources = [ConfigResource.topic("t"), ConfigResource.broker(3), ConfigResource.broker()]
    assert by_node(resources) == {-1: [resources[0], resources[2]], 3: [resources[1]]}
    assert resources[0].type is ResourceType.TOPIC
