"""Measuring clusters of different sizes: virtual time that contains real work, bytes of the store, growth laws."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any

import pytest
from kazoo.protocol.serialization import GetData
from tests.unit.simulation.worlds import SmallWorld

from oncelog_broker.metadata.model import metadata_copy
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.stores.store import Check, Create, Delete, Set, Stat
from oncelog_broker.metadata.stores.tree import TreeNode
from oncelog_broker.metadata.stores.zookeeper.requests import Multi, MultiRead
from oncelog_broker.runtime.steps import run_steps
from oncelog_simulation.disk import DiskTroubles, SimulatedDisk
from oncelog_simulation.ensemble import Answer, Changed, ChangedTogether, Request
from oncelog_simulation.guard import guarded
from oncelog_simulation.scale import metered_loop
from oncelog_simulation.scale.figures_file import FiguresFile, load
from oncelog_simulation.scale.filling import Filling, Unexpected
from oncelog_simulation.scale.growth import fit
from oncelog_simulation.scale.lasting_storage import LastingStorage, PackedInode
from oncelog_simulation.scale.measuring import Measured, measure
from oncelog_simulation.scale.metadata_copies import copies_shared
from oncelog_simulation.scale.metered_loop import MeteredLoop
from oncelog_simulation.scale.partition_states import PartitionStates
from oncelog_simulation.scale.report import ESTIMATED, ROWS, tables
from oncelog_simulation.scale.size import Size
from oncelog_simulation.scale.traffic import Traffic
from oncelog_simulation.scale.world import ScaleWorld

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


def test_work_that_no_broker_does_takes_no_virtual_time_and_is_not_measured() -> None:
    async def scene(world: MeteredWorld) -> None:
        async def busy() -> None:
            began = world.loop.time()
            with world.loop.free_of_charge():
                work()
            assert world.loop.time() - began < WORK_SECONDS / 4

        def job() -> None:
            with world.loop.free_of_charge():
                work()

        with ThreadPoolExecutor(1) as pool:

            async def by_loop_and_thread() -> None:
                await busy()
                await asyncio.get_running_loop().run_in_executor(pool, job)

            await world.loop.spawn(world.process("one"), by_loop_and_thread())

    world = play(scene)
    assert world.loop.times.of("one") < WORK_SECONDS / 2
    assert world.loop.times.longest["one"] < WORK_SECONDS / 2


def test_cancelled_timers_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metered_loop, "TURNS_OF_TIMERS", 10)

    async def scene(world: MeteredWorld) -> None:
        fired: list[str] = []
        for _ in range(100):
            asyncio.get_running_loop().call_later(1000, fired.append, "cancelled").cancel()
        asyncio.get_running_loop().call_later(1000, fired.append, "kept")
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(world.loop._heap) < 20
        await asyncio.sleep(2000)
        assert fired == ["kept"]

    play(scene)


class Held:
    """An object that a process holds."""


def test_the_objects_of_dead_processes_are_released_without_an_effect() -> None:
    effects: list[str] = []
    held: list[weakref.ref[Held]] = []

    async def scene(world: MeteredWorld) -> None:
        async def hold(name: str) -> None:
            one, task = Held(), asyncio.current_task()
            one.cycle = (one, task)  # type: ignore[attr-defined]
            held.append(weakref.ref(one))
            asyncio.get_running_loop().call_later(1000, effects.append, f"timer of {name}: {one}")
            asyncio.get_running_loop().call_later(1000, lambda: effects.append(f"{one}"))
            try:
                await asyncio.sleep(10)
                effects.append(f"{name} has slept")
            finally:
                asyncio.get_running_loop().call_soon(effects.append, f"{name} has ended")

        dying, other = world.process("dying"), world.process("other")
        tasks = [world.loop.spawn(process, hold(process.name)) for process in (dying, other)]
        await asyncio.sleep(1)
        world.loop.kill(dying)
        del tasks[0]
        assert held[0]() is not None
        world.loop.release_dead()
        assert held[0]() is None
        assert held[1]() is not None
        assert world.loop.current is world.loop.director
        await asyncio.gather(*tasks)
        await asyncio.sleep(2000)

    play(scene)
    assert [effect for effect in effects if "0x" not in effect] == ["other has slept", "other has ended"]
    assert len(effects) == 4, "and the two timers of the process that lives"


def test_a_dead_broker_is_released_though_its_peers_do_not_know_yet() -> None:
    async def scene(world: ScaleWorld) -> None:
        supervisors = world.spawn_supervisors()
        await world.until("all brokers serve", lambda: len(world.running) == len(world.brokers))
        dead = next(iter(world.brokers.values()))
        broker = weakref.ref(dead.broker)
        dead.hold()
        dead.kill()
        await world.release_dead()
        assert broker() is None
        for supervisor in supervisors:
            supervisor.cancel()

    world = ScaleWorld(Size(3, 10, 1, 1))
    with guarded(world.loop):
        try:
            world.loop.run_until_complete(scene(world))
        finally:
            world.end()


def test_a_lasting_storage_keeps_no_changes_for_a_power_cut() -> None:
    storage = LastingStorage(nullcontext)
    storage.make_directories("/data/topic-0")
    storage.make_file("/data/topic-0/0.log").write(0, b"records")
    assert storage._journal == []
    storage.rename("/data/topic-0/0.log", "/data/topic-0/1.log")
    assert bytes(storage.file("/data/topic-0/1.log").data) == b"records"


def test_a_lasting_storage_packs_the_copies_of_the_metadata() -> None:
    storage = LastingStorage(nullcontext)
    storage.make_directories("/data")
    disk_of = SmallWorld(1)
    process = disk_of.process("one")
    disk = SimulatedDisk(storage, DiskTroubles(), process, disk_of.loop, lambda: None, {})
    data = b'{"path":"/brokers/topics/one"}\n' * 10_000
    disk.replace_file(f"/data/{metadata_copy.FILE}", data, private=True)
    disk.replace_file(f"/data/{metadata_copy.FILE}", data + b"end", private=True)
    assert disk.read_file(f"/data/{metadata_copy.FILE}") == data + b"end"
    assert disk.size(f"/data/{metadata_copy.FILE}") == len(data) + 3
    packed = storage.file(f"/data/{metadata_copy.FILE}")
    assert isinstance(packed, PackedInode)
    assert len(packed._packed) < len(data) / 10
    packed.truncate(10)
    packed.truncate(12)
    packed.write(12, b"more")
    assert bytes(packed.data) == data[:10] + b"\0\0more"
    disk_of.end()


def image_of_topics() -> ClusterImage:
    states = {number: PartitionState((1, 2, 3), (1, 2), 1, 5 + number) for number in range(300)}
    topics = {name: Topic(name, name.encode() * 4, states) for name in ("aaaa", "bbbb")}
    return ClusterImage("cluster", topics=topics, topic_configs={"aaaa": {"cleanup.policy": "compact"}})


def test_a_copy_of_the_metadata_that_is_built_topic_by_topic_is_the_same() -> None:
    image = image_of_topics()
    nodes = run_steps(metadata_copy.nodes_of(image))
    whole = run_steps(metadata_copy.encode_copy(image.cluster_id, 1_000, nodes))
    with copies_shared():
        parts = run_steps(metadata_copy.nodes_of(image))
        assert run_steps(metadata_copy.encode_copy(image.cluster_id, 1_000, parts)) == whole
    assert run_steps(metadata_copy.nodes_of(image)) == nodes


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


def test_figures_are_kept_after_each_episode(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    FiguresFile(path).put(Measured(SIZES[1], {"start": {"virtual seconds": 1.0}}))
    figures = FiguresFile(path)
    measured = Measured(SIZES[0], {"start": {"virtual seconds": 2.0}})
    world = SmallWorld(1)
    with guarded(world.loop):
        figures.put(measured)
        measured.episodes["topics"] = {"virtual seconds": 3.0}
        figures.put(measured)
    world.end()
    assert load(path) == figures.all == [measured, Measured(SIZES[1], {"start": {"virtual seconds": 1.0}})]
    assert load(tmp_path / "none.json") == []
    FiguresFile(None).put(measured)


def test_a_measurement_that_fails_has_kept_the_episodes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(filling: Filling) -> None:
        raise Unexpected

    monkeypatch.setattr(Filling, "make_topics", fail)
    kept: list[list[str]] = []
    with pytest.raises(Unexpected):
        measure(Size(3, 10, 1, 1), keep=lambda measured: kept.append(list(measured.episodes)))
    assert kept == [["start", "store"]]
