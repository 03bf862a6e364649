import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oncelog.config import AdminConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import AuthorizationFailed, ClientClosed, ConnectionFailed, InvalidTopic, RequestTimedOut
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataRequest


def asked(broker: Any) -> list[list[str]]:
    """Return the topics that each Metadata request named."""
    return [[str(topic.name) for topic in request.topics] for request in broker.requests_of(MetadataRequest)]


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


@pytest.mark.virtual_time
async def test_a_topic_that_never_appears_is_an_error(metadata: Metadata) -> None:
    with pytest.raises(RequestTimedOut, match=r"topic 'none': no metadata within 0\.02 s"):
        await metadata.topic("none", 0.02)


async def test_an_unauthorized_topic_is_an_error_at_once(fake_broker: Any, metadata: Metadata) -> None:
    def deny(request: Any) -> Any:
        response = fake_broker.on_metadata(request)
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    fake_broker.handlers[MetadataRequest] = deny
    with pytest.raises(AuthorizationFailed, match="topic 'topic'"):
        await metadata.topic("topic", 5.0)


@pytest.mark.parametrize("name", ["", "x" * 250, None, b"bytes", "bad\ud800"])
async def test_a_name_that_cannot_be_asked_for_spoils_nothing(metadata: Metadata, name: Any) -> None:
    with pytest.raises(InvalidTopic):
        await metadata.topic(name, 5.0)
    assert (await metadata.topic("topic", 5.0)).name == "topic"


async def test_a_topic_that_was_not_found_is_not_asked_for_again(fake_broker: Any, metadata: Metadata) -> None:
    with pytest.raises(RequestTimedOut):
        await metadata.topic("none", 0.01)
    await metadata.refresh()  # this request may still name the topic
    await metadata.refresh()
    assert asked(fake_broker)[-1] == []


async def test_a_refresh_that_is_over_is_not_handed_out(fake_broker: Any, metadata: Metadata) -> None:
    for _ in range(3):
        # The end of the metadata task wakes this caller and runs the task's other callbacks in any order.
        await asyncio.wait([metadata._start()])
        task = metadata._start()
        assert not task.done()
        await task
    assert len(asked(fake_broker)) == 6


async def test_a_wait_for_a_topic_that_was_cancelled_leaves_nothing_behind(
    fake_broker: Any, metadata: Metadata
) -> None:
    waiting = asyncio.ensure_future(metadata.topic("none", 5.0))
    await fake_broker.received(MetadataRequest, 2)
    waiting.cancel()
    await asyncio.wait([waiting])
    await metadata.refresh()
    await metadata.refresh()
    assert asked(fake_broker)[-1] == []


async def test_a_cancelled_wait_for_a_topic_leaves_the_others_waiting(fake_broker: Any, metadata: Metadata) -> None:
    patient = asyncio.ensure_future(metadata.topic("late", 5.0))
    with pytest.raises(RequestTimedOut):
        await metadata.topic("late", 0.02)
    before = len(asked(fake_broker))
    await fake_broker.received(MetadataRequest, before + 5)
    assert all(names == ["late"] for names in asked(fake_broker)[before:])
    fake_broker.topics["late"] = 1
    assert len((await patient).partitions) == 1


async def test_waiting_for_a_topic_backs_off(fake_broker: Any) -> None:
    config = AdminConfig(bootstrap_servers=fake_broker.address, retry_backoff_ms=20, retry_backoff_max_ms=1_000)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    waits = [metadata.topic("none", timeout_s) for timeout_s in (0.05, 0.1, 0.3)]
    assert {type(error) for error in await asyncio.gather(*waits, return_exceptions=True)} == {RequestTimedOut}
    # Each of the three callers requests metadata at 0, 20, 60, 140 and 300 ms, or up to 20 % earlier; callers share
    # some requests.
    assert len(asked(fake_broker)) <= 3 * 6
    await metadata.close()
    await pool.close()


