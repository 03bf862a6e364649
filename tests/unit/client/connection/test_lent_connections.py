"""Pools that borrow the connections of another pool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog.cluster import Broker, Cluster, Topic
from oncelog.config import AdminConfig, ProducerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ClientClosed, ConfigError, ConnectionFailed
from oncelog_protocol.messages.metadata import MetadataRequest

REQUEST = MetadataRequest(topics=[])


def lender_for(broker: Any, fast: dict[str, int]) -> ConnectionPool:
    pool = ConnectionPool(AdminConfig(bootstrap_servers=broker.address, **fast))
    pool.cluster = Cluster("cluster", 1, {1: Broker(1, "127.0.0.1", broker.port)}, {"topic": Topic("topic")})
    return pool


def borrower_of(lender: ConnectionPool, broker: Any, fast: dict[str, int]) -> ConnectionPool:
    return lender.lend(ProducerConfig(bootstrap_servers=broker.address, **fast))


async def test_borrower_and_lender_use_one_connection(fake_broker: Any, fast: dict[str, int]) -> None:
    lender = lender_for(fake_broker, fast)
    first = borrower_of(lender, fake_broker, fast)
    opened = await first.connection(1)  # the borrower may also be the first to connect
    second = borrower_of(lender, fake_broker, fast)
    assert opened is lender.ready(1) is second.ready(1)
    assert first.open_connections == second.open_connections == 1
    await second.send(1, REQUEST)
    await first.ask_any(REQUEST)
    assert fake_broker.connections == 1
    await lender.close()


async def test_a_borrower_knows_the_brokers_and_has_a_cluster_of_its_own(
    fake_broker: Any, fast: dict[str, int]
) -> None:
    lender = lender_for(fake_broker, fast)
    borrower = borrower_of(lender, fake_broker, fast)
    assert borrower.cluster.brokers == lender.cluster.brokers
    assert not borrower.cluster.topics
    borrower.start_over()
    assert lender.cluster.brokers
    await lender.close()


async def test_a_borrower_is_closed_alone(fake_broker: Any, fast: dict[str, int]) -> None:
    """The requests of the other clients are answered, and also the borrower's request in flight."""
    lender = lender_for(fake_broker, fast)
    borrower = borrower_of(lender, fake_broker, fast)
    connection = await borrower.connection(1)
    waiting = [asyncio.ensure_future(pool.send(1, REQUEST)) for pool in (lender, borrower)]
    await asyncio.sleep(0)
    assert connection.in_flight == 2
    await borrower.finish()
    await borrower.close()
    assert [(await each).cluster_id for each in waiting] == ["cluster"] * 2
    assert borrower.ready(1) is None
    with pytest.raises(ClientClosed):
        await borrower.send(1, REQUEST)
    assert lender.ready(1) is connection
    await lender.send(1, REQUEST)
    assert fake_broker.connections == 1
    await lender.close()


async def test_a_borrower_does_not_wait_for_throttled_requests_of_other_clients(
    fake_broker: Any, fast: dict[str, int]
) -> None:
    lender = lender_for(fake_broker, fast)
    borrower = borrower_of(lender, fake_broker, fast)

    def throttling(request: MetadataRequest) -> Any:
        response = fake_broker.on_metadata(request)
        response.throttle_time_ms = 60_000
        return response

    fake_broker.handlers[MetadataRequest] = throttling
    await borrower.send(1, REQUEST)
    held = asyncio.ensure_future(lender.send(1, REQUEST))
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await borrower.finish()
    assert not held.done()
    assert lender.open_connections == 1
    await lender.close()
    with pytest.raises((ClientClosed, ConnectionFailed)):
        await held


async def test_a_lender_that_closes_ends_the_requests_of_borrowers(fake_broker: Any, fast: dict[str, int]) -> None:
    asked = asyncio.Event()
    fake_broker.handlers[MetadataRequest] = lambda request: asked.set()
    lender = lender_for(fake_broker, fast)
    borrower = borrower_of(lender, fake_broker, fast)
    waiting = asyncio.ensure_future(borrower.send(1, REQUEST))
    await asked.wait()
    await lender.close()
    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await borrower.connection(1)
    with pytest.raises(ClientClosed):
        borrower_of(lender, fake_broker, fast)
    await borrower.close()


async def test_a_lost_connection_is_made_again_for_all(fake_broker: Any, fast: dict[str, int]) -> None:
    lender = lender_for(fake_broker, fast)
    borrower = borrower_of(lender, fake_broker, fast)
    lost = await lender.connection(1)
    fake_broker.hang_up()
    with pytest.raises(ConnectionFailed):
        while lost.is_open:
            await borrower.send(1, REQUEST)
        raise ConnectionFailed("lost between two requests")
    assert (await borrower.connection(1)) is (await lender.connection(1))
    assert fake_broker.connections == 2
    await lender.close()


async def test_the_least_recently_used_broker_is_known_to_all(fake_broker: Any, fast: dict[str, int]) -> None:
    """A request that must go elsewhere goes to the broker that no client has asked, not only this borrower."""
    lender = lender_for(fake_broker, fast)
    other = Broker(2, "localhost", fake_broker.port)
    lender.cluster = lender.cluster.with_brokers([other])
    for node_id in (1, 2):
        await lender.connection(node_id)
    borrower = borrower_of(lender, fake_broker, fast)
    asked = [await pool.any_connection(elsewhere=True) for pool in (lender, lender, borrower, lender, borrower)]
    assert asked[0] is not asked[1]
    assert asked == [asked[0], asked[1], asked[0], asked[1], asked[0]]
    await lender.close()


@pytest.mark.parametrize(
    ("option", "value"),
    [("client_id", "another"), ("request_timeout_ms", 77), ("bootstrap_servers", "127.0.0.1:1"), ("ssl_cafile", "x")],
)
async def test_a_borrower_has_the_same_options(fake_broker: Any, option: str, value: Any) -> None:
    """One connection has one client id, one login and one timeout."""
    lender = ConnectionPool(AdminConfig(bootstrap_servers=fake_broker.address))
    options = {"bootstrap_servers": fake_broker.address} | {option: value}
    with pytest.raises(ConfigError, match=option):
        lender.lend(ProducerConfig(**options))
    await lender.close()
