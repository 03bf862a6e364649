import asyncio

import pytest
from tests.support.shared_tree import SharedTree

from oncelog_broker.controller.leadership import Controllership, claim_controllership, own_controllership
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.stores.store import BadVersion, ConnectionLost, Create


async def test_the_first_controller_has_epoch_1(embedded_store):
    claimed = await claim_controllership(embedded_store, 1, now_ms=5)
    assert claimed == Controllership(epoch=1, epoch_version=0)
    assert await reader.read_controller(embedded_store) == 1
    assert (await embedded_store.get(paths.CONTROLLER_EPOCH))[0] == b"1"


async def test_each_controller_raises_the_epoch_and_fences_its_predecessor(embedded_store):
    first = await claim_controllership(embedded_store, 1, now_ms=5)
    await embedded_store.multi([first.fence, Create("/a")])
    await embedded_store.delete(paths.CONTROLLER)
    second = await claim_controllership(embedded_store, 2, now_ms=6)
    assert second.epoch == 2
    with pytest.raises(BadVersion) as raised:
        await embedded_store.multi([first.fence, Create("/b")])
    assert raised.value.path == paths.CONTROLLER_EPOCH
    await embedded_store.multi([second.fence, Create("/b")])


async def test_exactly_one_of_several_racing_brokers_becomes_controller():
    shared = SharedTree()
    claims = await asyncio.gather(*(claim_controllership(shared.connect(), broker, 5) for broker in range(5)))
    assert [claim is not None for claim in claims] == [True, False, False, False, False]
    assert await claim_controllership(shared.connect(), 9, 5) is None


async def test_a_claim_that_came_late_is_found_by_its_session_and_by_nobody_elses():
    shared = SharedTree()
    late, other = shared.connect(), shared.connect()
    claimed = await claim_controllership(late, 1, now_ms=5)
    assert await own_controllership(late) == claimed
    assert await claim_controllership(late, 1, now_ms=6) == claimed
    assert await own_controllership(other) is None
    assert await claim_controllership(other, 1, now_ms=5) is None


@pytest.mark.parametrize("again", [False, True], ids=["create", "set"])
async def test_a_claim_whose_reply_was_lost_is_ours(unreliable_store, again):
    if again:
        await claim_controllership(unreliable_store, 1, now_ms=5)
        await unreliable_store.delete(paths.CONTROLLER)
    unreliable_store.lose_replies = 1
    claimed = await claim_controllership(unreliable_store, 1, now_ms=6)
    await unreliable_store.multi([claimed.fence])
    assert claimed.epoch == (2 if again else 1)


async def test_a_claim_whose_request_was_lost_is_not_ours(unreliable_store):
    unreliable_store.lose_requests = 1
    assert await claim_controllership(unreliable_store, 1, now_ms=6) is None
    assert await unreliable_store.exists(paths.CONTROLLER) is None


async def test_an_unreachable_store_says_nothing(unreliable_store):
    unreliable_store.unreachable = True
    with pytest.raises(ConnectionLost):
        await claim_controllership(unreliable_store, 1, now_ms=6)
