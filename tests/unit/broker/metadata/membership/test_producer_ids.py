"""Producer id blocks never yield the same id twice, whatever happens to the connection (S1-S4)."""

import asyncio

import pytest
from tests.support.shared_tree import SharedTree

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.producer_ids import (
    BLOCK_SIZE,
    MAX_KNOWN_ID,
    MAX_PRODUCER_ID,
    UNKNOWN_IDS,
    ProducerIdManager,
    ProducerIdsExhausted,
    next_block,
)
from oncelog_broker.metadata.model.payloads import ProducerIdBlock, encode_producer_id_block, parse_producer_id_block
from oncelog_protocol.errors import ErrorCode, KafkaError


async def latest(store):
    data, _ = await store.get(paths.LATEST_PRODUCER_ID_BLOCK)
    return parse_producer_id_block(data, "")


def test_s1_s2_the_first_block_starts_at_0_and_the_next_one_follows():
    first = next_block(None, 35)
    assert first == ProducerIdBlock(35, 0, 999)
    assert next_block(ProducerIdBlock(1, 4000, 4999), 35) == ProducerIdBlock(35, 5000, 5999)


def test_s3_the_last_possible_block_is_given_and_none_after_it():
    last = MAX_PRODUCER_ID - BLOCK_SIZE
    assert next_block(ProducerIdBlock(1, 0, last), 2).end == MAX_PRODUCER_ID
    with pytest.raises(ProducerIdsExhausted, match="Have exhausted all producerIds"):
        next_block(ProducerIdBlock(1, 0, last + 1), 2)


async def test_s4_ids_are_handed_out_one_each_and_the_block_is_renewed(embedded_store):
    manager = ProducerIdManager(embedded_store, 35)
    ids = await asyncio.gather(*(manager.generate() for _ in range(BLOCK_SIZE + 1)))
    assert ids == list(range(BLOCK_SIZE + 1))
    assert await latest(embedded_store) == ProducerIdBlock(35, 1000, 1999)


async def test_s4_a_restart_wastes_the_rest_of_the_block(embedded_store):
    assert await ProducerIdManager(embedded_store, 1).generate() == 0
    assert await ProducerIdManager(embedded_store, 1).generate() == 1000


async def test_s1_s2_brokers_that_race_get_different_blocks(embedded_store):
    managers = [ProducerIdManager(embedded_store, broker) for broker in range(10)]
    ids = await asyncio.gather(*(manager.generate() for manager in managers))
    assert sorted(ids) == list(range(0, 10_000, 1000))


@pytest.mark.parametrize("is_first", [True, False], ids=["create", "set"])
async def test_s1_a_block_whose_reply_is_lost_is_nobodys(unreliable_store, is_first):
    """The node in the store contains this broker's id, but an earlier process of this broker may have written it."""
    if not is_first:
        await ProducerIdManager(unreliable_store, 1).generate()
    lost = 0 if is_first else 1000
    unreliable_store.lose_replies = 1
    assert await ProducerIdManager(unreliable_store, 2).generate() == lost + 1000
    assert await latest(unreliable_store) == ProducerIdBlock(2, lost + 1000, lost + 1999)


async def test_s1_two_processes_of_one_broker_id_get_different_blocks_when_replies_are_lost(unreliable_store):
    """A process that was paused reads from the store exactly the block that it tried to write, but another process
    wrote this block and owns it.
    """
    paused, successor = ProducerIdManager(unreliable_store, 2), ProducerIdManager(unreliable_store.reliable, 2)
    ids = []

    async def meanwhile():
        ids.append(await successor.generate())

    unreliable_store.before_write = meanwhile
    unreliable_store.lose_requests = 1
    ids.append(await paused.generate())
    assert ids == [0, 1000]


@pytest.mark.parametrize("is_first", [True, False], ids=["create", "set"])
async def test_s1_a_lost_request_is_sent_again(unreliable_store, is_first):
    if not is_first:
        await ProducerIdManager(unreliable_store, 1).generate()
    unreliable_store.lose_requests = 3
    assert await ProducerIdManager(unreliable_store, 2).generate() == (0 if is_first else 1000)


async def test_s1_a_lost_request_whose_block_another_broker_took_is_not_ours(unreliable_store):
    async def other_broker():
        await ProducerIdManager(unreliable_store.reliable, 1).generate()

    unreliable_store.before_write = other_broker
    unreliable_store.lose_requests = 1
    assert await ProducerIdManager(unreliable_store, 2).generate() == 1000


async def test_e29_an_unreachable_store_is_coordinator_load_in_progress_and_passes(unreliable_store):
    manager = ProducerIdManager(unreliable_store, 2)
    unreliable_store.unreachable = True
    with pytest.raises(KafkaError) as raised:
        await manager.generate()
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    unreliable_store.unreachable = False
    assert await manager.generate() == 0
    unreliable_store.unreachable = True
    assert await manager.generate() == 1  # the broker already owns the block


