"""The event loop of a simulated world: virtual time, asyncio's order inside a process, and the death of processes."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.simulation.worlds import play

from oncelog_simulation.loop import NothingLeft, Task


def test_time_jumps_to_the_next_timer():
    real = time.perf_counter()

    async def scene(world):
        await asyncio.sleep(3600)
        assert 3600 <= world.now < 3600.01

    play(scene)
    assert time.perf_counter() - real < 5


def test_callbacks_of_a_process_run_in_the_order_of_their_coming():
    seen = []

    async def work():
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_soon(seen.append, number)
        for number in range(20, 40):
            loop.call_at(loop.time() + 1 + number / 1000, seen.append, number)
        await asyncio.sleep(2)

    async def scene(world):
        await world.loop.spawn(world.process("one"), work())

    play(scene)
    assert seen == list(range(40))


def test_the_seed_decides_how_processes_interleave():
    def order(seed):
        seen = []

        async def work(name):
            for _ in range(6):
                seen.append(name)
                await asyncio.sleep(0)

        async def scene(world):
            await asyncio.gather(*(world.loop.spawn(world.process(name), work(name)) for name in "abc"))

        play(scene, seed)
        return "".join(seen)

    orders = {order(seed) for seed in range(10)}
    assert len(orders) > 5
    assert order(3) == order(3)


def test_no_code_of_a_killed_process_runs_on_not_even_finally_blocks():
    seen = []

    async def work():
        try:
            asyncio.get_running_loop().call_later(5, seen.append, "timer")
            seen.append("begins")
            await asyncio.sleep(10)
            seen.append("goes on")
        finally:
            seen.append("finally")

    async def scene(world):
        process = world.process("one")
        world.loop.spawn(process, work())
        await asyncio.sleep(1)
        world.loop.kill(process)
        await asyncio.sleep(20)
        assert seen == ["begins"]

    play(scene)


def test_a_paused_process_makes_up_for_the_time_when_it_continues():
    seen = []

    async def work(world):
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(round(world.now))

    async def scene(world):
        process = world.process("one")
        working = world.loop.spawn(process, work(world))
        await asyncio.sleep(1.5)
        world.loop.pause(process)
        await asyncio.sleep(8)
        assert seen == [1]
        world.loop.resume(process)
        await working

    play(scene)
    assert seen == [1, 10, 11]


def test_jobs_of_worker_threads_run_later_and_those_of_one_thread_in_order():
    seen = []

    async def work():
        loop, one = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        jobs = [loop.run_in_executor(one, seen.append, number) for number in range(10)]
        assert seen == []
        await asyncio.gather(*jobs)
        assert await asyncio.to_thread(lambda: 7) == 7
        with pytest.raises(KeyError):
            await asyncio.to_thread({}.__getitem__, "none")

    async def scene(world):
        await world.loop.spawn(world.process("one"), work())

    play(scene)
    assert seen == list(range(10))


def test_each_process_has_the_clock_of_its_host():
    async def work():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        return asyncio.get_running_loop().time() - began

    async def scene(world):
        process = world.process("fast")
        process.clock.drift(1.25)
        process.clock.step_wall_ms(5000)
        began = world.now
        assert await world.loop.spawn(process, work()) == pytest.approx(100, rel=1e-3)
        assert world.now - began == pytest.approx(80, rel=1e-3)
        assert process.clock.now_ms() - world.loop.director.clock.now_ms() == pytest.approx(25_000, abs=10)

    play(scene)


def test_a_loop_that_works_until_a_deadline_ends():
    async def scene(world):
        until = world.loop.time() + 0.01
        while world.loop.time() < until:
            pass

    play(scene)


def test_a_world_in_which_nothing_can_happen_says_so():
    async def scene(world):
        world.store.loop._heap.clear()  # otherwise the metadata store would schedule timers for ever
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingLeft):
        play(scene)


def test_tasks_and_futures_hash_alike_in_two_runs():
    def hashes():
        found = []

        async def scene(world):
            tasks = {asyncio.ensure_future(asyncio.sleep(number)) for number in range(50)}
            found.extend(map(hash, tasks))
            found.extend(hash(world.loop.create_future()) for _ in range(5))
            await asyncio.gather(*tasks)

        play(scene)
        return found

    assert hashes() == hashes()


def test_a_task_has_a_hash_of_its_own_before_asyncio_adds_it_to_the_set_of_all_tasks():
    """With equal hashes, starting a task in a cluster of a hundred brokers compared it with ten thousand others."""
    made = [Task.__new__(Task) for _ in range(10)]
    assert len(set(map(hash, made))) == 10
