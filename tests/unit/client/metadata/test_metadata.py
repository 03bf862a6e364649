import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oncelog.config import AdminConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import AuthorizationFailed, ClientClosed, ConnectionFailed, InvalidTopic, RequestTimedOut
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataRequest


@pytest.fixture
async def metadata(fake_broker: Any, fast: dict[str, int]) -> AsyncIterator[Metadata]:
    config = AdminConfig(bootstrap_servers=fake_broker.address, **fast)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    yield metadata
    await metadata.close()
    await pool.close()


async def test_refreshes_that_are_asked_for_together_are_one(fake_broker: Any, metadata: Metadata) -> None:
    await asyncio.gather(*(metadata.refresh() for _ in range(5)))
    assert len(fake_broker.requests_of(MetadataRequest)) == 1
    assert metadata.cluster.cluster_id == "cluster"


async def test_a_topic_that_was_not_in_the_refresh_under_way_is_asked_for_by_the_next(metadata: Metadata) -> None:
    refreshing = asyncio.ensure_future(metadata.refresh())
    await asyncio.sleep(0)
    assert list((await metadata.topic("topic", 5.0)).partitions) == [0]
    await refreshing


async def test_a_topic_that_is_being_made_is_waited_for(fake_broker: Any, metadata: Metadata) -> None:
    waiting = asyncio.ensure_future(metadata.topic("late", 5.0))
    await asyncio.sleep(0.01)
    fake_broker.topics["late"] = 2
    assert len((await waiting).partitions) == 2


async def test_a_topic_that_never_comes(metadata: Metadata) -> None:
    with pytest.raises(RequestTimedOut, match=r"topic 'none': no metadata within 0\.02 s"):
        await metadata.topic("none", 0.02)


async def test_a_topic_that_we_may_not_see_is_an_error_at_once(fake_broker: Any, metadata: Metadata) -> None:
    def deny(request: Any) -> Any:
        response = fake_broker.on_metadata(request)
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    fake_broker.handlers[MetadataRequest] = deny
    with pytest.raises(AuthorizationFailed, match="topic 'topic'"):
        await metadata.topic("topic", 5.0)


@pytest.mark.parametrize("name", ["", "x" * 250, None, b"bytes"])
async def test_a_name_that_cannot_be_asked_for_spoils_nothing(metadata: Metadata, name: Any) -> None:
    with pytest.raises(InvalidTopic):
        await metadata.topic(name, 5.0)
    assert (await metadata.topic("topic", 5.0)).name == "topic"


async def test_a_topic_that_was_not_found_is_not_asked_for_again(fake_broker: Any, metadata: Metadata) -> None:
    with pytest.raises(RequestTimedOut):
        await metadata.topic("none", 0.01)
    await metadata.refresh()
    await metadata.refresh()
    assert fake_broker.requests_of(MetadataRequest)[-1].topics == []


async def test_listeners_hear_of_refreshes_and_of_new_leaders(fake_broker: Any, metadata: Metadata) -> None:
    heard: list[int] = []
    metadata.listeners.append(lambda: heard.append(metadata.cluster.leader("topic", 0)))
    metadata.track(["topic"])
    await metadata.refresh()
    await asyncio.sleep(0)
    assert heard == [1]
    metadata.learn_leader("topic", 0, 1, 99)
    metadata.learn_leader("topic", 0, 1, 98)
    assert heard == [1, 1]


async def test_what_is_old_is_refreshed(fake_broker: Any, fast: dict[str, int]) -> None:
    config = AdminConfig(bootstrap_servers=fake_broker.address, metadata_max_age_ms=5, **fast)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    twice = asyncio.Event()
    metadata.listeners.append(lambda: len(fake_broker.requests_of(MetadataRequest)) < 3 or twice.set())
    await metadata.refresh()
    await twice.wait()
    await metadata.close()
    await pool.close()


async def test_a_failed_refresh_is_tried_again(fake_broker: Any, metadata: Metadata) -> None:
    refreshed = asyncio.Event()
    metadata.listeners.append(refreshed.set)
    await fake_broker.stop()
    with pytest.raises(ConnectionFailed):
        await metadata.refresh()
    await metadata.try_refresh()
    await fake_broker.start()
    await refreshed.wait()
    assert metadata.cluster.brokers


async def test_a_cluster_that_is_another_one_is_learned_anew(fake_broker: Any, metadata: Metadata) -> None:
    await metadata.refresh()

    def start_over(request: Any) -> Any:
        response = fake_broker.on_metadata(request)
        response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
        return response

    fake_broker.handlers[MetadataRequest] = start_over
    with pytest.raises(Exception, match="REBOOTSTRAP_REQUIRED"):
        await metadata.refresh()
    assert metadata.cluster.brokers == {}


async def test_closed_is_closed(metadata: Metadata) -> None:
    waiting = asyncio.ensure_future(metadata.refresh())
    await asyncio.sleep(0)
    await metadata.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled() or waiting.exception() is not None
    metadata.request_refresh()
    with pytest.raises(ClientClosed):
        await metadata.refresh()
