"""Tests transactions whose frames are late, repeated or concurrent: the last stable offset always advances, and no
aborted record is ever read.

A frame that a network delays is simulated by a frame that is sent later, over another connection. During each scenario
a read_committed consumer reads along (`Watch`), and in the end it must have seen every committed record exactly once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import groupby

import pytest
from broker_process import INTERNAL_PARTITIONS, BrokerFactory, BrokerProcess
from committed_reader import Watch, committed_values, fetch_committed, visible
from foreign_clients import eventually
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from raw_transactions import (
    BOTH,
    RawTransactions,
    content,
    is_stable,
    last_stable_offset,
)
from tests.support.producers import sequenced

from oncelog.metadata.internal_topics import partition_for
from oncelog_broker.coordinator.transaction import records
from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.record import read_records

Sabotage = Callable[[str], None]
ENDS = pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
STABLE_SECONDS = 1.0
"""When nothing blocks the transactions any more, all of them must end within this number of seconds."""
RACES = 60


def settles(client: RawClient, topic: str, *partitions: int) -> None:
    """Wait until the last stable offset reaches the high watermark."""
    for partition in partitions or (0,):
        eventually(
            lambda: is_stable(client, topic, partition),  # noqa: B023
            f"{topic}-{partition} is stable",
            STABLE_SECONDS,
        )


def expected(*values: bytes, commits: bool) -> list[bytes | None]:
    return list(values) if commits else []


# --- E1: the end of a transaction is repeated


@pytest.mark.crossed("commits", "late_commits")
@ENDS
@pytest.mark.parametrize("late_commits", [True, False], ids=["late commit", "late abort"])
def test_e1_a_late_end_leaves_the_next_transaction_whole(
    broker: BrokerProcess, raw: RawClient, topic: str, commits: bool, late_commits: bool
) -> None:
    """KAFKA-17754. With V1 the late commit would commit half of the second transaction, and a late abort would discard
    half of it.
    """
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic, is_v2=True)
    first = txn.take_over()
    with RawClient(broker.port) as slow, Watch(broker.port, topic, 0, 1) as watch:
        txn.write(topic, 0, value=b"first")
        assert txn.end() == 0  # the retry of the delayed frame, which arrives before the delayed frame itself
        txn.write(topic, 0, value=b"second a")
        late = slow.call(txn.end_request(late_commits, first), ApiKey.END_TXN, txn.end_version)
        assert late.error_code == ErrorCode.PRODUCER_FENCED
        assert watch.values(raw) == [b"first"]
        txn.write(topic, 1, value=b"second b")
        assert txn.end(commits) == 0
        settles(raw, topic, 0, 1)
        assert watch.values(raw, 0) == [b"first", *expected(b"second a", commits=commits)]
        assert watch.values(raw, 1) == expected(b"second b", commits=commits)


def test_e1_v1_cannot_tell_a_late_end_and_the_log_stays_live(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    """The test shows a limit of transactions V1 that Kafka also has: all transactions of a producer have the same
    epoch, so a late commit applies to the producer's next transaction. The late commit ends the next transaction in the
    middle, but nothing hangs. A client is safe if it requests a new epoch after a missing response (KIP-360).
    """
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic)
    first = txn.take_over()
    with RawClient(broker.port) as slow:
        txn.write(topic, 0, value=b"first")
        assert txn.end() == 0
        settles(raw, topic)
        txn.write(topic, 0, value=b"second a")
        assert slow.call(txn.end_request(True, first), ApiKey.END_TXN, txn.end_version).error_code == 0
        settles(raw, topic)
        txn.write(topic, 1, value=b"second b")
        assert txn.end(False) == 0
        settles(raw, topic, 0, 1)
        assert (committed_values(raw, topic), committed_values(raw, topic, 1)) == ([b"first", b"second a"], [])

        assert txn.init(shown=txn.producer) == 0
        txn.write(topic, 0, value=b"third")
        late = slow.call(txn.end_request(True, first), ApiKey.END_TXN, txn.end_version)
        assert late.error_code == ErrorCode.PRODUCER_FENCED
        assert txn.end(False) == 0
        settles(raw, topic)
        assert committed_values(raw, topic) == [b"first", b"second a"]


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@ENDS
def test_e1_e20_each_repeated_end_is_answered_alike(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool, commits: bool
) -> None:
    """For a series of transactions, a copy of each EndTxn is sent immediately on another connection: each transaction
    ends once, as requested.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    txn.take_over()
    with RawClient(broker.port) as other, Watch(broker.port, topic) as watch:
        for number in range(10):
            txn.write(topic, value=b"%d" % number)
            other.send(txn.end_request(commits), ApiKey.END_TXN, txn.end_version)
            code = txn.end(commits)
            copy = other.receive().error_code
            assert ErrorCode.NONE in (code, copy)
            assert {code, copy} <= {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}
            if code:
                eventually(lambda: txn.end(commits) == 0, "the retry is answered as the first try was")
        settles(raw, topic)
        assert watch.values(raw) == expected(*(b"%d" % number for number in range(10)), commits=commits)
    assert content(raw, topic) == ["data", "commit" if commits else "abort"] * 10


