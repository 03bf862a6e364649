"""Tests that objects whose work has ended are freed by reference counts alone, because the garbage collector skips
frozen objects (`runtime/garbage.py`).
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from foreign_clients import eventually
from fuzz.cases import cases
from fuzz.run import SETTINGS, Fuzzer
from fuzz.world import World
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from raw_transactions import RawTransactions

from oncelog_broker.broker import Broker
from oncelog_broker.config.load import load_broker_config
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

KINDS = ("LocalLog", "Segment", "PartitionLog", "Partition", "ProducerState", "BrokerConnection")
SEED, CASES = 8, 200
BATCH = build_batch([Record(0, 1_700_000_000_000, None, b"x", [])])


def alive() -> Counter[str]:
    """Return the number of existing objects of each kind."""
    found = (type(each) for each in gc.get_objects())
    return Counter(
        kind.__name__ for kind in found if kind.__name__ in KINDS and str(kind.__module__).startswith("oncelog_")
    )


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def work(port: int) -> None:
    """Use connections, topics with their logs, and a transaction; at the end all of them are closed or deleted, except
    the transactional id.
    """
    with RawClient(port, 30.0) as client:
        transactions = RawTransactions(client, "tx")
        transactions.take_over()
        for number in range(3):
            client.create_topic(f"t{number}", 4)
            client.call(produce_request(f"t{number}", 0, BATCH), ApiKey.PRODUCE, PRODUCE_VERSION)
        client.call(transactions.add_request("t0", 0, 1, 2, 3), ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        names = [f"t{number}" for number in range(3)]
        client.call(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), ApiKey.DELETE_TOPICS, 5)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """Start the broker in this process, where its objects can be counted."""
    settings = {**SETTINGS, "log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    here = Broker(load_broker_config(None, {}, [f"{key}={value}" for key, value in settings.items()]))
    await here.start()
    yield here
    await here.stop()


async def test_connections_and_deleted_topics_need_no_collection(broker: Broker, no_collections: None) -> None:
    port = broker.advertised[0].port
    others = alive()["BrokerConnection"]  # of brokers that earlier tests of this process have not let go
    await asyncio.to_thread(work, port)
    with RawClient(port, 30.0):
        await asyncio.to_thread(
            eventually, lambda: alive()["BrokerConnection"] == others + 1, "this one's alone is left", 30
        )
        before = alive()
        assert before["LocalLog"], "that of the transactions"
    await asyncio.to_thread(work, port)
    await asyncio.to_thread(eventually, lambda: alive() <= before, "all of it is freed", 30)


@dataclass
class Here:
    """Represents the broker under test for the fuzzer; this broker runs in the test's own process."""

    port: int
    log: Path
    is_running: bool = True


@pytest.mark.parametrize("cases_of_each_time", [CASES, pytest.param(5 * CASES, marks=pytest.mark.soak)])
async def test_requests_of_every_api_need_no_collection(
    broker: Broker, tmp_path: Path, no_collections: None, cases_of_each_time: int
) -> None:
    """Neither refused nor unreadable requests may leave garbage cycles: an error that is stored with its traceback
    keeps all local variables of its frames alive.
    """
    here = Here(broker.advertised[0].port, tmp_path / "log")
    here.log.touch()
    world = World()
    await asyncio.to_thread(world.prepare, here.port)
    fuzzer = Fuzzer(here, world)
    odd = cases(world, SEED)
    # The first run is not compared, because it also creates objects that are kept permanently after their first use.
    await asyncio.to_thread(fuzzer.run, odd, count=cases_of_each_time, seconds=60.0)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await asyncio.to_thread(fuzzer.run, odd, count=2 * cases_of_each_time, seconds=60.0)
        gc.collect()
        left = Counter(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("oncelog_"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not fuzzer.outcome.defects
    assert not left
