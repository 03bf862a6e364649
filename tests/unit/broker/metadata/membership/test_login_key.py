import asyncio

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.login_key import KEY_BYTES, login_key


async def test_brokers_that_come_side_by_side_have_the_same_key(store):
    first, second = await asyncio.gather(login_key(store), login_key(store))
    assert first == second == await login_key(store)
    assert len(first) == KEY_BYTES


async def test_any_stored_bytes_make_a_login_key(store):
    await store.create(paths.LOGIN_KEY, b"x" * 1000, make_parents=True)
    assert len(await login_key(store)) == KEY_BYTES


async def test_a_store_that_is_away_keeps_nobody_from_starting(store, caplog):
    await store.close()
    first = await login_key(store)
    assert len(first) == KEY_BYTES
    assert await login_key(store) != first
    assert "until the next start" in caplog.text
