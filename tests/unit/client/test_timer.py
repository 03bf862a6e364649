import asyncio

from oncelog.timer import Timer


async def test_a_timer_rings_once_at_the_earliest_moment() -> None:
    rung: list[float] = []
    loop = asyncio.get_running_loop()
    alarm = Timer(lambda: rung.append(loop.time()))
    start = loop.time()
    for delay_s in (60.0, 0.01, 30.0):
        alarm.set(start + delay_s)
    await asyncio.sleep(0.03)
    assert len(rung) == 1


async def test_a_moment_that_has_passed_rings_at_once_and_it_may_be_set_again() -> None:
    rung = asyncio.Event()
    alarm = Timer(rung.set)
    for _ in range(2):
        rung.clear()
        alarm.set(asyncio.get_running_loop().time() - 5.0)
        alarm.set(asyncio.get_running_loop().time() - 1.0)
        await rung.wait()


async def test_a_cancelled_timer_does_not_ring() -> None:
    rung: list[int] = []
    alarm = Timer(lambda: rung.append(1))
    alarm.set(asyncio.get_running_loop().time())
    alarm.cancel()
    alarm.cancel()
    await asyncio.sleep(0.005)
    assert rung == []
