"""The lease on a real ensemble: it ends before ZooKeeper gives our place away, whichever server dies under us."""

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
from oncelog_broker.metadata.lease import HEARTBEAT_SHARE
from oncelog_broker.metadata.zookeeper import ZooKeeperStore
from oncelog_broker.runtime.clock import SystemClock

SESSION_SECONDS = 1.5
"""Six ticks of the ensemble: a session that nobody hears of ends a sixth of this too late at most."""
CLOCK = SystemClock()


@contextmanager
def witness_at(server: str, path: str) -> Iterator[queue.Queue[float]]:
    """Says when the node was gone, by our clock: the time at which `server` tells of it."""
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
    """Return in the turn in which an answered heartbeat has lengthened the lease."""
    before = store.lease_until
    async with asyncio.timeout(30):
        while store.lease_until <= before:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("times", [2, pytest.param(60, marks=pytest.mark.soak)])
async def test_c7_the_lease_ends_before_the_session_when_the_follower_dies_that_answered(
    ensemble: Ensemble, times: int
) -> None:
    """The ensemble's leader counts from a heartbeat that it has heard of, which may be an older one than ours."""
    moments = random.Random(7)
    margins = []
    for number in range(times):
        leader = ensemble.leader
        assert leader is not None
        follower = next(each for each in (1, 2, 3) if each != leader)
        path = f"/c7-{uuid.uuid4().hex}"
        store = await ZooKeeperStore.open(ensemble.server(follower).address, session_timeout=SESSION_SECONDS)
        try:
            await store.create(path, ephemeral=True)
            with witness_at(ensemble.server(leader).address, path) as gone:
                await next_heartbeat(store)
                # At once the first time, then anywhere up to the next heartbeat.
                await asyncio.sleep(moments.uniform(0, HEARTBEAT_SHARE * SESSION_SECONDS) if number else 0)
                until = store.lease_until
                ensemble.server(follower).kill()
                until = max(until, store.lease_until)
                assert until > -math.inf
                margins.append(await asyncio.to_thread(gone.get, timeout=30) - until)
        finally:
            await store.close()
        ensemble.restart(follower)
    assert min(margins) > 0, margins
