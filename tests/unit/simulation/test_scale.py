"""Measuring clusters of different sizes: virtual time that contains real work, bytes of the store, growth laws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import thread_time
from typing import Any

import pytest
from kazoo.protocol.serialization import GetData
from tests.unit.simulation.worlds import SmallWorld

from oncelog_broker.metadata.stores.store import Check, Create, Delete, Set, Stat
from oncelog_broker.metadata.stores.tree import TreeNode
from oncelog_broker.metadata.stores.zookeeper.requests import Multi, MultiRead
from oncelog_simulation.ensemble import Answer, Changed, ChangedTogether, Request
from oncelog_simulation.guard import guarded
from oncelog_simulation.scale.growth import fit
from oncelog_simulation.scale.measuring import Measured
from oncelog_simulation.scale.metered_loop import MeteredLoop
from oncelog_simulation.scale.partition_states import PartitionStates
from oncelog_simulation.scale.report import ESTIMATED, ROWS, tables
from oncelog_simulation.scale.size import Size
from oncelog_simulation.scale.traffic import Traffic

WORK_SECONDS = 0.02


class MeteredWorld(SmallWorld):
    make_loop = MeteredLoop
    loop: MeteredLoop


def work(seconds: float = WORK_SECONDS) -> None:
    """Use the processor."""
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def play(scene: Callable[[MeteredWorld], Coroutine[Any, Any, Any]]) -> MeteredWorld:
    world = MeteredWorld(1)
    with guarded(world.loop):
        try:
            world.loop.run_until_complete(scene(world))
        finally:
            world.end()
    return world


def test_work_takes_virtual_time_of_its_own_process_alone() -> None:
    later: dict[str, float] = {}

    async def scene(world: MeteredWorld) -> None:
        async def busy() -> None:
            work()
            await asyncio.sleep(0)
            later["busy"] = world.now

        async def idle() -> None:
            await asyncio.sleep(0)
            later["idle"] = world.now

        one, other = world.process("one"), world.process("other")
        await asyncio.gather(world.loop.spawn(one, busy()), world.loop.spawn(other, idle()))

    world = play(scene)
    assert later["busy"] >= WORK_SECONDS
    assert later["idle"] < WORK_SECONDS / 4
    assert world.loop.times.of("one") >= WORK_SECONDS
    assert world.loop.times.longest["one"] >= WORK_SECONDS
    assert world.loop.times.longest_of(["one", "other"]).host == "one"


def test_a_clock_shows_the_work_of_the_present_iteration() -> None:
    async def scene(world: MeteredWorld) -> None:
        began = world.loop.time()
        work()
        assert world.loop.time() - began >= WORK_SECONDS

    play(scene)


def test_a_job_of_a_worker_thread_delays_its_result_and_is_no_long_iteration() -> None:
    async def scene(world: MeteredWorld) -> None:
        with ThreadPoolExecutor(1) as pool:

            async def waits() -> None:
                began = world.now
                await asyncio.get_running_loop().run_in_executor(pool, work)
                assert world.now - began >= WORK_SECONDS

            await world.loop.spawn(world.process("one"), waits())

    times = play(scene).loop.times
    assert times.jobs["one"] >= WORK_SECONDS
    assert times.longest["one"] < WORK_SECONDS / 2


def test_iterations_that_are_not_measured_do_not_count_for_the_longest_one() -> None:
    async def scene(world: MeteredWorld) -> None:
        world.loop.is_measured = lambda process: process.name != "one"

        async def busy() -> None:
            work()

        await world.loop.spawn(world.process("one"), busy())

    times = play(scene).loop.times
    assert "one" not in times.longest
    assert times.of("one") >= WORK_SECONDS


OPERATIONS = [Create("/a/b", b"data"), Set("/a", b"more data", 3), Delete("/c"), Check("/d", 1)]
NO_ACL = b""


def test_requests_have_the_size_that_the_real_protocol_gives_them() -> None:
    traffic = Traffic()
    multi = Multi(OPERATIONS, [b"\0" * 27] * len(OPERATIONS))
    traffic.note_packet(Request(1, multi))
    assert traffic.write_bytes == traffic.largest_write
    assert traffic.write_bytes == pytest.approx(12 + len(multi.serialize()), abs=16)
    assert (traffic.writes, traffic.operations) == (1, len(OPERATIONS))
    reads = MultiRead(["/brokers/topics/one", "/brokers/topics/two"])
    traffic.note_packet(Request(2, reads))
    assert traffic.read_bytes == pytest.approx(12 + len(reads.serialize()), abs=16)
    traffic.note_packet(Request(3, GetData("/a", None)))
    assert (traffic.reads, traffic.nodes_read) == (2, 3)


def test_responses_and_notifications_are_counted() -> None:
    traffic = Traffic()
    stat = Stat(0, 1, 1, 0)
    traffic.note_packet(Answer(1, [(b"12345", stat), (b"", stat)], 1))
    assert traffic.read_bytes == 20 + 2 * (9 + 4 + 68) + 5
    traffic.note_packet(Answer(2, [stat, None], 1))
    assert traffic.write_bytes == 20 + 2 * 9 + 68
    traffic.note_packet(Changed("/a"))
    traffic.note_packet(ChangedTogether(["/a", "/b"]))
    assert (traffic.notifications, traffic.notified_bytes) == (3, 3 * (28 + 2))
    traffic.reset()
    assert traffic == Traffic()


def state(leader: int, isr: list[int]) -> TreeNode:
    data = f'{{"leader":{leader},"leader_epoch":1,"isr":{isr},"controller_epoch":1,"version":1}}'
    return TreeNode(data.encode(), 0, 1, 1)


def test_states_are_followed_from_write_to_write() -> None:
    states = PartitionStates()
    path = "/brokers/topics/t/partitions/{}/state"
    states.note({path.format(0): state(1, [1, 2, 3]), path.format(1): state(2, [1, 2, 3]), "/brokers/topics/t": None})
    assert states.partitions == 2
    assert states.are_in_sync
    assert states.are_led_without({3})
    assert not states.are_led_without({2})
    assert not states.count_on_none_of({2})
    states.note({path.format(1): state(-1, [2])})
    assert not states.are_led_without({3})
    assert not states.are_in_sync
    states.note({path.format(1): state(3, [3, 1])})
    assert states.are_led_without({2})
    assert not states.are_in_sync
    assert not states.count_on_none_of({2})
    states.note({path.format(0): state(1, [1, 3])})
    assert states.count_on_none_of({2})
    states.note({path.format(0): state(1, [1, 3, 2])})
    states.note({path.format(1): state(3, [3, 1, 2])})
    assert states.are_in_sync


SIZES = [Size(5, 900, 1, 1), Size(10, 900, 1, 1), Size(10, 1_900, 1, 1), Size(20, 3_900, 1, 1)]
"""With the internal topics there are 1,000, 1,000, 2,000 and 4,000 partitions."""


def test_a_law_is_found_again() -> None:
    figures = [(size, 3.0 * (size.partitions + 100) + 0.5 * size.brokers * (size.partitions + 100)) for size in SIZES]
    found = fit(("P", "B P"), figures)
    assert found.coefficients == pytest.approx({"P": 3.0, "B P": 0.5})
    assert found.error == pytest.approx(0, abs=1e-6)
    assert found.at(Size(100, 99_900, 1, 1)) == pytest.approx(53 * 100_000)


def test_a_term_that_would_be_negative_is_left_out() -> None:
    found = fit(("P", "1"), [(size, 2.0 * (size.partitions + 100) - 50) for size in SIZES])
    assert set(found.coefficients) == {"P"}
    assert 0 < found.error < 0.1


def test_a_law_that_does_not_fit_says_so() -> None:
    random = Random(1)
    found = fit(("P",), [(size, size.brokers**2 * (1 + random.random())) for size in SIZES])
    assert found.error > 0.5


def test_the_table_has_all_rows_and_sizes() -> None:
    measured = []
    for size in SIZES:
        each = Measured(size)
        for row in (row for rows in ROWS.values() for row in rows):
            each.episodes.setdefault(row.episode, {})[row.figure] = float(size.partitions)
        measured.append(Measured.of_json(each.as_json()))
    lines = tables(measured, Size(100, 99_900, 1, 1)).splitlines()
    assert len(lines) == 2 + len(ROWS) + sum(map(len, ROWS.values()))
    assert {line.count("|") for line in lines} == {len(SIZES) + 5}
    assert "20 / 3,900" in lines[0]
    assert lines[-1].split(" | ")[-1].startswith(ESTIMATED)
    assert tables([], SIZES[0]) == ""
    measured[-1].episodes.pop("idle")
    of_target = tables(measured, measured[-1].size).splitlines()
    assert {line.count("|") for line in of_target} == {len(SIZES) + 4}, "the target has the last column alone"
    assert ESTIMATED not in of_target[3]
    (idle,) = (line for line in of_target if line.startswith("| CPU of all brokers in a second"))
    assert ESTIMATED in idle, "an episode that was not measured is estimated"