# --- E2: late records


def late_produce(
    txn: RawTransactions, broker: BrokerProcess, topic: str, partition: int, old: ProducerIdAndEpoch
) -> int:
    """Send a delayed batch of the fenced producer `old`, and return the error code of the response."""
    with RawClient(broker.port) as slow:
        request = txn.produce_request(topic, partition, 1, old, b"late")
        answer = slow.call(request, ApiKey.PRODUCE, txn.produce_version)
        return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.crossed("is_v2", "commits", "next_one")
@BOTH
@ENDS
@pytest.mark.parametrize("next_one", [None, "elsewhere", "taken over"])
def test_e2_a_late_produce_hangs_nothing(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool, commits: bool, next_one: str | None
) -> None:
    """KAFKA-12671, KAFKA-14402: the producer has given up a batch and ended its transaction, and after that the batch
    arrives. When the batch arrives, one of three states exists: no transaction is open, or the open transaction does
    not include the partition, or another producer has taken over.
    """
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    old = txn.take_over()
    with Watch(broker.port, topic, 0, 1) as watch:
        txn.write(topic, 0, value=b"first")
        assert txn.end(commits) == 0
        settles(raw, topic, 0)
        if next_one == "taken over":
            txn.take_over()
        if next_one is not None:
            txn.write(topic, 1, value=b"second")
        is_fenced = is_v2 or next_one == "taken over"
        refused = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_TXN_STATE
        assert late_produce(txn, broker, topic, 0, old) == refused
        assert is_stable(raw, topic, 0)
        if next_one is not None:
            assert txn.end() == 0
            settles(raw, topic, 0, 1)
            assert watch.values(raw, 1) == [b"second"]
        assert watch.values(raw, 0) == expected(b"first", commits=commits)
    assert content(raw, topic, 0) == ["data", "commit" if commits else "abort"]


@BOTH
def test_e2_e18_a_late_produce_of_a_timed_out_transaction_is_refused(
    broker_factory: BrokerFactory, topic: str, is_v2: bool
) -> None:
    broker = broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        with Watch(broker.port, topic) as watch:
            txn = RawTransactions(client, topic, is_v2=is_v2)
            old = txn.take_over(timeout_ms=1000)
            txn.write(topic, value=b"dropped")
            eventually(lambda: is_stable(client, topic), "the transaction is aborted")
            assert late_produce(txn, broker, topic, 0, old) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert is_stable(client, topic)
            txn.take_over()
            txn.write(topic, value=b"kept")
            assert txn.end() == 0
            settles(client, topic)
            assert watch.values(client) == [b"kept"]


# --- partitions that are added late


