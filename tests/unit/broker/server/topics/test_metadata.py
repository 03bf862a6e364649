"""Metadata returns all topics or some, by name or id; it creates missing topics, and hides topics that the client may
not see.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with, topic_id

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics import metadata
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.metadata import MetadataRequest

Topic = MetadataRequest.MetadataRequestTopic
IMAGE = image_with("orders", CONSUMER_OFFSETS)


class Creating:
    """Records the topics to be created; with a `code` the creation fails."""

    def __init__(self, code: ErrorCode | None = None) -> None:
        self.code = code
        self.names: list[str] = []

    async def __call__(self, name: str) -> None:
        self.names.append(name)
        if self.code is not None:
            raise KafkaError(self.code)


async def ask(
    *topics: Topic,
    version: int = 12,
    every: bool = False,
    create: Creating | None = None,
    creates: bool = False,
    refused: Any = (),
    **settings: str,
) -> Any:
    request = MetadataRequest(topics=None if every else list(topics), allow_auto_topic_creation=creates)
    context = asked(
        ApiKey.METADATA,
        version,
        refused=refused,
        image=IMAGE,
        config=BrokerConfig.of({key.replace("_", "."): value for key, value in settings.items()}),
        create_topic=create or Creating(),
    )
    answer = await answered(metadata.handle, request, context)
    await context.services.tasks.close()
    return answer


def codes(answer: Any) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


async def test_metadata_has_brokers_topics_and_leaders() -> None:
    answer = await ask(Topic(name="orders"))
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
        (1, "host-1", 9092),
        (2, "host-2", 9092),
    ]
    assert (answer.controller_id, answer.cluster_id) == (1, "cluster")
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("orders", topic_id("orders"), False)
    assert [(each.partition_index, each.leader_id, each.leader_epoch) for each in topic.partitions] == [
        (0, 1, 3),
        (1, 1, 3),
    ]


async def test_metadata_of_all_topics_or_none_is_returned() -> None:
    everything = {"orders": 0, CONSUMER_OFFSETS: 0}
    assert codes(await ask(every=True)) == everything
    assert codes(await ask(version=0)) == everything
    assert codes(await ask(version=1)) == {}
    assert {topic.name for topic in (await ask(every=True)).topics if topic.is_internal} == {CONSUMER_OFFSETS}


async def test_metadata_is_requested_by_topic_id() -> None:
    answer = await ask(Topic(topic_id=topic_id("orders"), name=None), Topic(topic_id=b"x" * 16, name=None))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    older = await ask(Topic(topic_id=topic_id("orders"), name=""), version=11)
    assert [topic.error_code for topic in older.topics] == [ErrorCode.INVALID_REQUEST]


async def test_missing_topics_and_illegal_names_are_refused() -> None:
    answer = await ask(Topic(name="missing"), Topic(name="a/b"), Topic(name="missing"))
    assert codes(answer) == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert len(answer.topics) == 2, "each once"


@pytest.mark.parametrize(
    ("version", "creates", "enabled", "created"),
    [
        (12, True, "true", ["missing"]),
        (12, False, "true", []),
        (12, True, "false", []),
        (3, False, "true", ["missing"]),  # before v4 requests could not disable the creation
    ],
)
async def test_topics_are_created_if_request_and_broker_allow_it(
    version: int, creates: bool, enabled: str, created: list[str]
) -> None:
    create = Creating()
    topics = (Topic(name="missing"), Topic(name="orders"))
    await ask(*topics, version=version, creates=creates, create=create, auto_create_topics_enable=enabled)
    assert create.names == created


async def test_a_failed_creation_is_reported_with_the_reason() -> None:
    create = Creating(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert codes(await ask(Topic(name="missing"), creates=True, create=create)) == {
        "missing": ErrorCode.INVALID_REPLICATION_FACTOR
    }


async def test_an_unauthorized_user_does_not_learn_whether_a_topic_exists() -> None:
    create = Creating()
    secret = {(rules.METADATA, "orders"), (rules.METADATA, "missing")}
    answer = await ask(Topic(name="orders"), Topic(name="missing"), creates=True, create=create, refused=secret)
    assert codes(answer) == dict.fromkeys(("orders", "missing"), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert {(topic.topic_id, len(topic.partitions)) for topic in answer.topics} == {(bytes(16), 0)}
    assert create.names == []
    assert codes(await ask(every=True, refused={(rules.METADATA_OF_ALL, "orders")})) == {CONSUMER_OFFSETS: 0}


async def test_creating_a_topic_by_metadata_needs_the_right() -> None:
    create = Creating()
    answer = await ask(
        Topic(name="missing"),
        creates=True,
        create=create,
        refused={rules.METADATA_CREATE_ANY, (rules.METADATA_CREATE, "missing")},
    )
    assert codes(answer) == {"missing": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert create.names == []
