"""The round-robin scheduler: one after the other while the turn lasts, the rest in the next turn of the loop."""

from __future__ import annotations

import asyncio

from oncelog_broker.runtime.turns import TurnBudget
from oncelog_broker.server.net.turn_scheduler import TurnScheduler


class Worker:
    """Has `pieces` to do; each takes `seconds` of the turn."""

    def __init__(self, name: str, pieces: int, done: list[str], spend: list[float], seconds: float = 0.0) -> None:
        self.name, self.pieces, self.done, self.spend, self.seconds = name, pieces, done, spend, seconds

    def take_turn(self) -> bool:
        self.done.append(self.name)
        self.spend[0] += self.seconds
        self.pieces -= 1
        return self.pieces > 0


async def test_round_robin_until_each_has_done_all() -> None:
    done: list[str] = []
    now = [0.0]
    scheduler = TurnScheduler(TurnBudget(lambda: now[0]))
    for name, pieces in (("a", 3), ("b", 1), ("c", 2)):
        scheduler.join(Worker(name, pieces, done, now))
    assert (bool(scheduler), done) == (True, []), "nothing before the next turn of the loop"
    await asyncio.sleep(0)
    assert done == ["a", "b", "c", "a", "c", "a"]
    assert not scheduler


async def test_a_turn_that_is_used_up_goes_on_in_the_next_one() -> None:
    done: list[str] = []
    now = [0.0]
    scheduler = TurnScheduler(TurnBudget(lambda: now[0]))
    scheduler.join(Worker("a", 2, done, now, seconds=1.0))
    scheduler.join(Worker("b", 2, done, now, seconds=1.0))
    for turn, expected in enumerate(["a", "ab", "aba", "abab"], 1):
        await asyncio.sleep(0)
        assert "".join(done) == expected, turn


async def test_who_fails_does_not_stop_the_others() -> None:
    class Failing(Worker):
        def take_turn(self) -> bool:
            raise OSError("a fault of the test")

    done: list[str] = []
    now = [0.0]
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    scheduler = TurnScheduler(TurnBudget(lambda: now[0]))
    scheduler.join(Failing("a", 1, done, now))
    scheduler.join(Worker("b", 1, done, now))
    for _ in range(2):
        await asyncio.sleep(0)
    assert (done, [str(each) for each in reported]) == (["b"], ["a fault of the test"])
