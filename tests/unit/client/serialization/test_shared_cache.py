"""The cache is limited in size, and loads each missing value only once."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.serialization.errors import RegistryUnavailable, SchemaNotFound
from oncelog.serialization.shared_cache import SharedCache


class Loads:
    """Counts the loads; each load waits for `open`."""

    def __init__(self) -> None:
        self.count = 0
        self.open = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return self.count


@pytest.fixture
async def loads() -> Loads:
    loads = Loads()
    loads.open.set()
    return loads


async def test_tasks_that_ask_for_one_key_share_one_load(loads: Loads) -> None:
    cache: SharedCache[str, int] = SharedCache(10)
    loads.open.clear()
    tasks = [asyncio.ensure_future(cache.get("a", loads)) for _ in range(100)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    loads.open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [1] * 99


async def test_the_cache_keeps_the_values_that_were_used_last(loads: Loads) -> None:
    cache: SharedCache[int, int] = SharedCache(2)
    for key in (1, 2, 1, 3):
        await cache.get(key, loads)
    assert (len(cache), loads.count) == (2, 3)
    await cache.get(1, loads)
    assert loads.count == 3
    await cache.get(2, loads)
    assert loads.count == 4


async def test_a_value_is_loaded_again_after_its_time(loads: Loads) -> None:
    now = 0.0
    cache: SharedCache[str, int] = SharedCache(10, ttl_s=60, now=lambda: now)
    assert [await cache.get("a", loads), await cache.get("a", loads)] == [1, 1]
    now = 60.0
    assert await cache.get("a", loads) == 2


async def test_a_missing_schema_is_not_asked_for_again_at_once(loads: Loads) -> None:
    now = 0.0
    cache: SharedCache[str, int] = SharedCache(10, failure_ttl_s=5, now=lambda: now)
    loads.error = SchemaNotFound("none", 404, 40403)
    for _ in range(3):
        with pytest.raises(SchemaNotFound):
            await cache.get("a", loads)
    assert loads.count == 1
    now = 5.0
    loads.error = None
    assert await cache.get("a", loads) == 2


async def test_a_registry_that_does_not_answer_is_asked_again(loads: Loads) -> None:
    cache: SharedCache[str, int] = SharedCache(10, failure_ttl_s=5)
    loads.error = RegistryUnavailable("down")
    for _ in range(2):
        with pytest.raises(RegistryUnavailable):
            await cache.get("a", loads)
    assert loads.count == 2


async def test_closing_ends_the_loads_with_an_error_and_not_with_a_cancellation(loads: Loads) -> None:
    cache: SharedCache[str, int] = SharedCache(10)
    loads.open.clear()
    task = asyncio.ensure_future(cache.get("a", loads))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(RegistryUnavailable, match="closed"):
        await task
