"""The simulated ZooKeeper ensemble fulfils the contract of metadata stores, and fails like a real one."""

import asyncio
import inspect

import pytest
from tests.unit.broker.metadata.stores import test_store_contract as contract
from tests.unit.simulation.worlds import play

from oncelog_broker.metadata.stores.store import ConnectionLost, NodeExists, SessionState, StoreUnavailable
from oncelog_simulation.sessions import EnsembleOpening

CONTRACT = {
    name: function
    for name, function in vars(contract).items()
    if name.startswith("test_") and list(inspect.signature(function).parameters) == ["store"]
}
TIMEOUT = 4.0


async def with_store(world, name, use):
    """Return the result of `use`, called with the store of a new process."""
    process = world.process(name)
    store = await world.loop.spawn(process, EnsembleOpening(world.store, process, TIMEOUT).open("", process.clock))
    return store, process, await world.loop.spawn(process, use(store))


async def nothing(store):
    pass


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", CONTRACT)
def test_the_simulated_ensemble_keeps_the_store_contract(name, seed):
    async def scene(world):
        await with_store(world, "broker", CONTRACT[name])

    play(scene, seed)


def test_a_session_ends_when_its_process_is_silent_and_its_owner_learns_of_it_late():
    async def scene(world):
        states = []

        async def make(store):
            store.watch_session(states.append)
            await store.create("/here", ephemeral=True)

        store, process, _ = await with_store(world, "one", make)
        world.loop.pause(process)
        await asyncio.sleep(TIMEOUT * 2)
        assert world.store.tree.node("/here") is None
        assert store.session is SessionState.CONNECTED, "it was stopped, so it cannot know"
        assert store.lease_until < process.clock.uptime(), "but its lease has ended by the clock"
        world.loop.resume(process)
        await asyncio.sleep(TIMEOUT)
        assert SessionState.LOST in states
        assert states[-1] is SessionState.CONNECTED

    play(scene)


def test_the_lease_ends_before_the_session_when_the_store_cannot_be_reached():
    async def scene(world):
        ended = {}

        async def make(store):
            store.watch_session(lambda state: ended.setdefault(state, world.now))
            await store.create("/here", ephemeral=True)

        await with_store(world, "one", make)
        for server in world.store.servers:
            world.network.cut("one", server.host.name)
            world.network.cut(server.host.name, "one")
        world.store.on_ended = lambda session_id, why: ended.setdefault(why, world.now)
        await asyncio.sleep(TIMEOUT * 3)
        assert ended[SessionState.IN_DOUBT] < ended["expired"]

    play(scene)


def test_a_session_ends_when_only_the_answers_of_the_store_are_lost():
    async def scene(world):
        ended = asyncio.get_running_loop().create_future()
        world.store.on_ended = lambda session_id, why: ended.set_result(why)
        await with_store(world, "one", nothing)
        for server in world.store.servers:
            world.network.cut(server.host.name, "one")
        assert await asyncio.wait_for(ended, TIMEOUT * 4) == "expired"

    play(scene)


def test_a_write_whose_answer_is_lost_has_been_done():
    async def scene(world):
        lost = 0

        async def write(store):
            nonlocal lost
            for number in range(40):
                try:
                    await store.create(f"/n{number}")
                except StoreUnavailable:
                    lost += world.store.tree.node(f"/n{number}") is not None
                    await asyncio.sleep(0.5)

        async def break_connections():
            while True:
                await asyncio.sleep(0.02)
                world.store.drop_connections(0.5)

        breaking = asyncio.create_task(break_connections())
        await with_store(world, "one", write)
        breaking.cancel()
        assert lost

    play(scene)


def test_servers_disagree_for_a_while_and_a_session_never_sees_an_older_tree():
    async def scene(world):
        readers = [await with_store(world, f"reader-{number}", nothing) for number in range(6)]
        writer, writing, _ = await with_store(world, "writer", nothing)
        for server in world.store.servers:
            if all(connection.session_id != writer.session_id for connection in server.connections):
                server.lag = 3.0

        async def write(store):
            for number in range(20):
                await store.create(f"/n{number}")

        await world.loop.spawn(writing, write(writer))

        async def count(store):
            return len(await store.children("/"))

        async def counts():
            return [await world.loop.spawn(process, count(store)) for store, process, _ in readers]

        first = await counts()
        assert len(set(first)) > 1
        world.store.drop_connections(1.0)
        await asyncio.sleep(0.3)
        for before, (store, process, _) in zip(first, readers, strict=True):
            try:
                assert await world.loop.spawn(process, count(store)) >= before
            except ConnectionLost:
                pass  # the store is not connected again yet

    play(scene)


def test_nothing_is_served_without_a_quorum_and_sessions_live_on_with_the_next():
    async def scene(world):
        async def make(store):
            await store.create("/here", ephemeral=True)

        store, process, _ = await with_store(world, "one", make)
        world.store.lose_quorum()
        await asyncio.sleep(TIMEOUT * 4)
        with pytest.raises(StoreUnavailable):
            await world.loop.spawn(process, store.get("/here"))
        world.store.regain_quorum()
        await asyncio.sleep(TIMEOUT)
        assert world.store.tree.node("/here") is not None
        with pytest.raises(NodeExists):
            await world.loop.spawn(process, store.create("/here"))

    play(scene)


def test_servers_that_were_put_back_from_a_backup_refuse_whoever_has_seen_more():
    async def scene(world):
        store, process, _ = await with_store(world, "one", nothing)
        backup = world.store.copied()

        async def write():
            for number in range(30):
                await store.create(f"/n{number}")

        await world.loop.spawn(process, write())
        world.store.restore(backup)
        await asyncio.sleep(TIMEOUT / 2)
        with pytest.raises(StoreUnavailable):
            await world.loop.spawn(process, store.get("/"))

    play(scene)


def test_a_session_after_a_backup_was_put_back_has_an_id_that_no_earlier_session_had():
    """Otherwise two brokers share a session: each of them, when it connects, ends the connection of the other."""

    async def scene(world):
        backup = world.store.copied()
        first, _, _ = await with_store(world, "one", nothing)
        world.store.restore(backup, is_new_epoch=True)
        second, _, _ = await with_store(world, "two", nothing)
        assert first.session_id != second.session_id

    play(scene)
