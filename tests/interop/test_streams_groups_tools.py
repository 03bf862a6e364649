"""Tests Kafka's own tools with streams groups (KIP-1071): `kafka-streams-groups` describes, resets and deletes a group,
and `kafka-dump-log` reads the records of the group.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from conftest import or_skip
from raw_client import RawClient
from streams_members import QUICK, StreamsMember, commit, word_count

from oncelog.admin import Admin, NewTopic
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest

RELEASE = "4.3.1"
GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
PARTITIONS = 2
RECORD = re.compile(r'key: \{"type":"(\d+)","data":(\{.*?\})\} payload: (.*)')
OFFSET = 1
METADATA, MEMBER, TARGET, TARGET_MEMBER, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
"""Types of the records of streams groups."""


@pytest.fixture
def tools(tmp_path: Path) -> ApacheKafka:
    """An Apache Kafka that is never started: only its tools are used."""
    return or_skip(lambda: ApacheKafka(RELEASE, tmp_path / "tools"))


def create_topic(address: str, name: str) -> None:
    async def create() -> None:
        async with Admin(address) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS, 1)])

    asyncio.run(create())


def values_by_type(dumped: str) -> dict[int, list[Any]]:
    """Return the values of the records in the output of `kafka-dump-log` by record type; a tombstone is None."""
    values: dict[int, list[Any]] = {}
    for kind, _, payload in RECORD.findall(dumped):
        values.setdefault(int(kind), []).append(None if payload == "<DELETE>" else json.loads(payload)["data"])
    return values


def test_tools_describe_reset_delete_and_dump_a_group(tools: ApacheKafka, tmp_path: Path) -> None:
    data = tmp_path / "data"

    def groups(*arguments: str) -> list[list[str]]:
        """Run `kafka-streams-groups`, and return the fields of each line."""
        shown = tools.tool(GROUPS, ["--bootstrap-server", broker.address, *arguments])
        return [line.split() for line in shown.splitlines() if line.strip()]

    with BrokerProcess(data, QUICK) as broker, RawClient(broker.port) as client:
        create_topic(broker.address, "lines")
        client.call(FindCoordinatorRequest(coordinator_keys=["app"]), ApiKey.FIND_COORDINATOR, 6)
        member = StreamsMember(client, "app", "member-1", word_count("lines", "app"))
        member.join()
        member.until_it_has(2 * PARTITIONS)
        commit(member, "lines", 5)
        assert groups("--list") == [["app"]]
        epoch = str(member.epoch)
        _, state = groups("--describe", "--group", "app", "--state", "--verbose")
        assert state == ["app", broker.address, "(1)", "Stable", epoch, epoch, "1"]
        _, shown = groups("--describe", "--group", "app", "--members", "--verbose")
        assert shown[:8] == ["app", epoch, "0", "member-1", "streams", epoch, "member-1", "raw"]
        assert " ".join(shown[8:]) == "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];"
        lines = groups("--describe", "--group", "app", "--offsets", "--verbose")
        assert ["app", "lines", "0", "5"] in [line[:4] for line in lines]
        member.epoch = -1
        member.beat()
        *_, reset = groups(
            "--reset-offsets", "--group", "app", "--input-topic", "lines:0", "--to-earliest", "--execute"
        )
        assert reset == ["app", "lines", "0", "0"]
        *_, deleted = groups("--delete", "--group", "app")
        assert deleted[-1] == "successful."
    files = [path for path in sorted(data.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    values = values_by_type(tools.tool(DUMP, ["--files", ",".join(map(str, files)), "--offsets-decoder"]))
    assert {METADATA, MEMBER, TARGET, TARGET_MEMBER, CURRENT, TOPOLOGY} <= values.keys()
    assert all(each[-1] is None for each in values.values()), "the group is deleted"
    assert [value and value["offset"] for value in values[OFFSET]] == [5, 0, None]
    assert [part["subtopologyId"] for part in values[TOPOLOGY][0]["subtopologies"]] == ["0", "1"]
    tasks = [{"subtopologyId": name, "partitions": [0, 1]} for name in ("0", "1")]
    assert values[TARGET_MEMBER][-2]["activeTasks"] == tasks
    current = values[CURRENT][-2]
    assert current["memberEpoch"] == int(epoch)
    assert current["activeTasks"] == [{**task, "assignmentEpochs": [int(epoch)] * 2} for task in tasks]
    assert current["activeTasksPendingRevocation"] == []