@pytest.mark.crossed("commits", "goes_on")
@ENDS
@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "stays away"])
def test_e2_a_late_add_partitions_hangs_nothing(
    broker_factory: BrokerFactory, topic: str, commits: bool, goes_on: bool
) -> None:
    """The late AddPartitionsToTxn request begins a transaction of which its producer does not know. The unknown
    transaction blocks no reader, because nothing is written to it, and it ends with the producer's next transaction or
    by its timeout. With transactions V2, clients do not send AddPartitionsToTxn.
    """
    broker = broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}).start()
    with RawClient(broker.port) as client, RawClient(broker.port) as slow:
        client.create_topic(topic, 2)
        with Watch(broker.port, topic, 0, 1) as watch:
            txn = RawTransactions(client, topic)
            txn.take_over(timeout_ms=60_000 if goes_on else 2000)
            txn.write(topic, 0, value=b"first")
            assert txn.end(commits) == 0
            settles(client, topic, 0)
            late = slow.call(txn.add_request(topic, 1), ApiKey.ADD_PARTITIONS_TO_TXN, 3)
            assert late.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
            assert is_stable(client, topic, 0)
            assert is_stable(client, topic, 1)
            if goes_on:
                txn.write(topic, 0, value=b"second")
                assert txn.end(True) == 0
            else:
                eventually(lambda: content(client, topic, 1) == ["abort"], "the unknown transaction times out")
                txn.take_over()
                txn.write(topic, 0, value=b"second")
                assert txn.end(True) == 0
            settles(client, topic, 0, 1)
            assert watch.values(client, 0) == [*expected(b"first", commits=commits), b"second"]
            assert watch.values(client, 1) == []


@BOTH
def test_s41_a_late_add_partitions_of_a_fenced_producer_is_refused(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool
) -> None:
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    old = txn.take_over()
    txn.write(topic, 0)
    txn.take_over()
    txn.write(topic, 0, value=b"new")
    assert txn.add(topic, 1, asking=old) == ErrorCode.PRODUCER_FENCED
    assert txn.end() == 0
    settles(raw, topic, 0, 1)
    assert (committed_values(raw, topic), content(raw, topic, 1)) == ([b"new"], [])


# --- requests of one transaction that the broker handles concurrently


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@ENDS
def test_e3_the_end_races_with_the_last_records_without_loss(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool, commits: bool
) -> None:
    """KAFKA-14884: the coordinator confirms that a batch belongs to an open transaction, but the transaction's marker
    arrives before the batch is appended. In either order, the batch is either part of the transaction or refused, and
    never follows the marker.
    """
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    txn.take_over()
    kept: list[bytes] = []
    arrived = 0
    with RawClient(broker.port) as other, Watch(broker.port, topic, 0) as watch:
        for number in range(RACES):
            txn.write(topic, 1)
            if not is_v2:
                assert txn.add(topic, 0) == 0
            value, sequence = b"%d" % number, 0 if is_v2 else arrived
            late = txn.produce_request(topic, 0, sequence, txn.producer, value)
            barrier = threading.Barrier(2)
            codes: list[int] = []

            def produce(late=late, barrier=barrier, codes=codes) -> None:
                barrier.wait()
                answer = other.call(late, ApiKey.PRODUCE, txn.produce_version)
                codes.append(int(answer.responses[0].partition_responses[0].error_code))

            racer = threading.Thread(target=produce)
            racer.start()
            barrier.wait()
            time.sleep(number % 6 * 0.0002)
            assert txn.end(commits) == 0
            racer.join()
            settles(raw, topic, 0, 1)
            if codes == [ErrorCode.NONE]:
                arrived += 1
                kept += expected(value, commits=commits)  # type: ignore[arg-type]
            else:
                allowed = {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS}
                assert set(codes) <= allowed | {ErrorCode.CONCURRENT_TRANSACTIONS}
        assert watch.values(raw) == kept
    found = content(raw, topic, 0)
    assert found.count("data") == arrived
    assert found[-1:] != ["data"]


