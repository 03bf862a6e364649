"""The contract that every MetadataStore fulfils; the `store` fixture runs the tests with all implementations."""

import asyncio

import pytest

from oncelog_broker.metadata.stores.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    Set,
    Stat,
)


async def test_a_created_node_is_read_back_with_version_0(store):
    stat = await store.create("/a", b"one")
    assert await store.get("/a") == (b"one", stat)
    assert stat.version == 0
    assert await store.exists("/a") == stat


async def test_each_set_raises_the_version_by_one_and_keeps_the_creation_id(store):
    created = await store.create("/a", b"one")
    second = await store.set("/a", b"two", version=0)
    third = await store.set("/a", b"three")
    assert [(stat.version, stat.czxid) for stat in (second, third)] == [(1, created.czxid), (2, created.czxid)]
    assert await store.get("/a") == (b"three", third)
    assert created.czxid == created.mzxid < second.mzxid < third.mzxid


async def test_creation_ids_grow_also_for_a_node_made_again(store):
    first = await store.create("/a")
    second = await store.create("/b")
    await store.delete("/a")
    third = await store.create("/a")
    assert first.czxid < second.czxid < third.czxid


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/none/a"), NoNode),
        (Create("/brief/a"), NoChildrenForEphemerals),
        (Set("/none", b""), NoNode),
        (Set("/a", b"", version=7), BadVersion),
        (Delete("/none"), NoNode),
        (Delete("/a", version=7), BadVersion),
        (Delete("/parent"), NotEmpty),
        (Check("/none", -1), NoNode),
        (Check("/a", 7), BadVersion),
    ],
    ids=lambda value: getattr(value, "path", None) and f"{type(value).__name__}{value.path}",
)
async def test_a_failed_operation_is_named_and_undoes_the_whole_multi(store, operation, error):
    await store.multi([Create("/a"), Create("/parent"), Create("/parent/child"), Create("/brief", ephemeral=True)])
    told = []
    store.watch("/", told.append)
    with pytest.raises(error) as raised:
        await store.multi(
            [Create("/b"), Set("/a", b"changed"), Delete("/parent/child"), Create("/parent/child"), operation]
        )
    assert isinstance(raised.value, MetadataError)
    assert raised.value.path in (operation.path, "/none")
    assert await store.exists("/b") is None
    assert (await store.get("/a"))[0] == b""
    assert told == []


async def test_a_multi_sees_its_own_earlier_operations_and_has_one_creation_id(store):
    await store.multi([Create("/a"), Create("/a/b"), Set("/a/b", b"x"), Check("/a/b", 1), Create("/c"), Delete("/c")])
    a, b = await store.exists("/a"), await store.exists("/a/b")
    assert a.czxid == b.czxid
    assert b.version == 1
    assert await store.exists("/c") is None
    assert await store.children("/") == ["a"]


async def test_a_node_deleted_and_created_in_one_multi_is_a_new_node(store):
    await store.create("/a", b"old")
    old = await store.set("/a", b"older")
    await store.multi([Delete("/a"), Create("/a", b"new")])
    data, stat = await store.get("/a")
    assert (data, stat.version) == (b"new", 0)
    assert stat.czxid > old.czxid
    assert await store.children("/") == ["a"]


async def test_checks_alone_change_nothing(store):
    stat = await store.create("/a")
    await store.multi([Check("/a", 0)])
    await store.multi([])
    assert await store.exists("/a") == stat


async def test_children_are_sorted_names(store):
    for name in ("b", "a", "a-longer"):
        await store.create(f"/parent/{name}", make_parents=True)
    await store.delete("/parent/b")
    assert await store.children("/parent") == ["a", "a-longer"]
    assert await store.children("/parent/a") == []
    with pytest.raises(NoNode):
        await store.children("/none")


async def test_missing_parents_are_made_on_demand(store):
    await store.create("/a/b/c", b"x", make_parents=True)
    assert (await store.get("/a/b"))[0] == b""
    with pytest.raises(NodeExists):
        await store.create("/a/b/c", make_parents=True)


