"""Tests `oncelog txns`, `oncelog explain`, `oncelog dump` and `admin.transactions` against live brokers.

The module `hanging` creates the hanging transactions.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import TIMEOUT_SECONDS, Record, eventually
from hanging import UNGUARDED, hung
from librdkafka_client import Librdkafka
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset
from warm_commands import run_oncelog_text

from oncelog import Admin, TopicPartition
from oncelog.admin.hanging import Hang
from oncelog.errors import ErrorCode, KafkaError

EXPIRING = {"transactional.id.expiration.ms": "1", "transaction.remove.expired.transaction.cleanup.interval.ms": "50"}
ABORT_INTERVAL_MS = 10_000
CLIENT_ID = "billing-app"
TIMEOUT_MS = 45_000
BUSY_TRANSACTIONS = 60


@pytest.fixture
def raw(unguarded: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(unguarded.port) as client:
        yield client


def oncelog(broker: BrokerProcess, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_oncelog_text(*arguments, "--bootstrap-server", broker.address)
    assert done.returncode == code, done.stderr
    return done


def as_json(broker: BrokerProcess, *arguments: str) -> Any:
    return json.loads(oncelog(broker, *arguments, "--output", "json").stdout)


def live_producer(broker: BrokerProcess, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": transactional_id,
            "client.id": CLIENT_ID,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


# --- E32


def test_e32_a_hanging_transaction_is_found_explained_and_aborted(
    unguarded: BrokerProcess, raw: RawClient, topic: str
) -> None:
    txn = hung(raw, topic)
    client = Librdkafka(unguarded.address)
    client.produce(topic, [Record(b"behind")])

    (found,) = as_json(unguarded, "txns", "find-hanging", topic)
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 2)
    assert (found["producer_id"], found["producer_epoch"]) == txn.producer
    assert (found["hangs"], found["transactional_id"], found["state"]) == ("not held", topic, "CompleteCommit")
    assert found["late"] is True, "the raw client's records are of 2023"
    everywhere = as_json(unguarded, "txns", "find-hanging", "--broker-id", "1")
    assert found in everywhere

    (explained,) = as_json(unguarded, "explain", f"{topic}:0")
    assert (explained["last_stable_offset"], explained["high_watermark"], explained["held_back"]) == (2, 4, 2)
    pinned_by = explained["pinned_by"]
    assert (pinned_by["start_offset"], pinned_by["hangs"], pinned_by["ends_by_ms"]) == (2, "not held", None)
    words = oncelog(unguarded, "explain", topic, "--output", "table").stdout
    command = f"oncelog txns abort {topic}:0 --start-offset 2"
    assert pinned_by["to_end_it"] == command
    assert f"To end it    {command}" in words
    plain = oncelog(unguarded, "explain", topic, "--output", "plain").stdout.rstrip("\n").split("\t")
    assert plain[:5] == [topic, "0", "2", "4", "2"]
    assert "not held" in plain

    refused = oncelog(unguarded, "txns", "abort", f"{topic}:0", "--start-offset", "0", code=1)
    assert "INVALID_TXN_STATE" in refused.stderr
    assert last_stable_offset(raw, topic) == 2
    done = oncelog(unguarded, *command.split()[1:])
    assert f"its last stable offset is now {last_stable_offset(raw, topic)}" in done.stderr
    assert is_stable(raw, topic)
    assert as_json(unguarded, "txns", "find-hanging", topic) == []
    assert as_json(unguarded, "explain", topic)[0]["pinned_by"] is None
    committed = client.consume(topic, 2, isolation="read_committed")
    client.close()
    assert [(each.offset, each.value) for each in committed][1:] == [(3, b"behind")]
    assert committed[0].offset == 0

    txn.write(topic)  # the producer of the aborted transaction may continue, too
    assert txn.end() == ErrorCode.NONE


def test_e32_a_transaction_of_a_forgotten_transactional_id_hangs(broker_factory: BrokerFactory, topic: str) -> None:
    broker = broker_factory({**UNGUARDED, **EXPIRING}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        txn.take_over()
        assert txn.produce(topic) == ErrorCode.NONE
        eventually(lambda: not as_json(broker, "txns", "list"), "the transactional id has expired")
        (found,) = as_json(broker, "txns", "find-hanging", topic)
        assert (found["hangs"], found["transactional_id"]) == ("unknown", None)
        assert "no coordinator knows its producer id" in oncelog(broker, "explain", topic, "--output", "table").stdout
        oncelog(
            broker,
            *("txns", "abort", f"{topic}:0", "--producer-id", str(found["producer_id"])),
            *("--producer-epoch", str(found["producer_epoch"]), "--coordinator-epoch", str(found["coordinator_epoch"])),
        )
        assert is_stable(client, topic)


def test_e32_hanging_offset_commits_are_found_and_aborted(unguarded: BrokerProcess, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    group = f"group-{topic}"
    txn.find_group(group)
    eventually(lambda: txn.commit_offset(group, topic, 7) == ErrorCode.NONE, "the group has a coordinator")
    found = [
        each for each in as_json(unguarded, "txns", "find-hanging") if each["producer_id"] == txn.producer.producer_id
    ]
    assert [each["topic"] for each in found] == ["__consumer_offsets"]
    where = f"__consumer_offsets:{found[0]['partition']}"
    oncelog(unguarded, "txns", "abort", where, "--start-offset", str(found[0]["start_offset"]))
    assert all(each["producer_id"] != txn.producer.producer_id for each in as_json(unguarded, "txns", "find-hanging"))
    assert as_json(unguarded, "explain", where)[0]["pinned_by"] is None


async def test_e32_transactions_that_come_and_go_are_never_taken_for_hanging(broker: BrokerProcess, topic: str) -> None:
    """The command searches while transactions end all the time, so it may read inconsistent states; it must not report
    these as hanging transactions.
    """
    with RawClient(broker.port) as client:
        client.create_topic(topic, 3)
    is_done = threading.Event()

    def work() -> None:
        with RawClient(broker.port) as client:
            txn = RawTransactions(client, topic)
            txn.take_over()
            for _ in range(BUSY_TRANSACTIONS):
                txn.write(topic, 0, 1, 2)
                assert txn.end() == ErrorCode.NONE
        is_done.set()

    worker = asyncio.get_running_loop().run_in_executor(None, work)
    searches, here = 0, [TopicPartition(topic, index) for index in range(3)]
    async with Admin(broker.address) as admin:
        while not is_done.is_set() and not worker.done():
            assert await admin.transactions.find_hanging(here) == []
            searches += 1
    await worker
    assert searches > 3


# --- a live producer


def test_s42_an_open_transaction_is_explained_while_its_producer_lives(broker: BrokerProcess, topic: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
    producer = live_producer(broker, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0

    first, second = as_json(broker, "explain", topic)
    assert (second["pinned_by"], second["held_back"]) == (None, 0)
    pinned_by = first["pinned_by"]
    assert (pinned_by["transactional_id"], pinned_by["state"], pinned_by["hangs"]) == (topic, "Ongoing", None)
    assert (pinned_by["client_id"], pinned_by["client_host"]) == (CLIENT_ID, "/127.0.0.1")
    assert (pinned_by["start_offset"], first["last_stable_offset"], first["held_back"]) == (0, 0, 1)
    assert before_ms <= pinned_by["start_time_ms"] <= time.time_ns() // 1_000_000
    assert before_ms <= pinned_by["first_timestamp_ms"] <= time.time_ns() // 1_000_000
    assert pinned_by["ends_by_ms"] == pinned_by["start_time_ms"] + TIMEOUT_MS + ABORT_INTERVAL_MS
    words = oncelog(broker, "explain", topic, "--output", "table").stdout
    assert f"for the transaction of transactional id {topic!r}" in words
    assert f"Client       {CLIENT_ID} at 127.0.0.1" in words
    assert f"{topic}-1: no record is held back up to the end, offset 0." in words

    (described,) = as_json(broker, "txns", "describe", topic)
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", TIMEOUT_MS)
    assert (described["producer_id"], described["producer_epoch"]) == (
        pinned_by["producer_id"],
        pinned_by["producer_epoch"],
    )
    assert described["partitions"] == [f"{topic}:0"]
    assert (described["client_id"], described["client_host"]) == (CLIENT_ID, "/127.0.0.1")
    assert as_json(broker, "txns", "find-hanging", topic) == []
    assert "0 hanging transactions" in oncelog(broker, "txns", "find-hanging").stderr
    kept = oncelog(broker, "txns", "abort", f"{topic}:0", "--start-offset", "0", code=1)
    assert "is still its coordinator's to end" in kept.stderr

    producer.commit_transaction(TIMEOUT_SECONDS)
    with RawClient(broker.port) as client:
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
    words = oncelog(broker, "explain", topic, "--output", "table").stdout
    assert words == f"{topic}: no record is held back in 2 of its partitions.\n"


def test_a_fenced_producer_holds_nothing_back(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        producer = live_producer(broker, topic)
        producer.begin_transaction()
        producer.produce(topic, b"open")
        assert producer.flush(TIMEOUT_SECONDS) == 0
        done = oncelog(broker, "txns", "fence", topic)
        assert done.stderr == f"fenced {topic}\n"
        assert is_stable(client, topic)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.commit_transaction(TIMEOUT_SECONDS)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    (described,) = as_json(broker, "txns", "describe", topic)
    assert (described["state"], described["start_time_ms"]) == ("Empty", None)
    missing = oncelog(broker, "txns", "fence", f"{topic}-typo", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in missing.stderr


def test_a_client_is_known_again_when_it_was_heard_of_after_a_restart(
    broker_factory: BrokerFactory, topic: str
) -> None:
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        txn.take_over()
        txn.write(topic)
        assert as_json(broker, "explain", topic)[0]["pinned_by"]["client_id"] == "raw"
    broker.stop()
    broker.start()
    pinned_by = as_json(broker, "explain", topic)[0]["pinned_by"]
    assert (pinned_by["transactional_id"], pinned_by["client_id"], pinned_by["client_host"]) == (topic, None, None)
    with RawClient(broker.port) as client:
        txn.client = client
        eventually(lambda: txn.end() == ErrorCode.NONE, "the coordinator is loaded")
    (described,) = as_json(broker, "txns", "describe", topic)
    assert (described["client_id"], described["client_host"]) == ("raw", "/127.0.0.1")


def test_transactions_and_producers_are_listed(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        open_, idle = RawTransactions(client, f"{topic}-open"), RawTransactions(client, f"{topic}-idle")
        open_.take_over()
        idle.take_over()
        open_.write(topic)
        mine = ["--transactional-id-pattern", f"{topic}-.*"]
        listed = as_json(broker, "txns", "list", *mine)
        assert [(each["transactional_id"], each["state"], each["coordinator"]) for each in listed] == [
            (f"{topic}-idle", "Empty", 1),
            (f"{topic}-open", "Ongoing", 1),
        ]
        producer_id = open_.producer.producer_id
        for filters in (["--state", "Ongoing"], ["--producer-id", str(producer_id)], ["--duration-filter", "0"]):
            found = as_json(broker, "txns", "list", *mine, *filters)
            assert [each["producer_id"] for each in found] == [producer_id], filters
        assert as_json(broker, "txns", "list", *mine, "--duration-filter", "3600000") == []
        (state,) = as_json(broker, "txns", "describe-producers", f"{topic}:0")
        assert (state["producer_id"], state["last_sequence"], state["transaction_start_offset"]) == (producer_id, 0, 0)
        assert open_.end(False) == ErrorCode.NONE
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        (state,) = as_json(broker, "txns", "describe-producers", topic, "--broker-id", "1")
        assert (state["coordinator_epoch"], state["transaction_start_offset"]) == (0, None)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["explain", "nosuch"], 1, "UNKNOWN_TOPIC_OR_PARTITION: nosuch: unknown topic"),
        (["txns", "describe", "nosuch"], 1, "TRANSACTIONAL_ID_NOT_FOUND: nosuch"),
        (["txns", "abort", "nosuch:0", "--start-offset", "0"], 1, "unknown topic"),
        (["txns", "list", "--state", "Nonsense"], 1, "unknown transaction state: Nonsense"),
        (["txns", "list", "--transactional-id-pattern", "("], 1, "INVALID_REGULAR_EXPRESSION"),
        (["txns", "find-hanging", "--broker-id", "9"], 2, "unknown broker 9: the brokers are 1"),
        (["txns", "describe-producers", "nosuch", "--broker-id", "9"], 2, "unknown broker 9"),
    ],
)
def test_missing_transactions_are_named(broker: BrokerProcess, arguments: list[str], code: int, message: str) -> None:
    done = oncelog(broker, *arguments, code=code)
    assert message in " ".join(done.stderr.split())


def test_a_partition_that_does_not_exist_is_named_at_once(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    for command in (
        ["explain", f"{topic}:7"],
        ["txns", "abort", f"{topic}:7", "--start-offset", "0"],
        ["groups", "reset", "g", "--topic", f"{topic}:7", "--to", "0"],
    ):
        done = oncelog(broker, *command, code=2)
        assert f"{topic} has the partitions 0 to 0, not 7" in " ".join(done.stderr.split())


async def test_the_library_gives_the_same_explanation(unguarded: BrokerProcess, raw: RawClient, topic: str) -> None:
    txn = hung(raw, topic)
    here = TopicPartition(topic, 0)
    async with Admin(unguarded.address) as admin:
        explained = (await admin.transactions.explain([here]))[here]
        assert explained.hang is Hang.NOT_HELD
        assert explained.pinned_by is not None
        assert explained.pinned_by.producer.producer_id == txn.producer.producer_id
        assert explained.limits.max_timeout_ms == 900_000
        aborted = await admin.transactions.abort(here, explained.pinned_by.start_offset)
        assert aborted.producer_id == txn.producer.producer_id
        with pytest.raises(KafkaError):
            await admin.transactions.abort(here, explained.pinned_by.start_offset)
        assert (await admin.transactions.explain([here]))[here].pinned_by is None


# --- S57


def test_s57_the_transaction_log_holds_what_real_transactions_did(broker_factory: BrokerFactory) -> None:
    broker = broker_factory({"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "1"}).start()
    transactional_id = f"billing-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        client.create_topic("orders", 2)
        producer = live_producer(broker, transactional_id)
        for ends in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce("orders", b"x", partition=partition)
            assert producer.flush(TIMEOUT_SECONDS) == 0
            producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition("orders", 0, 1)], group_of(broker), TIMEOUT_SECONDS
            )
            ends(TIMEOUT_SECONDS)
        eventually(lambda: is_stable(client, "orders") and is_stable(client, "orders", 1), "all is complete")
        (described,) = as_json(broker, "txns", "describe", transactional_id)
    broker.stop()
    rows = dumped(broker.data, "--print-data-log")
    log = [
        row["payload"]["data"]
        for row in rows
        if "/__transaction_state-" in row["file"] and row["key"]["data"] == {"transactionalId": transactional_id}
    ]
    states = [value["transactionStatus"] for value in log]
    assert [state for n, state in enumerate(states) if n == 0 or states[n - 1] != state] == [0, 1, 2, 4, 1, 3, 5]
    assert {(value["producerId"], value["transactionTimeoutMs"]) for value in log} == {
        (described["producer_id"], TIMEOUT_MS)
    }
    for prepared in (value for value in log if value["transactionStatus"] in (2, 3)):
        assert prepared["transactionPartitions"] == [
            {"topic": "__consumer_offsets", "partitionIds": [0]},
            {"topic": "orders", "partitionIds": [0, 1]},
        ]
        assert prepared["transactionStartTimestampMs"] > 0
    offsets = [row for row in rows if "/__consumer_offsets-0/" in row["file"] and "key" in row]
    assert [(row["key"]["data"], row["payload"]["data"]["offset"]) for row in offsets] == [
        ({"group": "readers", "topic": "orders", "partition": 0}, 1)
    ] * 2
    by_option = dumped(*sorted(broker.data.glob("__transaction_state-*/*.log")), "--transaction-log-decoder")
    assert [
        row["payload"]["data"] for row in by_option if row["key"]["data"]["transactionalId"] == transactional_id
    ] == log


def group_of(broker: BrokerProcess) -> Any:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "readers"})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def dumped(*arguments: object) -> list[dict[str, Any]]:
    """The records."""
    done = run_oncelog_text("dump", "--json", *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return [row for line in done.stdout.splitlines() if (row := json.loads(line))["kind"] == "record"]