def logged_states(client: RawClient, transactional_id: str) -> list[str]:
    """Return the states of a transactional id in the order of the coordinator's log. A state that is logged again
    unchanged (because an EndTxn before v5 was repeated) counts once.
    """
    found: list[TransactionMetadata | None] = []
    offset, partition = 0, partition_for(transactional_id, INTERNAL_PARTITIONS)
    while batches := client.fetch("__transaction_state", partition, offset):
        for batch in batches:
            for record in read_records(batch):
                assert record.key is not None
                decoded = records.decode(record.key, record.value)
                if decoded is not None and decoded.transactional_id == transactional_id:
                    found.append(decoded.metadata)
            offset = batch.next_offset
    return ["gone" if metadata is None else metadata.state.shown for metadata, _ in groupby(found)]


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@ENDS
def test_e8_ends_and_markers_that_race_complete_once(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool, commits: bool
) -> None:
    """KAFKA-9777, KAFKA-10080: two EndTxn requests arrive concurrently. Between them arrive markers of another sender
    (WriteTxnMarkers from a tool or another coordinator). The coordinator logs one Prepare record and one Complete
    record.
    """
    raw.create_topic(topic, 20)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    producer = txn.take_over()
    txn.write(topic, *range(20))
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    markers = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch + is_v2,
                transaction_result=commits,
                topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=list(range(20)))],
                coordinator_epoch=0,
                transaction_version=2 if is_v2 else 0,
            )
        ]
    )
    with RawClient(broker.port) as second, RawClient(broker.port) as tool:
        second.send(txn.end_request(commits, producer), ApiKey.END_TXN, txn.end_version)
        tool.send(markers, ApiKey.WRITE_TXN_MARKERS, 2)
        codes = {txn.end(commits, asking=producer), second.receive().error_code}
        assert codes <= {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}
        tool.receive()
    eventually(lambda: txn.end(commits, asking=producer) == 0, "the transaction is complete")
    settles(raw, topic, *range(20))
    outcome = "Commit" if commits else "Abort"
    assert logged_states(raw, topic)[-2:] == [f"Prepare{outcome}", f"Complete{outcome}"]
    assert sum(state.startswith("Complete") for state in logged_states(raw, topic)) == 1
    for partition in range(20):
        assert len(committed_values(raw, topic, partition)) == commits


# --- time


LONG_AGO = """
from oncelog_broker.log.producers.recent_ends import RecentEnds

RecentEnds.look = lambda self, log_end_offset, now, seconds: log_end_offset
"""
"""A timestamp older than producer.id.expiration.ms."""


def some_looks_for_silent_producers(broker: BrokerProcess) -> None:
    """Wait until the broker has removed a plain producer whose last record has a timestamp in 2023; the removal shows
    that the broker has searched for expired producers.
    """
    name = f"silent-{time.monotonic_ns()}"
    with RawClient(broker.port) as client:
        client.create_topic(name)
        client.call(produce_request(name, 0, sequenced(99, 0)), ApiKey.PRODUCE, PRODUCE_VERSION)
        asked = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
        request = DescribeProducersRequest(topics=[asked])
        eventually(
            lambda: not client.call(request, ApiKey.DESCRIBE_PRODUCERS, 0).topics[0].partitions[0].active_producers,
            "the silent producer is forgotten",
        )


