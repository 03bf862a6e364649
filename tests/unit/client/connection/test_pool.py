import asyncio
from typing import Any

import pytest

from oncelog.cluster import Broker, Cluster
from oncelog.config import AdminConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ClientClosed, ConnectionFailed
from oncelog_protocol.messages.metadata import MetadataRequest

REQUEST = MetadataRequest(topics=[])


def pool_for(broker: Any, fast: dict[str, int]) -> ConnectionPool:
    pool = ConnectionPool(AdminConfig(bootstrap_servers=f"127.0.0.1:1,{broker.address}", **fast))
    pool.cluster = Cluster(brokers={1: Broker(1, "127.0.0.1", broker.port)})
    return pool


async def test_bootstrap_servers_that_are_down_are_skipped(fake_broker: Any, fast: dict[str, int]) -> None:
    pool = ConnectionPool(AdminConfig(bootstrap_servers=f"127.0.0.1:1,{fake_broker.address}", **fast))
    assert (await pool.send_to_any(REQUEST)).cluster_id == "cluster"
    await pool.close()


async def test_the_error_names_all_servers_that_are_down(fast: dict[str, int]) -> None:
    pool = ConnectionPool(AdminConfig(bootstrap_servers="127.0.0.1:1,127.0.0.1:2", **fast))
    with pytest.raises(ConnectionFailed, match=r"no broker can be reached: 127\.0\.0\.1:1: .*127\.0\.0\.1:2: "):
        await pool.send_to_any(REQUEST)
    await pool.close()


async def test_there_is_one_connection_per_node(fake_broker: Any, fast: dict[str, int]) -> None:
    pool = pool_for(fake_broker, fast)
    assert pool.ready(1) is None
    first, second = await asyncio.gather(pool.connection(1), pool.connection(1))
    assert first is second is pool.ready(1)
    assert fake_broker.connections == 1
    await pool.close()


async def test_a_lost_connection_is_made_again(fake_broker: Any, fast: dict[str, int]) -> None:
    pool = pool_for(fake_broker, fast)
    await pool.send(1, REQUEST)
    fake_broker.hang_up()
    with pytest.raises(ConnectionFailed):
        while True:
            await pool.send(1, REQUEST)
            if fake_broker.connections > 1:
                raise ConnectionFailed("reconnected")
    await pool.send(1, REQUEST)
    assert fake_broker.connections == 2
    await pool.close()


async def test_a_cancelled_caller_leaves_the_connection_to_the_others(fake_broker: Any, fast: dict[str, int]) -> None:
    pool = pool_for(fake_broker, fast)
    impatient = asyncio.ensure_future(pool.connection(1))
    patient = asyncio.ensure_future(pool.connection(1))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).is_open
    await pool.close()


async def test_close_fails_requests_in_flight(fake_broker: Any, fast: dict[str, int]) -> None:
    asked = asyncio.Event()
    fake_broker.handlers[MetadataRequest] = lambda request: asked.set()
    pool = pool_for(fake_broker, fast)
    waiting = asyncio.ensure_future(pool.send(1, REQUEST))
    await asked.wait()
    await pool.close()
    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await pool.connection(1)


async def test_close_ends_an_attempt_to_connect(fast: dict[str, int]) -> None:
    pool = ConnectionPool(
        AdminConfig(bootstrap_servers="127.0.0.1:1", reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    )
    with pytest.raises(ConnectionFailed):
        await pool.any_connection()
    waiting = asyncio.ensure_future(pool.any_connection())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(ClientClosed):
        await waiting


async def test_an_unknown_node_is_an_error(fake_broker: Any, fast: dict[str, int]) -> None:
    with pytest.raises(ConnectionFailed, match="node 7"):
        await pool_for(fake_broker, fast).connection(7)
