"""Tests that no producer id is assigned twice when connections to ZooKeeper break, its servers fail, or processes
replace each other (S1-S4, with an unknown outcome of a write).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.zookeeper.cutting_proxy import CuttingProxy, Moment
from tests.support.zookeeper.frames import Direction, Frame, Op

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.metadata.membership.producer_ids import BLOCK_SIZE, ProducerIdManager
from oncelog_broker.metadata.stores.store import ConnectionLost
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_protocol.errors import KafkaError

ROOT = Path(__file__).parents[3]
SEED = 20261122
BROKER_IDS = pytest.mark.parametrize("broker_ids", [(1, 2, 3), (1, 1, 1)], ids=["three ids", "one id thrice"])


@contextmanager
def takers(connect: str, broker_ids: Sequence[int], blocks: int, cuts: float) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one process for each id, each behind its own proxy, which disconnects it from time to time."""
    with ExitStack() as stack:
        started = []
        for number, broker_id in enumerate(broker_ids):
            proxy = stack.enter_context(CuttingProxy(connect, seed=SEED + number))
            proxy.cut_by_chance(cuts, directions=tuple(Direction))
            command = [sys.executable, "-m", "tests.support.zookeeper.id_taker"]
            process = subprocess.Popen(
                [*command, proxy.connect_string, str(broker_id), str(blocks)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            stack.callback(process.kill)
            stack.enter_context(process)
            started.append(process)
        yield started


def blocks_of(processes: Sequence[subprocess.Popen[str]], seconds: float) -> list[list[int]]:
    deadline = time.monotonic() + seconds
    outputs = [process.communicate(timeout=deadline - time.monotonic())[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [[int(line) for line in output.splitlines()] for output in outputs]


def check(taken: Sequence[Sequence[int]], blocks: int) -> None:
    everybodys = [first for each in taken for first in each]
    assert len(everybodys) == blocks * len(taken)
    assert len(set(everybodys)) == len(everybodys), "a block was handed out twice"
    assert all(first % BLOCK_SIZE == 0 for first in everybodys)


@BROKER_IDS
def test_s1_no_block_is_given_twice_when_connections_are_cut(zookeeper: str, broker_ids: tuple[int, ...]) -> None:
    blocks = 40
    with takers(zookeeper, broker_ids, blocks, cuts=0.06) as processes:
        check(blocks_of(processes, 90), blocks)


@pytest.mark.soak
@pytest.mark.timeout(600)
@BROKER_IDS
def test_s1_no_block_is_given_twice_when_servers_and_takers_stop(
    ensemble: Ensemble, broker_ids: tuple[int, ...]
) -> None:
    blocks, rng = 334, random.Random(SEED)
    chroot = f"/ids-{time.monotonic_ns()}"
    is_over = threading.Event()
    with takers(ensemble.connect_string + chroot, broker_ids, blocks, cuts=0.03) as processes:

        def trouble() -> None:
            while not is_over.wait(rng.uniform(0.5, 2.0)):
                number, what = rng.randint(1, 3), rng.random()
                if what < 0.3:
                    ensemble.server(number).kill()
                    is_over.wait(rng.uniform(0.1, 0.6))
                    ensemble.restart(number)
                    continue
                pid = rng.choice(processes).pid if what < 0.7 else ensemble.server(number).process.pid  # type: ignore[union-attr]
                try:
                    os.kill(pid, signal.SIGSTOP)
                    is_over.wait(rng.uniform(0.3, 2.5))
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass  # the process has already allocated all its blocks of producer ids

        troublemaker = threading.Thread(target=trouble)
        troublemaker.start()
        try:
            check(blocks_of(processes, 500), blocks)
        finally:
            is_over.set()
            troublemaker.join()


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("direction", "moment"),
    [
        (Direction.REQUESTS, Moment.BEFORE),
        (Direction.REQUESTS, Moment.AFTER),
        (Direction.ANSWERS, Moment.BEFORE),
    ],
    ids=["the write is lost", "the write is late", "the answer is lost"],
)
async def test_s1_a_paused_process_and_its_successor_have_no_id_in_common(
    zookeeper: str, direction: Direction, moment: Moment, rounds: int
) -> None:
    """The first process is paused in the middle of its write. Another process with the same broker id allocates a
    block, and the first process continues: the node then has exactly the value that the first process tried to write.
    """
    with CuttingProxy(zookeeper) as proxy:
        paused_store = await ZooKeeperStore.open(proxy.connect_string, session_timeout=30)
        successor_store = await ZooKeeperStore.open(zookeeper, session_timeout=30)
        given: list[int] = []
        for _ in range(rounds):
            await until_connected(paused_store)
            paused, successor = ProducerIdManager(paused_store, 1), ProducerIdManager(successor_store, 1)
            stop = Stop()
            proxy.cut_when(stop.matches, moment, direction=direction)
            writing = asyncio.ensure_future(paused.generate())
            await asyncio.to_thread(stop.reached.wait, 60)
            given += [await successor.generate() for _ in range(BLOCK_SIZE)]
            stop.is_over.set()
            given += await ids_of(paused, writing)
        assert len(given) == len(set(given)) == 2 * rounds * BLOCK_SIZE
        await paused_store.close()
        await successor_store.close()


class Stop:
    """Pauses the proxy in front of ZooKeeper at the next write of the only client that uses this proxy."""

    def __init__(self) -> None:
        self.reached, self.is_over = threading.Event(), threading.Event()

    def matches(self, frame: Frame) -> bool:
        if frame.op != Op.MULTI:
            return False
        self.reached.set()
        self.is_over.wait(60)
        return True


async def until_connected(store: ZooKeeperStore) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.sync()
            except ConnectionLost:
                await asyncio.sleep(0.01)


async def ids_of(paused: ProducerIdManager, writing: asyncio.Future[int]) -> list[int]:
    """Return the ids of an entire block after the write has succeeded."""
    ids: list[int] = []
    answers = [writing]
    while len(ids) < BLOCK_SIZE:
        try:
            ids.append(await answers.pop() if answers else await paused.generate())
        except KafkaError:
            await asyncio.sleep(0.01)
    return ids