@BOTH
def test_e6_a_transaction_older_than_the_producer_expiry_is_completed(
    broker_factory: BrokerFactory, sabotage: Sabotage, topic: str, is_v2: bool
) -> None:
    """KAFKA-9144: all records of a producer in the partition are older than producer.id.expiration.ms when the
    coordinator aborts its transaction. The partition still knows the producer and its epochs, because a producer
    expires by the time of its last marker.
    """
    settings = {
        "producer.id.expiration.ms": "60000",
        "producer.id.expiration.check.interval.ms": "20",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    }
    sabotage(LONG_AGO)
    broker = broker_factory(settings).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        old = txn.take_over(timeout_ms=3000)
        for _ in range(3):  # records with timestamps in 2023, in an open transaction
            txn.write(topic, value=b"dropped")
            some_looks_for_silent_producers(broker)
        assert last_stable_offset(client, topic) == 0
        eventually(lambda: is_stable(client, topic), "the transaction is aborted")
        some_looks_for_silent_producers(broker)
        asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        described = client.call(DescribeProducersRequest(topics=[asked]), ApiKey.DESCRIBE_PRODUCERS, 0)
        (known,) = described.topics[0].partitions[0].active_producers
        assert (known.producer_id, known.producer_epoch) == (old.producer_id, old.epoch + 1)
        assert known.coordinator_epoch >= 0
        assert late_produce(txn, broker, topic, 0, old) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert is_stable(client, topic)
        txn.take_over()
        txn.write(topic, value=b"kept")
        assert txn.end() == 0
        settles(client, topic)
        assert committed_values(client, topic) == [b"kept"]


@BOTH
def test_e19_a_new_epoch_aborts_the_old_transaction_at_once(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool
) -> None:
    """redpanda#3232: the old transaction is aborted immediately, not by its timeout a minute later. No request with a
    future epoch can end the new transaction (KAFKA-9600).
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    old = txn.take_over(timeout_ms=60_000)
    txn.write(topic, value=b"dropped")
    for ahead in (1, 2, 100):
        assert txn.end(asking=old._replace(epoch=old.epoch + ahead)) == ErrorCode.PRODUCER_FENCED
    assert last_stable_offset(raw, topic) == 0
    assert txn.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    settles(raw, topic)
    assert content(raw, topic) == ["data", "abort"]
    assert txn.take_over().epoch == old.epoch + 2
    txn.write(topic, value=b"kept")
    assert txn.end() == 0
    settles(raw, topic)
    assert committed_values(raw, topic) == [b"kept"]


# --- the broker is killed


@BOTH
def test_e2_s44_a_late_produce_after_a_kill_is_refused(broker_factory: BrokerFactory, topic: str, is_v2: bool) -> None:
    """The fencing must also be stored in the log, because otherwise the restarted broker would not know it."""
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        old = txn.take_over()
        txn.write(topic, value=b"dropped")
        assert txn.end(False) == 0
        settles(client, topic)
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = client
        refused = ErrorCode.INVALID_PRODUCER_EPOCH if is_v2 else ErrorCode.INVALID_TXN_STATE
        eventually(lambda: late_produce(txn, broker, topic, 0, old) == refused, "the coordinator is back")
        assert is_stable(client, topic)
        assert content(client, topic) == ["data", "abort"]


# --- readers that wait


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@ENDS
def test_e24_a_waiting_fetch_learns_aborted_transactions(
    broker: BrokerProcess, raw: RawClient, topic: str, is_v2: bool, commits: bool
) -> None:
    """KAFKA-5376: the list of aborted transactions must match the records that are read at the end of the wait, not the
    state at the beginning of the wait.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    txn.take_over()
    txn.write(topic, value=b"waited for")
    with RawClient(broker.port) as reader:
        fetched = []
        waiting = threading.Thread(
            target=lambda: fetched.append(fetch_committed(reader, topic, 0, 0, max_wait_ms=60_000))
        )
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive(), "nothing is stable"
        assert txn.end(commits) == 0
        waiting.join(30)
        assert not waiting.is_alive()
    (answer,) = fetched
    assert (answer.last_stable_offset, answer.high_watermark) == (2, 2)
    aborted = [(found.producer_id, found.first_offset) for found in answer.aborted_transactions or []]
    assert aborted == ([] if commits else [(txn.producer.producer_id, 0)])
    shown = [record.value for batch in visible(answer) for record in read_records(batch)]
    assert shown == expected(b"waited for", commits=commits)