async def test_refreshes_that_do_not_help_are_asked_for_less_and_less_often(fake_broker: Any) -> None:
    config = AdminConfig(bootstrap_servers=fake_broker.address, retry_backoff_ms=5, retry_backoff_max_ms=10_000)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    metadata.listeners.append(metadata.request_refresh)
    began = asyncio.get_running_loop().time()
    metadata.request_refresh()
    await fake_broker.received(MetadataRequest, 6)
    took = asyncio.get_running_loop().time() - began
    assert took >= 0.8 * (0.005 + 0.010 + 0.020 + 0.040 + 0.080)
    await metadata.close()
    await pool.close()


async def test_a_topic_that_is_idle_is_forgotten(fake_broker: Any, fast: dict[str, int]) -> None:
    config = AdminConfig(bootstrap_servers=fake_broker.address, **fast)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config, max_idle_ms=60_000)
    fake_broker.topics["other"] = 1
    for name in ("topic", "other"):
        await metadata.topic(name, 5.0)
    metadata._used = {name: used - 61 for name, used in metadata._used.items()}
    metadata.use("other")
    cluster = await metadata.refresh()
    assert asked(fake_broker)[-1] == ["other"]
    assert list(cluster.topics) == ["other"]
    assert (await metadata.topic("topic", 5.0)).name == "topic"
    assert asked(fake_broker)[-1] == ["other", "topic"]
    await metadata.close()
    await pool.close()


@pytest.mark.virtual_time
@pytest.mark.parametrize("indexes", [[3_000_000], [-1], [0, 2], [0, 0], [1]])
async def test_partitions_that_cannot_be_are_no_topic(fake_broker: Any, metadata: Metadata, indexes: list[int]) -> None:
    def mad(request: Any) -> Any:
        response = fake_broker.on_metadata(request)
        for topic in response.topics:
            topic.partitions = [replace(topic.partitions[0], partition_index=index) for index in indexes]
        return response

    fake_broker.handlers[MetadataRequest] = mad
    with pytest.raises(RequestTimedOut, match=r"no metadata within .* partitions "):
        await metadata.topic("topic", 0.05)
    del fake_broker.handlers[MetadataRequest]
    assert list((await metadata.topic("topic", 5.0)).partitions) == [0]


@pytest.mark.parametrize(("host", "port"), [("nul\0", 9092), ("127.0.0.1", 70_000), ("x" * 300, 9092), ("", -1)])
async def test_a_broker_whose_address_is_none_cannot_be_reached(
    fake_broker: Any, metadata: Metadata, host: str, port: int
) -> None:
    def mad(request: Any) -> Any:
        response = fake_broker.on_metadata(request)
        (broker,) = response.brokers
        response.brokers = [broker, replace(broker, node_id=7, host=host, port=port)]
        return response

    fake_broker.handlers[MetadataRequest] = mad
    await metadata.refresh()
    with pytest.raises(ConnectionFailed):
        await metadata._pool.connection(7)
    assert (await metadata.topic("topic", 5.0)).name == "topic"


async def test_listeners_are_notified_of_refreshes_and_new_leaders(fake_broker: Any, metadata: Metadata) -> None:
    heard: list[int] = []
    metadata.listeners.append(lambda: heard.append(metadata.cluster.leader("topic", 0)))
    metadata.in_use.append(lambda: ["topic"])
    await metadata.refresh()
    await asyncio.sleep(0)
    assert heard == [1]
    metadata.learn_leader("topic", 0, 1, 99)
    metadata.learn_leader("topic", 0, 1, 98)
    assert heard == [1, 1]


async def test_old_metadata_is_refreshed(fake_broker: Any, fast: dict[str, int]) -> None:
    config = AdminConfig(bootstrap_servers=fake_broker.address, metadata_max_age_ms=5, **fast)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    twice = asyncio.Event()
    metadata.listeners.append(lambda: len(fake_broker.requests_of(MetadataRequest)) < 3 or twice.set())
    await metadata.refresh()
    await twice.wait()
    await metadata.close()
    await pool.close()


async def test_a_failed_refresh_is_retried(fake_broker: Any, metadata: Metadata) -> None:
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


async def test_closed_metadata_refuses_requests(metadata: Metadata) -> None:
    waiting = asyncio.ensure_future(metadata.refresh())
    await asyncio.sleep(0)
    await metadata.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled() or waiting.exception() is not None
    metadata.request_refresh()
    with pytest.raises(ClientClosed):
        await metadata.refresh()
