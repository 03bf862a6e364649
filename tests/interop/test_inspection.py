"""Tests the inspection of transactions (KIP-664): Kafka's own tools with oncelog's broker, and oncelog's tools with
Apache Kafka.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka
from broker_process import BrokerFactory, BrokerProcess
from conftest import RELEASES, or_skip
from foreign_clients import TIMEOUT_SECONDS, eventually
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset
from transactional_clients import LibrdkafkaProducer

from oncelog_protocol.errors import ErrorCode

UNGUARDED = {"transaction.partition.verification.enable": "false"}
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
DUMP = "kafka.tools.DumpLogSegments"
TOOL_SECONDS = 120


@pytest.fixture(params=RELEASES)
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> ApacheKafka:
    """An Apache Kafka that is never started: only its tools are used."""
    return or_skip(lambda: ApacheKafka(request.param, tmp_path / "tools"))


@pytest.fixture(scope="module", params=RELEASES)
def unguarded_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka on which transactions can hang."""
    data = tmp_path_factory.mktemp("unguarded") / "data"
    with or_skip(lambda: ApacheKafka(request.param, data, UNGUARDED)) as kafka:
        yield kafka


def hung(client: RawClient, topic: str) -> RawTransactions:
    """Return the producer of a transaction that hangs at the first offset of `topic`."""
    client.create_topic(topic)
    txn = RawTransactions(client, topic)
    txn.take_over()
    eventually(lambda: txn.produce(topic) == ErrorCode.NONE, "the partition has a leader")
    assert not is_stable(client, topic)
    return txn


def oncelog(address: str, *arguments: str) -> Any:
    command = [str(Path(sys.executable).parent / "oncelog"), *arguments, "--bootstrap-server", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_e32_kafkas_tool_finds_and_ends_hanging_transactions_of_our_broker(
    tools: ApacheKafka, broker_factory: BrokerFactory, topic: str
) -> None:
    broker = broker_factory(UNGUARDED).start()

    def tool(*arguments: str) -> list[list[str]]:
        """Run the tool, and return the fields of each line except the headings."""
        shown = tools.tool(TRANSACTIONS, ["--bootstrap-server", broker.address, *arguments])
        return [line.split() for line in shown.splitlines() if "\t" in line][1:]

    with RawClient(broker.port) as client:
        hanging = hung(client, topic)
        live = RawTransactions(client, f"{topic}-live")
        live.take_over()
        live.write(topic)
        # The fields that oncelog adds to the description of a transactional id are ignored.
        (described,) = tool("describe", "--transactional-id", live.transactional_id)
        assert described[:5] == ["1", live.transactional_id, str(live.producer.producer_id), "0", "Ongoing"]
        assert described[-1] == f"{topic}-0"
        assert {line[0] for line in tool("list")} == {topic, live.transactional_id}
        (found,) = tool("find-hanging", "--topic", topic)
        assert found[:3] == [topic, "0", str(hanging.producer.producer_id)]
        tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert last_stable_offset(client, topic) == 1, "the live one is next"


def test_e32_hanging_transactions_of_apache_kafka_are_found_explained_and_ended(
    unguarded_kafka: ApacheKafka, topic: str
) -> None:
    address = unguarded_kafka.address
    with RawClient(unguarded_kafka.port) as client:
        hanging = hung(client, topic)
        live = RawTransactions(client, f"{topic}-live")
        live.take_over()
        live.write(topic)
        (found,) = oncelog(address, "txns", "find-hanging", topic, "--output", "json")
        assert (found["producer_id"], found["start_offset"]) == (hanging.producer.producer_id, 0)
        assert (found["hangs"], found["transactional_id"], found["state"]) == ("not held", topic, "Empty")
        (explained,) = oncelog(address, "explain", topic, "--output", "json")
        assert explained["pinned_by"]["to_end_it"] == f"oncelog txns abort {topic}:0 --start-offset 0"
        assert [each["transactional_id"] for each in explained["later"]] == [live.transactional_id]
        oncelog(address, "txns", "abort", f"{topic}:0", "--start-offset", "0")
        assert last_stable_offset(client, topic) == 1
        (explained,) = oncelog(address, "explain", topic, "--output", "json")
        pinned_by = explained["pinned_by"]
        assert (pinned_by["transactional_id"], pinned_by["hangs"]) == (live.transactional_id, None)
        assert pinned_by["client_id"] is None, "Apache Kafka does not tell"
        assert pinned_by["ends_by_ms"] == pinned_by["start_time_ms"] + pinned_by["timeout_ms"] + 10_000
        (described,) = oncelog(address, "txns", "describe", live.transactional_id, "--output", "json")
        assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}:0"])
        oncelog(address, "txns", "fence", live.transactional_id)
        eventually(lambda: is_stable(client, topic), "the fenced transaction is aborted")
        assert oncelog(address, "txns", "find-hanging", topic, "--output", "json") == []


def test_s57_the_internal_topics_are_shown_as_by_kafkas_tool(tmp_path: Path) -> None:
    """The test uses 4.x, because earlier tools used their own words for the transaction log."""
    tools = or_skip(lambda: ApacheKafka(RELEASES[-1], tmp_path / "tools"))
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, RawClient(broker.port) as client:
        client.create_topic("orders", 2)
        for number in range(3):
            producer = LibrdkafkaProducer(broker.address, f"billing-{number}")
            for ends in (producer.commit, producer.abort):
                producer.begin()
                producer.send("orders", b"x", partition=number % 2)
                producer.send_offset("orders", number, f"readers-{number}")
                ends()
            producer.close()
        open_ = RawTransactions(client, "open é", is_v2=True)
        open_.take_over()
        open_.write("orders", 0, 1)
        assert open_.end() == ErrorCode.NONE
        eventually(lambda: is_stable(client, "orders"), "all is complete")
    for topic, option in (
        ("__transaction_state", "--transaction-log-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        files = [path for path in sorted(data.glob(f"{topic}-*/*.log")) if path.stat().st_size]
        assert files
        named = ["--files", ",".join(map(str, files)), option]
        theirs = tools.tool(DUMP, named)
        command = [str(Path(sys.executable).parent / "oncelog"), "dump", *named]
        ours = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True).stdout
        assert ours.splitlines() == theirs.splitlines()
        assert ours.count(" payload: ") > 3