async def test_e29_a_block_that_is_always_lost_is_not_waited_for_for_ever(unreliable_store):
    unreliable_store.lose_requests = 10**9
    with pytest.raises(KafkaError) as raised:
        await ProducerIdManager(unreliable_store, 2).generate()
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_s3_exhaustion_is_fatal(embedded_store):
    last = ProducerIdBlock(1, MAX_PRODUCER_ID - BLOCK_SIZE + 1, MAX_PRODUCER_ID)
    await embedded_store.create(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(last))
    with pytest.raises(ProducerIdsExhausted):
        await ProducerIdManager(embedded_store, 2).generate()


async def store_with_block(store, end):
    await store.create(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(ProducerIdBlock(1, 0, end)))


async def test_s75_ids_continue_above_those_that_the_logs_know_where_the_store_is_older(embedded_store, caplog):
    await store_with_block(embedded_store, 999)
    manager = ProducerIdManager(embedded_store, 2)
    manager.note_known(4321)
    await manager.raise_block()
    raised = await latest(embedded_store)
    assert raised.start == 4321 + UNKNOWN_IDS + 1
    assert await manager.generate() == raised.start
    # The next producer id block is raised for all brokers together.
    assert await ProducerIdManager(embedded_store, 3).generate() == raised.end + 1
    assert [line.message for line in caplog.records if "older than the logs" in line.message]


async def test_s75_a_store_that_is_not_behind_stays_as_it_is(embedded_store, caplog):
    await store_with_block(embedded_store, 999)
    manager = ProducerIdManager(embedded_store, 2)
    manager.note_known(999)
    await manager.raise_block()
    assert await latest(embedded_store) == ProducerIdBlock(1, 0, 999)
    assert await manager.generate() == 1000
    assert not caplog.records


async def test_s75_a_new_broker_without_logs_takes_no_block_at_its_start(embedded_store):
    await ProducerIdManager(embedded_store, 1).raise_block()
    assert await embedded_store.exists(paths.LATEST_PRODUCER_ID_BLOCK) is None


async def test_s75_a_store_that_has_no_block_any_more_is_behind_what_logs_know(embedded_store):
    manager = ProducerIdManager(embedded_store, 2)
    manager.note_known(7)
    await manager.raise_block()
    assert await manager.generate() == 7 + UNKNOWN_IDS + 1


async def test_s75_the_raise_is_settled_between_brokers_that_start_together(embedded_store):
    await store_with_block(embedded_store, 999)
    managers = [ProducerIdManager(embedded_store, broker) for broker in range(3)]
    for manager, known in zip(managers, (5000, 9_000_000, 100), strict=True):
        manager.note_known(known)
    await asyncio.gather(*(manager.raise_block() for manager in managers))
    ids = await asyncio.gather(*(manager.generate() for manager in managers))
    assert len(set(ids)) == 3
    assert (await latest(embedded_store)).end > 9_000_000


async def test_s75_a_transactional_id_that_is_loaded_late_ends_the_block_that_is_below_it(embedded_store):
    manager = ProducerIdManager(embedded_store, 2)
    assert await manager.generate() == 0
    manager.note_known(2_000_000)
    assert await manager.generate() == 2_000_000 + UNKNOWN_IDS + 1


async def test_s75_a_store_that_goes_back_while_the_broker_runs_gives_no_block_again(embedded_store):
    manager = ProducerIdManager(embedded_store, 2)
    given = {await manager.generate() for _ in range(BLOCK_SIZE)}
    await embedded_store.delete(paths.LATEST_PRODUCER_ID_BLOCK)
    assert await manager.generate() > max(given)


async def test_s75_an_id_that_a_client_made_up_does_not_use_up_all_others(embedded_store):
    manager = ProducerIdManager(embedded_store, 2)
    manager.note_known(MAX_PRODUCER_ID)
    await manager.raise_block()
    assert await manager.generate() == 0
    manager.note_known(MAX_KNOWN_ID)
    assert await manager.generate() == MAX_KNOWN_ID + UNKNOWN_IDS + 1


async def test_s76_a_broker_alone_continues_above_its_logs_where_the_block_cannot_be_read(embedded_store, caplog):
    await embedded_store.create(paths.LATEST_PRODUCER_ID_BLOCK, b"{")
    manager = ProducerIdManager(embedded_store, 2, is_alone=True)
    manager.note_known(41)
    await manager.raise_block()
    assert await manager.generate() == 41 + UNKNOWN_IDS + 1
    assert [line for line in caplog.records if paths.LATEST_PRODUCER_ID_BLOCK in line.getMessage()]


async def test_s76_a_member_gives_no_ids_where_the_block_cannot_be_read_and_says_so_once(embedded_store, caplog):
    """Other brokers may know producer ids that are higher than those that this broker knows."""
    await embedded_store.create(paths.LATEST_PRODUCER_ID_BLOCK, b"{")
    manager = ProducerIdManager(embedded_store, 2)
    manager.note_known(41)
    await manager.raise_block()  # a block that cannot be parsed does not prevent the broker's start
    for _ in range(3):
        with pytest.raises(KafkaError) as raised:
            await manager.generate()
        assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len([line for line in caplog.records if "no new producer ids can be allocated" in line.message]) == 1
    await embedded_store.delete(paths.LATEST_PRODUCER_ID_BLOCK)
    assert await manager.generate() == 41 + UNKNOWN_IDS + 1