async def test_racing_creates_share_the_parents_that_either_makes(store):
    await asyncio.gather(*(store.create(f"/a/b/{n}", make_parents=True) for n in range(5)))
    assert len(await store.children("/a/b")) == 5


async def test_get_many_keeps_the_order_and_gives_none_for_what_is_missing(store):
    stat = await store.create("/a", b"x")
    assert await store.get_many(["/none", "/a"]) == [None, (b"x", stat)]
    assert await store.get_many([]) == []


async def test_of_racing_conditional_sets_one_wins(store):
    await store.create("/a")
    outcomes = await asyncio.gather(*(store.set("/a", b"%d" % n, version=0) for n in range(5)), return_exceptions=True)
    assert [isinstance(outcome, Stat) for outcome in outcomes] == [True, False, False, False, False]
    assert await store.get("/a") == (b"0", outcomes[0])
    assert all(isinstance(outcome, BadVersion) for outcome in outcomes[1:])


async def test_writes_happen_in_call_order(store):
    await store.create("/a")
    writes = [asyncio.ensure_future(store.set("/a", b"%d" % n)) for n in range(20)]
    stats = await asyncio.gather(*writes)
    assert [stat.version for stat in stats] == list(range(1, 21))
    assert (await store.get("/a"))[0] == b"19"


async def test_a_cancelled_caller_harms_no_other_write(store):
    first, second = (asyncio.ensure_future(store.create(path)) for path in ("/a", "/b"))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
    assert await store.exists("/b") is not None


async def test_a_watch_tells_the_paths_at_and_beneath_it_before_the_write_returns(store):
    told = []
    store.watch("/a", told.append)
    await store.multi([Create("/a"), Create("/a/b"), Create("/ab")])
    assert sorted(told) == ["/a", "/a/b"]
    told.clear()
    await store.set("/a/b", b"x")
    assert told == ["/a/b"]
    told.clear()
    await store.delete("/a/b")
    assert told == ["/a/b"]


async def test_a_cancelled_watch_ends(store):
    told = []
    unwatch = store.watch("/", told.append)
    unwatch()
    unwatch()
    await store.create("/a")
    assert told == []


async def test_a_failing_callback_keeps_no_other_from_its_call(store, caplog):
    def fail(path):
        raise RuntimeError(f"no good: {path}")

    told = []
    store.watch("/", fail)
    store.watch("/", told.append)
    await store.create("/a")
    assert told == ["/a"]
    assert "no good: /a" in caplog.text


async def test_ephemeral_nodes_end_with_the_session_and_come_back_with_a_higher_creation_id(open_store):
    store = await open_store()
    await store.create("/kept", b"x")
    first = await store.create("/brief", b"1", ephemeral=True)
    await store.set("/brief", b"2")
    await store.close()
    store = await open_store()
    assert await store.exists("/brief") is None
    assert await store.children("/") == ["kept"]
    second = await store.create("/brief", ephemeral=True)
    assert second.czxid > first.czxid


async def test_a_closed_store_says_so(open_store):
    store = await open_store()
    states = []
    store.watch_session(states.append)
    assert store.session is SessionState.CONNECTED
    await store.close()
    assert store.session is SessionState.LOST
    assert states == [SessionState.LOST]
    with pytest.raises(SessionExpired):
        await store.get("/")
    with pytest.raises(SessionExpired):
        await store.create("/a")
    await store.close()


async def test_closing_finishes_the_writes_that_were_started(open_store):
    store = await open_store()
    writes = [asyncio.ensure_future(store.create(f"/{n}")) for n in range(5)]
    await asyncio.sleep(0)
    await store.close()
    assert len([write.result() for write in writes]) == 5
    assert await (await open_store()).children("/") == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a/../b", "/./a", "/a\0"])
async def test_an_illegal_path_is_a_bug_of_the_caller(store, path):
    with pytest.raises(ValueError, match="path"):
        await store.create(path)
    with pytest.raises(ValueError, match="path"):
        await store.get(path)


async def test_the_root_is_not_written(store):
    with pytest.raises(ValueError, match="root"):
        await store.set("/", b"x")
    with pytest.raises(ValueError, match="root"):
        await store.delete("/")
