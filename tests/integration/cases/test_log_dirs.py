"""Tests DescribeLogDirs, which returns the contents of the data directories, with oncelog's client and `oncelog
log-dirs`.
"""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from broker_process import BrokerProcess
from raw_client import RawClient, produce_request
from tests.support.storage import make_batch
from warm_commands import run_oncelog_text

from oncelog.admin import Admin, LogDirectory, StoredReplica
from oncelog.cluster import TopicPartition
from oncelog.errors import KafkaError
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

PARTITIONS = 3
RECORD = bytes(make_batch())


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """Create a topic whose partition 1 has a batch, and return its name."""
    with RawClient(broker.port) as client:
        client.create_topic(topic, PARTITIONS)
        client.call(produce_request(topic, 1, RECORD), ApiKey.PRODUCE, 9)
    return topic


def described(broker: BrokerProcess, request: DescribeLogDirsRequest, version: int = 5) -> DescribeLogDirsResponse:
    with RawClient(broker.port) as client:
        response: DescribeLogDirsResponse = client.call(request, ApiKey.DESCRIBE_LOG_DIRS, version)
    return response


def test_a_directory_says_what_it_holds_and_how_much_room_there_is(broker: BrokerProcess, filled: str) -> None:
    (result,) = described(broker, DescribeLogDirsRequest()).results
    room = os.statvfs(broker.data)
    assert (result.error_code, result.log_dir) == (0, str(broker.data))
    assert result.total_bytes == room.f_blocks * room.f_frsize
    assert 0 < result.usable_bytes <= result.total_bytes
    assert result.is_cordoned is False
    (topic,) = (topic for topic in result.topics if topic.name == filled)
    assert {each.partition_index: each.partition_size for each in topic.partitions} == {0: 0, 1: len(RECORD), 2: 0}
    assert {(each.offset_lag, each.is_future_key) for each in topic.partitions} == {(0, False)}


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_the_log_directories_of_some_partitions_are_described(broker: BrokerProcess, filled: str, version: int) -> None:
    asked = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(
        topics=[asked(topic=filled, partitions=[1, 9, 1]), asked(topic="none", partitions=[0])]
    )
    (result,) = described(broker, request, version).results
    found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics]
    assert found == [(filled, [1])]


def test_our_client_describes_log_directories(broker: BrokerProcess, filled: str) -> None:
    async def ask() -> dict[int, dict[str, LogDirectory | KafkaError]]:
        async with Admin(broker.address) as admin:
            return await admin.describe_log_dirs()

    (found,) = asyncio.run(ask()).values()
    directory = found[str(broker.data)]
    assert isinstance(directory, LogDirectory)
    assert directory.replicas[TopicPartition(filled, 1)] == StoredReplica(len(RECORD), 0, is_future=False)
    assert directory.size >= len(RECORD)


def test_the_command_describes_log_directories(broker: BrokerProcess, filled: str) -> None:
    def run(*options: str) -> str:
        done = run_oncelog_text("log-dirs", "--bootstrap-server", broker.address, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (line,) = run("--output", "plain").splitlines()
    assert line.split()[1] == str(broker.data)
    replicas = [line.split()[2:] for line in run("--output", "plain", "--partitions").splitlines()]
    assert [replica for replica in replicas if replica[0] == filled] == [
        [filled, str(index), str(len(RECORD)) if index == 1 else "0", "0"] for index in range(PARTITIONS)
    ]
    (directory,) = json.loads(run("--output", "json"))
    assert {"topic": filled, "partition": 1, "bytes": len(RECORD), "offset_lag": 0, "is_future": False} in (
        directory["replicas"]
    )
    assert "Directory" in run("--output", "table")