async def test_s75_a_broker_gives_up_its_block_when_another_one_raises_the_last_above_it():
    """This broker was the first to start with the older store, and its own logs know no producer ids."""
    tree = SharedTree()
    early, late = ProducerIdManager(tree.connect(), 1), ProducerIdManager(tree.connect(), 2)
    assert await early.generate() == 0
    late.note_known(1700)
    await late.raise_block()
    assert await early.generate() > 1700 + UNKNOWN_IDS


async def test_s4_a_broker_keeps_its_block_when_others_take_theirs():
    tree = SharedTree()
    stores = [tree.connect() for _ in range(3)]
    managers = [ProducerIdManager(store, broker) for broker, store in enumerate(stores)]
    first = [await manager.generate() for manager in managers]
    assert [await manager.generate() for manager in managers] == [producer_id + 1 for producer_id in first]
    stores[0].is_cut = True
    assert await managers[0].generate() == 2


async def test_s75_a_store_that_goes_back_while_brokers_run_gives_nobody_the_block_of_another_broker():
    tree = SharedTree()
    store = tree.connect()
    early, late = ProducerIdManager(tree.connect(), 1), ProducerIdManager(tree.connect(), 2)
    following = [asyncio.create_task(manager.follow()) for manager in (early, late)]
    for expected in range(BLOCK_SIZE):
        assert await early.generate() == expected
    backup = await latest(store)
    assert await late.generate() == BLOCK_SIZE
    async with asyncio.timeout(10):
        while early._seen_end < 2 * BLOCK_SIZE - 1:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(backup))
    assert await early.generate() > 1000 + UNKNOWN_IDS
    for each in following:
        each.cancel()


async def test_s75_a_block_that_another_broker_got_from_a_store_that_went_back_is_discarded_by_both():
    """The other broker has just started, so it knows nothing of the lost block of the same ids."""
    tree = SharedTree()
    store, cut = tree.connect(), tree.connect()
    owner = ProducerIdManager(cut, 1)
    await ProducerIdManager(store, 2).generate()
    backup = await latest(store)
    assert await owner.generate() == BLOCK_SIZE
    cut.is_cut = True
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(backup))
    await store.delete(paths.LATEST_PRODUCER_ID_BLOCK)
    await store.create(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(backup))
    fresh = ProducerIdManager(tree.connect(), 3)
    assert await fresh.generate() == BLOCK_SIZE
    cut.is_cut = False
    await owner.raise_block()
    ids = [await owner.generate(), await fresh.generate(), await owner.generate(), await fresh.generate()]
    assert min(ids) > BLOCK_SIZE + UNKNOWN_IDS
    assert len(set(ids)) == 4


async def test_s75_many_brokers_raise_a_store_that_has_gone_back_only_once():
    tree = SharedTree()
    store = tree.connect()
    managers = [ProducerIdManager(tree.connect(), number) for number in range(5)]
    for manager in managers:
        await manager.generate()
        await asyncio.gather(*(each.raise_block() for each in managers))
    await store.delete(paths.LATEST_PRODUCER_ID_BLOCK)
    writes = tree.writes
    await asyncio.gather(*(manager.raise_block() for manager in managers))
    assert tree.writes == writes + 1


async def test_s70_a_broker_that_is_not_registered_neither_learns_from_the_store_nor_writes_to_it():
    """The store of a new session may belong to another cluster."""
    tree = SharedTree()
    store = tree.connect()
    registered = [True]
    manager = ProducerIdManager(tree.connect(), 1, is_registered=lambda: registered[0])
    following = asyncio.create_task(manager.follow())
    for _ in range(BLOCK_SIZE):
        await manager.generate()
    registered[0] = False
    ours, theirs = await latest(store), ProducerIdBlock(7, 0, 499)
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(theirs))
    with pytest.raises(KafkaError, match="not registered"):
        await manager.generate()
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(ProducerIdBlock(7, 2**61, 2**61 + 999)))
    async with asyncio.timeout(10):
        while manager._changed.is_set():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(ours))
    registered[0] = True
    assert await manager.generate() == BLOCK_SIZE
    following.cancel()


async def test_s75_a_store_that_goes_back_is_raised_again_before_anybody_needs_a_block():
    tree = SharedTree()
    store = tree.connect()
    manager = ProducerIdManager(tree.connect(), 1)
    following = asyncio.create_task(manager.follow())
    assert await manager.generate() == 0
    changed: asyncio.Queue[str] = asyncio.Queue()
    store.watch(paths.LATEST_PRODUCER_ID_BLOCK, changed.put_nowait)
    await store.delete(paths.LATEST_PRODUCER_ID_BLOCK)  # as in a backup from before the first block
    async with asyncio.timeout(10):
        while not await store.exists(paths.LATEST_PRODUCER_ID_BLOCK):
            await changed.get()
    assert (await latest(store)).start > BLOCK_SIZE + UNKNOWN_IDS - 1
    assert await ProducerIdManager(store, 2).generate() > BLOCK_SIZE + UNKNOWN_IDS
    following.cancel()
