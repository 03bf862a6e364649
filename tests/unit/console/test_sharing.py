"""What pages share: loads, notices."""

from __future__ import annotations

import asyncio

import pytest

from oncelog_console.console import MAX_NOTICES, Notices
from oncelog_console.limits import SHARED_SECONDS
from oncelog_console.link import Shared


class Loader:
    def __init__(self) -> None:
        self.times = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.times += 1
        await self.may_end.wait()
        if self.error:
            raise self.error
        return self.times


async def test_many_who_ask_at_once_cause_one_load() -> None:
    shared, load = Shared[int](), Loader()
    asking = [asyncio.ensure_future(shared.get("a", load)) for _ in range(5)]
    other = asyncio.ensure_future(shared.get("b", Loader()))
    await asyncio.sleep(0)
    load.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert load.times == 1
    assert not other.done(), "another key has a load of its own"
    await shared.close()
    await asyncio.gather(other, return_exceptions=True)


async def test_a_load_is_good_for_a_while() -> None:
    now = 0.0
    shared, load = Shared[int](lambda: now), Loader()
    load.may_end.set()
    assert [await shared.get("a", load) for _ in range(3)] == [1, 1, 1]
    now += SHARED_SECONDS + 0.1
    assert await shared.get("a", load) == 2
    shared.forget()
    assert await shared.get("a", load) == 3


async def test_who_leaves_ends_the_load_for_nobody_else() -> None:
    shared, load = Shared[int](), Loader()
    leaves, stays = (asyncio.ensure_future(shared.get("a", load)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    load.may_end.set()
    assert await stays == 1


async def test_a_load_that_fails_fails_for_all_who_wait() -> None:
    shared, load = Shared[int](), Loader()
    load.error = ValueError("no")
    load.may_end.set()
    answers = await asyncio.gather(*(shared.get("a", load) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError] * 3


async def test_a_load_ends_in_time_though_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_console.link.PAGE_SECONDS", 0)
    shared, load = Shared[int](), Loader()
    left = asyncio.ensure_future(shared.get("a", load))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    joins = asyncio.ensure_future(shared.get("a", load))
    await asyncio.wait([joins], timeout=60)
    assert isinstance(joins.exception(), TimeoutError)


def test_notices_are_few_and_their_names_cannot_be_guessed() -> None:
    notices = Notices()
    first = notices.add("done")
    assert notices.get(first) == "done"
    assert notices.get("done") is None
    for number in range(MAX_NOTICES):
        notices.add(str(number))
    assert notices.get(first) is None


@pytest.mark.parametrize("name", ["", "x"])
def test_there_is_no_notice_to_begin_with(name: str) -> None:
    assert Notices().get(name) is None
