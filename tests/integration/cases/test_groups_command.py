"""Tests `oncelog groups` and `admin.groups` against a live broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from raw_client import RawClient
from warm_commands import run_oncelog_text

from oncelog import Admin, Consumer, ConsumerGroupMetadata, NewTopic, Producer, TopicPartition
from oncelog.errors import ErrorCode, KafkaError
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest

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
    rows = [line.split("\t") for line in listed.stdout.splitlines() if line.startswith(group)]
    assert rows == [[group, "Empty", "", "classic"]]
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


async def test_members_without_partitions_are_shown(broker: BrokerProcess, topic: str, group: str) -> None:
    """The group has three members, one of which is static, and two partitions."""
    await fill(broker, topic)
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                Consumer(
                    broker.address, group_id=group, client_id=f"c{n}", group_instance_id="static" if n == 0 else None
                )
            )
            for n in range(3)
        ]
        for member in members:
            member.subscribe([topic])
        while sorted(len(member.assignment()) for member in members) != [0, 1, 1]:
            await asyncio.gather(*(member.poll(50) for member in members))
        (described,) = json.loads(oncelog(broker, "groups", "describe", group, "--output", "json").stdout)
        lines = oncelog(broker, "groups", "describe", group).stdout.splitlines()
        table = oncelog(broker, "groups", "describe", group, "--output", "table").stdout
    shown = {member["client"]: member for member in described["members"]}
    assert sorted(shown) == ["c0", "c1", "c2"]
    assert [shown[f"c{n}"]["instance_id"] for n in range(3)] == ["static", None, None]
    assert sorted(len(member["partitions"]) for member in shown.values()) == [0, 1, 1]
    assert described["protocol_type"] == "consumer"
    assert described["protocol"] == "range"
    assert described["coordinator"] == 1
    rows = [line.split("\t") for line in lines]
    assert {len(row) for row in rows} == {13}
    assert sorted(row[8] for row in rows) == ["c0", "c1", "c2"]
    assert [row[2:7] for row in rows if row[2] == "-"] == [["-"] * 5], "one that reads nothing"
    assert [row[10] for row in rows if row[8] == "c0"] == ["static"]
    assert f"{group}: Stable" in table
    for name in ("Members", "Instance", "static", "c0", "c1", "c2"):
        assert name in table


def test_a_group_that_is_no_consumers_shows_its_members(broker: BrokerProcess, group: str) -> None:
    """Kafka Connect and schema registries use groups of this kind."""
    with RawClient(broker.port) as client:
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="v0", metadata=b"{}")]
        join = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "sr",
            "protocols": protocols,
        }
        member = client.call(JoinGroupRequest(member_id="", **join), ApiKey.JOIN_GROUP, 4).member_id
        joined = client.call(JoinGroupRequest(member_id=member, **join), ApiKey.JOIN_GROUP, 4)
        assignments = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"{}")]
        sync = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=member, assignments=assignments
        )
        client.call(sync, ApiKey.SYNC_GROUP, 2)
        done = oncelog(broker, "groups", "describe", group)
        (described,) = json.loads(oncelog(broker, "groups", "describe", group, "--output", "json").stdout)
    (row,) = [line.split("\t") for line in done.stdout.splitlines()]
    assert row[:10] == [group, "Stable", "-", "-", "-", "-", "-", member, "raw", "/127.0.0.1"]
    assert (described["protocol_type"], described["protocol"]) == ("sr", "v0")
    assert [(each["client"], each["partitions"]) for each in described["members"]] == [("raw", [])]


async def test_a_group_that_only_has_offsets_or_nothing_says_so(broker: BrokerProcess, topic: str, group: str) -> None:
    await fill(broker, topic)
    unknown = oncelog(broker, "groups", "describe", group)
    assert unknown.returncode == 1
    assert f"GROUP_ID_NOT_FOUND: {group}: Group {group} not found." in unknown.stderr
    await commit(broker, group, topic, 1)
    async with Admin(broker.address) as admin:
        await admin.groups.delete_offsets(group, [TopicPartition(topic, 0)])
    described = oncelog(broker, "groups", "describe", group, "--headings")
    headings, line = described.stdout.splitlines()
    assert line.split("\t") == [group, "Empty", topic, "1", "1", "10", "9", *["-"] * 6]
    assert headings.split("\t")[:7] == ["Group", "State", "Topic", "Partition", "Committed", "End offset", "Lag"]
    assert len(headings.split("\t")) == len(line.split("\t"))
    assert described.stderr == f"{group}: lag 9 in 1 partition\n"
    (document,) = json.loads(oncelog(broker, "groups", "describe", group, "-o", "json").stdout)
    assert document["lag"] == 9


async def test_s37_offsets_that_an_open_transaction_holds_are_explained(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    """A process died with pending offsets in its open transaction. Its successor waits, and `oncelog groups describe`
    says for which transaction and until when.
    """
    await fill(broker, topic)
    await commit(broker, group, topic, 4)
    other = f"{group}-other"
    metadata = ConsumerGroupMetadata(group, -1, "", None)
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with (
        Producer(broker.address, transactional_id=f"{group}-dead", transaction_timeout_ms=120_000) as dead,
        Producer(broker.address, transactional_id=f"{group}-live") as live,
        Admin(broker.address) as admin,
    ):
        async with dead.transaction(), live.transaction():
            await dead.send_offsets({here: 7}, metadata)
            await live.send_offsets({there: 8}, ConsumerGroupMetadata(other, -1, "", None))
            assert await admin.groups.unstable_offsets(group, [here, there]) == {here}
            (described,) = json.loads(oncelog(broker, "groups", "describe", group, "--output", "json").stdout)
            plain = oncelog(broker, "groups", "describe", group).stdout.splitlines()
            table = oncelog(broker, "groups", "describe", group, "--output", "table").stdout
            explained = json.loads(oncelog(broker, "explain", topic, "--output", "json").stdout)
            lines = oncelog(broker, "explain", topic, "--output", "table").stdout
            of_partition = oncelog(broker, "explain", f"{topic}:1").stdout.rstrip("\n").split("\t")
        after = oncelog(broker, "groups", "describe", group, "--output", "table").stdout
        nothing = json.loads(oncelog(broker, "explain", topic, "--output", "json").stdout)
    first, second = described["partitions"]
    held = first["held_by"]
    assert (held["transactional_id"], held["offset"], held["state"]) == (f"{group}-dead", 7, "Ongoing")
    assert held["ends_by_ms"] >= held["start_time_ms"] + 120_000
    assert first["offset_is_held"] is True
    assert (second["offset_is_held"], second["held_by"]) == (False, None)
    assert [line.split("\t")[-2:] for line in plain] == [[f"{group}-dead", str(held["ends_by_ms"])], ["-", "-"]]
    sentence = f"the open transaction of transactional id '{group}-dead' holds its offsets of {topic}:0."
    for text in (table, lines):
        assert sentence in text
        assert "Open since   20" in text
        assert "Ends         by itself at 20" in text
        assert f"oncelog txns fence {group}-dead" in text
    assert f"'{group}-live' holds its offsets of {topic}:1." in lines
    assert f"'{group}-live'" not in table, "another group's"
    holders = [[each["transactional_id"] for each in partition["held_offsets"]] for partition in explained]
    assert holders == [[f"{group}-dead"], [f"{group}-live"]]
    assert of_partition[-3:-1] == [other, f"{group}-live"]
    assert "holds its offsets" not in after
    assert [partition["held_offsets"] for partition in nothing] == [[], []]


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
