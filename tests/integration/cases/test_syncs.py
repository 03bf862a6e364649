"""Tests that the broker thread that serves clients never waits for fsync, which may take arbitrarily long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions

from oncelog.admin import Admin, AlterConfig, ConfigResource, NewTopic
from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer

WATCHED = """
import os, sys, threading, traceback
def watched(sync):
    def call(file):
        if os.path.exists({since!r}):
            on_loop = threading.current_thread() is threading.main_thread()
            with open({on_loop!r} if on_loop else {elsewhere!r}, "a") as seen:
                seen.write("".join(traceback.format_stack(limit=12)))
        return sync(file)
    return call
if "serve" in sys.orig_argv:
    os.fsync, os.fdatasync = watched(os.fsync), watched(os.fdatasync)
"""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.scheduler.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}
SMALL_SEGMENTS = {"segment.bytes": "16384"}


def test_no_sync_holds_up_the_loop(
    broker_factory: BrokerFactory, sabotage: Callable[[str], None], tmp_path: Path
) -> None:
    since, on_loop, elsewhere = (tmp_path / name for name in ("since", "on_loop", "elsewhere"))
    sabotage(WATCHED.format(since=str(since), on_loop=str(on_loop), elsewhere=str(elsewhere)))
    broker = broker_factory(SETTINGS).start()
    since.touch()
    with RawClient(broker.port) as raw:
        txn = RawTransactions(raw, "txn")
        raw.create_topic("orders", 3, **SMALL_SEGMENTS)
        txn.take_over()
        for _ in range(3):
            txn.write("orders", 0, 1, 2, value=bytes(10_000))
            txn.end()
    asyncio.run(consume_and_administer(broker))
    eventually(elsewhere.exists, "it is synced in other threads")
    since.unlink()
    assert not on_loop.exists(), on_loop.read_text()


async def consume_and_administer(broker: BrokerProcess) -> None:
    first = TopicPartition("orders", 0)
    async with Consumer(broker.address, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while not await consumer.poll(1000):
            pass
        await consumer.commit()
    async with Admin(broker.address) as admin:
        await admin.delete_records({first: 2})
        await admin.incremental_alter_configs({ConfigResource.topic("orders"): [AlterConfig("retention.ms", "1")]})
        await admin.create_topics([NewTopic("other", 5, 1)])
        await admin.delete_topics(["other"])
