"""Tests `oncelog shares` and `admin.shares` against a live broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from broker_process import BrokerProcess
from warm_commands import run_oncelog_text

from oncelog import Admin, NewTopic, Producer, ShareConsumer, ShareRecord, TopicPartition
from oncelog.errors import ErrorCode, KafkaError

TIMEOUT_SECONDS = 60
RECORDS = 10


def oncelog(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_oncelog_text(*arguments, "--bootstrap-server", broker.address)


async def fill(broker: BrokerProcess, topic: str, group: str) -> None:
    """Create a topic with one partition and records, and a share group that reads it from the beginning."""
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1)])
    setting = await asyncio.to_thread(
        oncelog, broker, "configs", "set", "--group", group, "share.auto.offset.reset=earliest"
    )
    assert setting.returncode == 0, setting.stderr
    async with Producer(broker.address) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number)
        await producer.flush()


@asynccontextmanager
async def member(
    broker: BrokerProcess, topic: str, group: str
) -> AsyncIterator[tuple[ShareConsumer, list[ShareRecord]]]:
    """Yield a share consumer and its first records."""
    async with ShareConsumer(broker.address, group_id=group, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        records: list[ShareRecord] = []
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not records:
                records = list(await consumer.poll(1_000))
        yield consumer, records


async def accept_four(broker: BrokerProcess, topic: str, group: str) -> None:
    """Accept the first four records, and release the others."""
    async with member(broker, topic, group) as (consumer, records):
        for record in records:
            (record.accept if record.offset < 4 else record.release)()
        assert set((await consumer.commit()).values()) == {None}


async def test_a_share_group_is_listed_and_its_start_offset_and_lag_are_shown(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    await fill(broker, topic, group)
    await accept_four(broker, topic, group)
    settings = oncelog(broker, "configs", "describe", "--group", group).stdout.splitlines()
    assert [line.split("\t")[1:4] for line in settings] == [["share.auto.offset.reset", "earliest", "group"]]
    listed = oncelog(broker, "shares", "list").stdout.splitlines()
    assert [line.split("\t") for line in listed if line.startswith(group)] == [[group, "Empty"]]
    described = oncelog(broker, "shares", "describe", group)
    assert described.stdout.splitlines()[-1].split("\t") == [group, "Empty", topic, "0", "4", "6"]


async def test_members_of_a_share_group_are_described(broker: BrokerProcess, topic: str, group: str) -> None:
    await fill(broker, topic, group)
    async with member(broker, topic, group):
        described = await asyncio.to_thread(oncelog, broker, "shares", "describe", group, "--output", "json")
        (found,) = json.loads(described.stdout)
        assert found["state"] == "Stable"
        (one,) = found["members"]
        assert one["partitions"] == [f"{topic}:0"]
        refused = await asyncio.to_thread(oncelog, broker, "shares", "delete", group, "--yes")
        assert refused.returncode == 1
        assert "NON_EMPTY_GROUP" in refused.stderr


async def test_a_share_group_that_is_reset_gets_its_records_again(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    await fill(broker, topic, group)
    await accept_four(broker, topic, group)
    planned = oncelog(broker, "shares", "reset", group, "--to", "2")
    assert planned.stdout.splitlines()[-1].split("\t") == [topic, "0", "4", "2"]
    assert "nothing was changed" in planned.stderr
    assert oncelog(broker, "shares", "reset", group, "--to", "2", "--execute").returncode == 0
    async with member(broker, topic, group) as (_, records):
        assert [(record.offset, record.delivery_count) for record in records] == [(at, 1) for at in range(2, RECORDS)]


async def test_offsets_and_a_share_group_are_deleted(broker: BrokerProcess, topic: str, group: str) -> None:
    await fill(broker, topic, group)
    await accept_four(broker, topic, group)
    async with Admin(broker.address) as admin:
        (found,) = (await admin.shares.offsets(group)).items()
        assert (found[0], found[1].start_offset, found[1].lag) == (TopicPartition(topic, 0), 4, 6)
        assert oncelog(broker, "shares", "delete-offsets", group, topic, "--yes").returncode == 0
        assert await admin.shares.offsets(group) == {}
        assert oncelog(broker, "shares", "delete", group, "--yes").returncode == 0
        with pytest.raises(KafkaError) as raised:
            await admin.shares.describe([group])
        assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
