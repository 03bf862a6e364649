"""The effects of a session's end in the in-memory store: on the tree, on the session's broker, and on other brokers."""

from __future__ import annotations

import asyncio
import math

import pytest

from oncelog_broker.metadata.stores.in_memory import MemoryTree
from oncelog_broker.metadata.stores.store import NodeExists, SessionExpired, SessionState


async def test_an_ended_session_loses_its_lease_before_its_nodes_go_and_another_one_begins() -> None:
    tree = MemoryTree()
    ours, other = tree.connect(), tree.connect()
    await ours.create("/there", ephemeral=True)
    first, told = ours.session_id, []
    ours.watch_session(lambda state: told.append((state, tree.tree.node("/there") is not None)))
    tree.end(first)
    assert told == [(SessionState.LOST, True)], "nobody can have taken our place while we believed in it"
    assert ours.lease_until == -math.inf
    assert await other.exists("/there") is None
    with pytest.raises(SessionExpired):
        await ours.exists("/there")
    await asyncio.sleep(0)
    assert told[1:] == [(SessionState.CONNECTED, False)]
    assert ours.session_id not in (first, other.session_id)
    assert (await ours.create("/there", ephemeral=True)).ephemeral_owner == ours.session_id


async def test_a_write_of_an_ended_session_is_not_done_in_the_next_one() -> None:
    tree = MemoryTree()
    store = tree.connect()
    write = asyncio.ensure_future(store.create("/late"))
    await asyncio.sleep(0)  # wait until the write is in progress
    tree.end(store.session_id)
    with pytest.raises(SessionExpired):
        await write
    assert await store.exists("/late") is None


async def test_watchers_are_told_of_possibly_missed_changes_at_the_next_session() -> None:
    tree = MemoryTree()
    ours, seen = tree.connect(), list[str]()
    ours.watch("/brokers", seen.append)
    tree.end(ours.session_id)
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["/brokers"]


async def test_a_successor_with_the_key_ends_the_session_and_a_closed_store_begins_no_other() -> None:
    tree = MemoryTree()
    before, after = tree.connect(), tree.connect()
    await before.create("/place", ephemeral=True)
    with pytest.raises(NodeExists):
        await after.create("/place", ephemeral=True)
    key = before.session_key
    assert key is not None
    await after.end_session(key)
    await after.create("/place", ephemeral=True)
    await after.close()
    await asyncio.sleep(0)
    assert after.session is SessionState.LOST
    assert await before.exists("/place") is None
