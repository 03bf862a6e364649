"""`oncelog groups` and `admin.groups` against a live broker."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from warm_commands import run_oncelog_text

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.errors import ErrorCode, KafkaError

TIMEOUT_SECONDS = 60


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def oncelog(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_oncelog_text(*arguments, "--bootstrap-server", broker.address)


async def fill(broker: BrokerProcess, topic: str, records: int = 10, partitions: int = 2) -> None:
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=partitions)])
    async with Producer(broker.address) as producer:
        for number in range(records * partitions):
            await producer.send(
                topic, b"%d" % number, partition=number % partitions, timestamp_ms=1_700_000_000_000 + number * 1000
            )
        await producer.flush()


async def commit(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    async with Consumer(broker.address, group_id=group, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(2)]
        consumer.assign(partitions)
        await consumer.commit(dict.fromkeys(partitions, offset))


async def test_a_group_is_listed_described_and_its_lag_shown(broker: BrokerProcess, topic: str, group: str) -> None:
    await fill(broker, topic)
    await commit(broker, group, topic, 4)
    listed = oncelog(broker, "groups", "list")
    assert [line.split("\t") for line in listed.stdout.splitlines() if line.startswith(group)] == [[group, "Empty", ""]]
    described = json.loads(oncelog(broker, "groups", "describe", group, "--output", "json").stdout)
    assert described[0]["state"] == "Empty"
    rows = [(row["partition"], row["committed"], row["end offset"], row["lag"]) for row in described[0]["partitions"]]
    assert rows == [(0, 4, 10, 6), (1, 4, 10, 6)]


async def test_a_member_is_shown_with_what_it_reads(broker: BrokerProcess, topic: str, group: str) -> None:
    await fill(broker, topic)
    async with Consumer(broker.address, group_id=group, auto_offset_reset="earliest", client_id="reader") as consumer:
        consumer.subscribe([topic])
        seen = 0
        while seen < 20:
            seen += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
        await consumer.commit()
        async with Admin(broker.address) as admin:
            described = (await admin.groups.describe([group]))[group]
            assert described.state == "Stable"
            assert [member.client_id for member in described.members] == ["reader"]
            assert sorted(described.members[0].assignment) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            with pytest.raises(KafkaError) as refused:
                await admin.groups.delete([group])
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(KafkaError):
                await admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 1})


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [10, 10]),
        (["--to", "7"], [7, 7]),
        (["--to", "@1700000004000"], [2, 2]),
        (["--shift-by", "-3"], [1, 1]),
        (["--shift-by", "100"], [10, 10]),
    ],
)
async def test_offsets_are_reset(
    broker: BrokerProcess, topic: str, group: str, how: list[str], expected: list[int]
) -> None:
    await fill(broker, topic)
    await commit(broker, group, topic, 4)
    planned = oncelog(broker, "groups", "reset", group, *how)
    assert planned.returncode == 0, planned.stderr
    assert [line.split("\t") for line in planned.stdout.splitlines()] == [
        [topic, str(index), "4", str(offset)] for index, offset in enumerate(expected)
    ]
    async with Admin(broker.address) as admin:
        before = await admin.groups.offsets(group)
        assert {key.partition: value.offset for key, value in before.items()} == {0: 4, 1: 4}
        done = oncelog(broker, "groups", "reset", group, *how, "--execute")
        assert done.returncode == 0, done.stderr
        after = await admin.groups.offsets(group)
        assert [after[TopicPartition(topic, index)].offset for index in range(2)] == expected


async def test_a_plan_goes_to_a_file_and_comes_from_one(
    broker: BrokerProcess, topic: str, group: str, tmp_path: Path
) -> None:
    await fill(broker, topic)
    await commit(broker, group, topic, 4)
    plan = tmp_path / "plan.csv"
    oncelog(broker, "groups", "reset", group, "--to", "earliest", "--topic", f"{topic}:1", "--to-file", str(plan))
    assert plan.read_text() == f"{topic},1,0\n"
    done = oncelog(broker, "groups", "reset", group, "--from-file", str(plan), "--execute")
    assert done.returncode == 0, done.stderr
    async with Admin(broker.address) as admin:
        offsets = await admin.groups.offsets(group)
    assert {key.partition: value.offset for key, value in offsets.items()} == {0: 4, 1: 0}


async def test_groups_and_offsets_are_deleted(broker: BrokerProcess, topic: str, group: str) -> None:
    await fill(broker, topic)
    await commit(broker, group, topic, 4)
    async with Admin(broker.address) as admin:
        await admin.groups.delete_offsets(group, [TopicPartition(topic, 0)])
        assert list(await admin.groups.offsets(group)) == [TopicPartition(topic, 1)]
        done = oncelog(broker, "groups", "delete", group, "--yes")
        assert done.returncode == 0, done.stderr
        assert await admin.groups.offsets(group) == {}
    again = oncelog(broker, "groups", "delete", group, "--yes")
    assert again.returncode == 1
    assert "Traceback" not in again.stderr


def test_a_reset_that_says_nothing_or_too_much_is_a_usage_error(broker: BrokerProcess) -> None:
    for arguments in ([], ["--to", "earliest", "--shift-by", "1"], ["--to", "nonsense"]):
        assert oncelog(broker, "groups", "reset", "whoever", *arguments).returncode == 2
