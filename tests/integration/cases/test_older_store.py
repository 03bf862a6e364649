"""Tests a single broker whose metadata store is older than its logs, or has unreadable nodes. The broker starts and
reports the problem, and no acknowledged record is lost.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from broker_process import BrokerFactory
from raw_client import RawClient

from oncelog import Consumer, Producer, TopicPartition

TOPIC = "orders"
PLACE = TopicPartition(TOPIC, 0)


async def send(address: str, *values: bytes) -> None:
    """Send each record with a new producer."""
    for value in values:
        async with Producer(address) as producer:
            await producer.send_and_wait(TOPIC, value)


async def read(address: str, count: int, group: str | None = None) -> list[bytes]:
    """Read `count` records from the group's committed offset and commit them; without a group, read from the
    beginning.
    """
    found: list[bytes] = []
    async with Consumer(address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        if group is None:
            consumer.assign([PLACE])
        else:
            consumer.subscribe([TOPIC])
        async with asyncio.timeout(60):
            while len(found) < count:
                found += [record.value or b"" for records in (await consumer.poll(200)).values() for record in records]
        if group is not None:
            await consumer.commit()
    return found


@pytest.mark.usefixtures("in_a_file")
@pytest.mark.parametrize("way", ["put back", "made anew twice"])
def test_s75_s77_e43_e44_a_store_that_is_older_than_the_logs_gives_out_no_id_and_no_epoch_again(
    broker_factory: BrokerFactory, tmp_path: Path, way: str
) -> None:
    """The test restores a backup of the store, as the broker itself recommends for a damaged `metadata.db`."""
    with broker_factory() as broker:
        store, backup = broker.data / "metadata.db", tmp_path / "backup"
        with RawClient(broker.port) as client:
            client.create_topic(TOPIC)
        asyncio.run(send(broker.address, b"1"))
        # create __consumer_offsets, so that the backup of the metadata contains this topic
        assert asyncio.run(read(broker.address, 1, "group")) == [b"1"]
        assert broker.stop() == 0
        shutil.copy(store, backup)
        if way == "made anew twice":
            store.unlink()
        for values in ((b"2", b"3"), (b"4", b"5")):
            broker.start()
            asyncio.run(send(broker.address, *values))
            if b"2" in values:
                assert broker.stop() == 0
        assert asyncio.run(read(broker.address, 4, "group")) == [b"2", b"3", b"4", b"5"]
        assert broker.stop() == 0
        store.unlink()
        if way == "put back":
            shutil.copy(backup, store)
        broker.start()
        asyncio.run(send(broker.address, b"6", b"7"))
        assert asyncio.run(read(broker.address, 2, "group")) == [b"6", b"7"]
        assert asyncio.run(read(broker.address, 7)) == [b"%d" % number for number in range(1, 8)]
        if way == "put back":
            assert "the metadata store is older than the logs" in broker.log.read_text()


def put(store: Path, path: str, config: dict[str, str] | None) -> None:
    """Write settings, valid or not, into the store of a stopped broker."""
    data = b"{" if config is None else json.dumps({"version": 1, "config": config}).encode()
    connection = sqlite3.connect(store)
    for parent in ("/config", path.rpartition("/")[0]):
        connection.execute("INSERT OR IGNORE INTO node VALUES (?, x'', 0, 1)", (parent,))
    connection.execute("INSERT OR REPLACE INTO node VALUES (?, ?, 0, 1)", (path, data))
    connection.commit()
    connection.close()


@pytest.mark.usefixtures("in_a_file")
def test_s76_e45_settings_that_cannot_be_read_keep_no_broker_from_starting_and_no_record_is_deleted(
    broker_factory: BrokerFactory,
) -> None:
    settings = {"log.retention.check.interval.ms": "100", "log.segment.bytes": "200", "log.retention.ms": "1"}
    with broker_factory({**settings, "log.retention.ms": "-1"}) as broker:
        with RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            client.create_topic("other")
        asyncio.run(send(broker.address, b"1", b"2", b"3"))
        assert broker.stop() == 0
        broker.settings |= settings  # the broker's setting, which applies if the topic's own setting cannot be read
        put(broker.data / "metadata.db", f"/config/topics/{TOPIC}", {"retention.ms": "7 days"})
        put(broker.data / "metadata.db", "/config/topics/other", None)
        put(broker.data / "metadata.db", "/config/brokers/<default>", {"num.io.threads": "x", "message.max.bytes": "x"})
        broker.start()
        asyncio.run(send(broker.address, b"4"))
        assert asyncio.run(read(broker.address, 4)) == [b"1", b"2", b"3", b"4"]
        logged = broker.log.read_text()
        assert "cannot be read: Invalid value '7 days' for configuration retention.ms" in logged
        assert f"path=/config/topics/{TOPIC}" in logged
