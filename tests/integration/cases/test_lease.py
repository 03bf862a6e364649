"""Tests a broker's lease (the time for which its ZooKeeper session certainly lasts) on a real ensemble: the lease ends
before ZooKeeper removes the broker's node, whichever server dies.
"""

from __future__ import annotations

import asyncio
import math
import queue
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from foreign_clients import eventually
from kazoo.client import KazooClient

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.metadata.stores.lease import HEARTBEAT_SHARE
from oncelog_broker.metadata.stores.store import ConnectionLost
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_broker.runtime.clock import SystemClock

SESSION_SECONDS = 1.5
"""The session timeout, which is six ticks of the ensemble, so the session of a silent client ends at most a sixth of
the timeout too late.
"""
CLOCK = SystemClock()


@contextmanager
def witness_at(server: str, path: str) -> Iterator[queue.Queue[float]]:
    """Yield a queue that receives the local time at which `server` reports that the node is gone."""
    gone: queue.Queue[float] = queue.Queue()
    client = KazooClient(server, timeout=30)
    client.start(30)
    try:
        eventually(lambda: client.exists(path, watch=lambda _: gone.put(CLOCK.uptime())), "the node is known here")
        yield gone
    finally:
        client.stop()
        client.close()


async def next_heartbeat(store: ZooKeeperStore) -> None:
    """Wait until the response to a heartbeat has extended the lease."""
    before = store.lease_until
    async with asyncio.timeout(30):
        while store.lease_until <= before:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


async def margin(ensemble: Ensemble, follower: int, leader: int, seconds: float) -> float | None:
    """Kill the follower `seconds` after a heartbeat, and return for how many seconds the broker's node remains after
    the end of the lease. Returns None if the session had already been lost before the kill, because the machine was
    blocked.
    """
    path = f"/c7-{uuid.uuid4().hex}"
    store = await ZooKeeperStore.open(ensemble.server(follower).address, session_timeout=SESSION_SECONDS)
    try:
        session = store.session_id
        await store.create(path, ephemeral=True)
        with witness_at(ensemble.server(leader).address, path) as gone:
            await next_heartbeat(store)
            await asyncio.sleep(seconds)
            if store.session_id != session or not gone.empty():
                return None
            until = store.lease_until
            ensemble.server(follower).kill()
            until = max(until, store.lease_until)
            return None if until == -math.inf else await asyncio.to_thread(gone.get, timeout=30) - until
    except ConnectionLost:
        return None
    finally:
        await store.close()
        if not ensemble.server(follower).is_running:
            ensemble.restart(follower)


@pytest.mark.parametrize("times", [2, pytest.param(60, marks=pytest.mark.soak)])
async def test_c7_the_lease_ends_before_the_session_when_the_follower_dies_that_answered(
    ensemble: Ensemble, times: int
) -> None:
    """The ensemble's leader measures the session timeout from the last heartbeat that reached it, which may be older
    than the broker's last heartbeat.
    """
    moments = random.Random(7)
    margins: list[float] = []
    for _ in range(10 * times):
        leader = ensemble.leader
        assert leader is not None
        follower = next(each for each in (1, 2, 3) if each != leader)
        # In the first round the follower is killed immediately after a heartbeat, in later rounds at a random time
        # before the next heartbeat.
        seconds = moments.uniform(0, HEARTBEAT_SHARE * SESSION_SECONDS) if margins else 0
        found = await margin(ensemble, follower, leader, seconds)
        margins += [] if found is None else [found]
        if len(margins) == times:
            break
    assert len(margins) == times
    assert min(margins) > 0, margins
