"""Tests, with live brokers, situations in which the logs of coordinators have caused failures in other systems: logs
that are compacted, refuse appends, have expired entries, or are loaded after kills.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerFactory
from committed_reader import committed_values
from foreign_clients import eventually
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from raw_transactions import BOTH, RawTransactions, committed_offset, content, is_stable, last_stable_offset
from tests.support.producers import sequenced

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import RecordBatch

SMALL_LOGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "2000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "2000",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "0",
}


def cleaned_up_to(data: Path, topic: str) -> int:
    checkpoint = data / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), default=0)


@BOTH
def test_e10_e25_compacted_coordinator_logs_are_loaded(
    broker_factory: BrokerFactory, topic: str, group: str, is_v2: bool
) -> None:
    """KAFKA-9065: a coordinator that loaded its log waited for offsets that compaction had removed. In this test
    compaction removes much of both logs, including markers and their transactions; the state after a kill is the same
    as before the kill.
    """
    broker = broker_factory(SMALL_LOGS).start()
    version = 5 if is_v2 else 3
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        txns = [RawTransactions(client, f"{topic}-{number}", is_v2=is_v2) for number in range(3)]
        for txn in txns:
            txn.take_over()
        for number in range(90):
            txn, commits = txns[number % 3], number % 4 != 3
            txn.write(topic, value=b"%d" % number)
            eventually(lambda: txn.add_offsets(group) == 0, "the last transaction is complete")  # noqa: B023
            eventually(lambda: txn.commit_offset(group, topic, number, version) == 0, "coordinated")  # noqa: B023
            assert txn.end(commits) == 0
        eventually(lambda: is_stable(client, topic), "all are complete")
        wanted = [b"%d" % number for number in range(90) if number % 4 != 3]
        txns[0].write(topic, 1, value=b"open")
        for log in ("__transaction_state", "__consumer_offsets"):
            end, _ = client.list_offset(log, 0)
            eventually(lambda: cleaned_up_to(broker.data, log) > end / 2, f"{log} is compacted")  # noqa: B023
            assert sum(batch.records_count for batch in fetch_all(client, log)) < end * 3 / 4
        before = [txn.producer for txn in txns]
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        assert committed_values(client, topic) == wanted
        eventually(lambda: committed_offset(client, group, topic, stable=True) == (0, 89), "offsets are loaded")
        assert last_stable_offset(client, topic, 1) == 0
        for txn, producer in zip(txns, before, strict=True):
            txn.client = client
            assert txn.producer == producer
        eventually(lambda: txns[0].end() == 0, "transactions are loaded")
        eventually(lambda: is_stable(client, topic, 1), "the open transaction is committed")
        assert committed_values(client, topic, 1) == [b"open"]
        assert txns[1].init(shown=before[1]) == ErrorCode.NONE
        assert txns[1].producer == before[1]._replace(epoch=before[1].epoch + 1)


def fetch_all(client: RawClient, topic: str) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    offset = 0
    while batches := client.fetch(topic, 0, offset):
        found += batches
        offset = batches[-1].next_offset
    return found


@BOTH
def test_e13_an_expiry_that_cannot_be_logged_locks_nobody_out(
    broker_factory: BrokerFactory, too_few_in_sync: Callable[[str, bool], None], topic: str, is_v2: bool
) -> None:
    """KAFKA-7519: after the write of a tombstone had failed, the coordinator responded CONCURRENT_TRANSACTIONS for this
    id permanently.
    """
    settings = {
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
        "transactional.id.expiration.ms": "1500",
        "transaction.state.log.num.partitions": "1",
    }
    broker = broker_factory(settings).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        first = txn.take_over()
        txn.write(topic, value=b"first")
        assert txn.end() == 0
        eventually(lambda: is_complete(client), "the transaction is complete")
        too_few_in_sync("__transaction_state", True)
        eventually(lambda: "not removed" in broker.log.read_text() or None, "an expiry has failed")
        assert txn.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE  # not CONCURRENT_TRANSACTIONS
        too_few_in_sync("__transaction_state", False)
        txn.take_over()
        txn.write(topic, value=b"second")
        assert txn.end() == 0
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert committed_values(client, topic) == [b"first", b"second"]
        eventually(lambda: is_forgotten(client), "it is forgotten in the end")
        assert txn.take_over().producer_id != first.producer_id


def is_complete(client: RawClient) -> bool:
    """Return whether the only transactional id has completed its transaction."""
    request = ListTransactionsRequest(state_filters=["CompleteCommit"], producer_id_filters=[])
    return len(client.call(request, ApiKey.LIST_TRANSACTIONS, 0).transaction_states) == 1


def is_forgotten(client: RawClient) -> bool:
    """Return whether the transactional id does not exist, provided that the broker has loaded the ids."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer = client.call(request, ApiKey.LIST_TRANSACTIONS, 0)
    return answer.error_code == ErrorCode.NONE and not answer.transaction_states


def test_e13_many_long_ids_expire_at_once(broker_factory: BrokerFactory) -> None:
    """KAFKA-13099: the tombstones of many ids did not fit into one batch, so the batch was refused again and again."""
    broker = broker_factory({"transaction.state.log.num.partitions": "1"}).start()
    with RawClient(broker.port) as client:
        for number in range(60):
            RawTransactions(client, f"{number:030000d}").take_over()
    broker.stop()
    broker.settings |= {
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
        "transactional.id.expiration.ms": "1",
    }
    broker.start()
    with RawClient(broker.port) as client:
        eventually(lambda: is_forgotten(client), "all are forgotten")
    broker.stop()
    assert "not removed" not in broker.log.read_text()


def test_e30_appends_survive_a_topic_that_is_re_created(broker_factory: BrokerFactory, topic: str) -> None:
    """KAFKA-19407: appends are in progress while their partition loses its leader. Each appended batch is in the log of
    its partition at the reported offset, and no offset is assigned twice.
    """
    broker = broker_factory().start()
    delete = DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000)
    with RawClient(broker.port) as client, RawClient(broker.port) as admin:
        for turn in range(10):
            admin.create_topic(topic)
            offsets: list[int] = []
            admin.send(delete, ApiKey.DELETE_TOPICS, 4)
            for number in range(60):
                client.send(produce_request(topic, 0, sequenced(turn, number)), ApiKey.PRODUCE, PRODUCE_VERSION)
            for _ in range(60):
                (answer,) = client.receive().responses[0].partition_responses
                if answer.error_code == ErrorCode.NONE:
                    offsets.append(answer.base_offset)
                else:
                    assert answer.error_code in (
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        ErrorCode.KAFKA_STORAGE_ERROR,
                    )
            assert offsets == list(range(len(offsets)))
            assert admin.receive().responses[0].error_code == ErrorCode.NONE
    assert "Traceback" not in broker.log.read_text()


@BOTH
def test_e30_s39_a_transaction_whose_topic_is_deleted_ends(
    broker_factory: BrokerFactory, topic: str, is_v2: bool
) -> None:
    """The markers for the deleted topic cannot be written; the other partitions of the transaction get their markers,
    and the producer continues.
    """
    broker = broker_factory().start()
    gone = f"{topic}-gone"
    with RawClient(broker.port) as client, RawClient(broker.port) as admin:
        for name in (topic, gone):
            client.create_topic(name)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        txn.take_over()
        for number in range(3):
            txn.write(topic, value=b"%d" % number)
            txn.write(gone)
            admin.send(DeleteTopicsRequest(topic_names=[gone], timeout_ms=5000), ApiKey.DELETE_TOPICS, 4)
            producer = txn.producer
            if number != 1:  # the topic is deleted during the end of the transaction only in round 1
                assert admin.receive().responses[0].error_code == ErrorCode.NONE
            assert txn.end() == 0
            if number == 1:
                assert admin.receive().responses[0].error_code == ErrorCode.NONE
            eventually(lambda: txn.end(asking=producer) == 0, "the transaction is complete")  # noqa: B023
            client.create_topic(gone)
            eventually(lambda: is_stable(client, topic) and is_stable(client, gone), "the transaction is complete")
            txn.sequences.pop((gone, 0), None)
            if not is_v2:
                txn.take_over()
        assert committed_values(client, topic) == [b"0", b"1", b"2"]
        assert committed_values(client, gone) == []


SLOW_MARKERS = """
import os
from oncelog_broker.coordinator.transaction.markers import MarkerAppender
from oncelog_protocol.errors import ErrorCode

append = MarkerAppender.append

def append_when_allowed(self, marker, where):
    if os.path.exists({lock!r}):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return append(self, marker, where)

MarkerAppender.append = append_when_allowed
"""


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_e7_e21_ends_are_answered_while_markers_cannot_be_written(
    broker_factory: BrokerFactory,
    sabotage: Callable[[str], None],
    tmp_path: Path,
    topic: str,
    is_v2: bool,
    commits: bool,
) -> None:
    """YDB#52731: while markers cannot be written, every request gets a retriable error, because a client would mistake
    an empty success for the end of its next transaction. Once markers can be written, all producers continue, also
    after a kill of the broker.
    """
    lock = tmp_path / "lock"
    sabotage(SLOW_MARKERS.format(lock=str(lock)))
    lock.touch()
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        first = txn.take_over()
        txn.write(topic, 0, 1, value=b"first")
        assert txn.end(commits) == ErrorCode.NONE
        check_that_it_is_being_completed(txn, topic, first, commits)
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = client
        eventually(
            lambda: txn.end(commits, asking=first) == ErrorCode.CONCURRENT_TRANSACTIONS, "transactions are loaded"
        )
        check_that_it_is_being_completed(txn, topic, first, commits)
        lock.unlink()
        txn.write(topic, 0, value=b"second")
        assert txn.end(True) == ErrorCode.NONE
        eventually(lambda: is_stable(client, topic, 0) and is_stable(client, topic, 1), "all is complete")
        assert committed_values(client, topic, 0) == [b"first"] * commits + [b"second"]
        assert committed_values(client, topic, 1) == [b"first"] * commits


def check_that_it_is_being_completed(
    txn: RawTransactions, topic: str, ended_as: ProducerIdAndEpoch, commits: bool
) -> None:
    for answer in (
        txn.end(commits, asking=ended_as),
        txn.end(not commits, asking=ended_as),
        txn.end(False),
        txn.produce(topic, 1) if txn.is_v2 else txn.add(topic, 1),
        txn.init(),
        txn.init(shown=txn.producer),
    ):
        assert answer == ErrorCode.CONCURRENT_TRANSACTIONS
    assert last_stable_offset(txn.client, topic) == 0


FAILING_DISK = """
import os
from oncelog_broker.runtime.disk import RealFile

append = RealFile.append

def append_unless_broken(self, *buffers):
    if os.path.exists({lock!r}) and {topic!r} + "-0/" in self.path and self.path.endswith(".log"):
        if "torn" in {lock!r}:
            os.pwrite(self._fd, bytes(buffers[0])[:40], self.size)
        raise OSError(5, os.strerror(5))
    return append(self, *buffers)

RealFile.append = append_unless_broken
"""


@pytest.mark.crossed("is_v2", "how")
@BOTH
@pytest.mark.parametrize("how", ["refused", "torn"])
def test_e26_a_disk_failure_aborts_the_transaction(
    broker_factory: BrokerFactory, sabotage: Callable[[str], None], tmp_path: Path, topic: str, is_v2: bool, how: str
) -> None:
    """KAFKA-10778: from the first failed write on, the partition is offline, its records and its marker are refused,
    and no failed write is visible after a restart. The transaction ends when the partition is online again.
    """
    lock = tmp_path / how
    sabotage(FAILING_DISK.format(lock=str(lock), topic=topic))
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        txn.take_over()
        txn.write(topic, 0, 1, value=b"committed")
        assert txn.end() == 0
        txn.write(topic, 0, 1, value=b"dropped")
        lock.touch()
        for _ in range(3):
            assert txn.produce(topic, 0, value=b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
            # one failed write takes the partition offline, because the state of the file is unknown from then on
            lock.unlink(missing_ok=True)
        assert txn.end(False) == 0
        eventually(lambda: is_stable(client, topic, 1), "the other partition is complete")
        assert txn.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = client
        eventually(lambda: is_stable(client, topic, 0), "the transaction is aborted")
        assert content(client, topic) == ["data", "commit", "data", "abort"]
        eventually(lambda: txn.init() == 0, "the transactional id is free")
        txn.write(topic, 0, value=b"after")
        assert txn.end() == 0
        eventually(lambda: is_stable(client, topic, 0), "the transaction is complete")
        assert committed_values(client, topic) == [b"committed", b"after"]
        assert committed_values(client, topic, 1) == [b"committed"]


@BOTH
def test_e5_offsets_are_pending_as_a_whole_or_not_at_all(
    broker_factory: BrokerFactory, too_few_in_sync: Callable[[str, bool], None], topic: str, group: str, is_v2: bool
) -> None:
    """KAFKA-15449, KAFKA-15784: offsets whose write to the log failed do not remain pending. Offsets that arrive after
    the end of their transaction are refused, even if another transaction is open by then.
    """
    broker = broker_factory().start()
    version = 5 if is_v2 else 3
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        txn.take_over()
        txn.write(topic)
        assert txn.add_offsets(group) == 0
        eventually(lambda: txn.commit_offset(group, topic, 1, version) == 0, "the group is coordinated")
        assert txn.end() == 0
        eventually(lambda: committed_offset(client, group, topic, stable=True) == (0, 1), "offsets are committed")

        txn.write(topic)
        if not is_v2:
            assert txn.add_offsets(group) == 0
        too_few_in_sync("__consumer_offsets", True)
        for _ in range(3):
            assert txn.commit_offset(group, topic, 2, version) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed_offset(client, group, topic, stable=True) == (0, 1)
        too_few_in_sync("__consumer_offsets", False)
        old = txn.producer
        assert txn.end(False) == 0
        eventually(lambda: is_stable(client, topic), "the transaction is aborted")

        new, txn.producer = txn.producer, old
        refused = ErrorCode.INVALID_PRODUCER_EPOCH if is_v2 else ErrorCode.INVALID_TXN_STATE
        assert txn.commit_offset(group, topic, 3, version) == refused
        txn.producer = new
        txn.write(topic)
        txn.producer = old
        assert txn.commit_offset(group, topic, 3, version) == refused
        txn.producer = new
        assert txn.end() == 0
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert committed_offset(client, group, topic, stable=True) == (0, 1)


def marker_of(producer: ProducerIdAndEpoch, topic: str, *, commits: bool = False) -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=commits,
                topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )


def test_e2_e32_a_transaction_that_hangs_is_found_and_ended(broker_factory: BrokerFactory, topic: str) -> None:
    """KIP-664: without verification a late batch opens a transaction that its coordinator does not know, and that
    blocks read_committed consumers. The partition names the producer of the open transaction, the coordinator says
    that it has no such transaction, and an abort marker unblocks the consumers.
    """
    broker = broker_factory({"transaction.partition.verification.enable": "false"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        txn.take_over()
        txn.write(topic, value=b"first")
        assert txn.end() == 0
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert txn.produce(topic, value=b"late") == ErrorCode.NONE
        assert last_stable_offset(client, topic) == 2
        assert txn.end() == ErrorCode.NONE  # the coordinator considers this EndTxn the retry of the earlier commit

        asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        described = client.call(DescribeProducersRequest(topics=[asked]), ApiKey.DESCRIBE_PRODUCERS, 0)
        (hanging,) = (
            producer
            for producer in described.topics[0].partitions[0].active_producers
            if producer.current_txn_start_offset >= 0
        )
        assert (hanging.producer_id, hanging.current_txn_start_offset) == (txn.producer.producer_id, 2)
        listed = client.call(
            ListTransactionsRequest(state_filters=[], producer_id_filters=[hanging.producer_id]),
            ApiKey.LIST_TRANSACTIONS,
            0,
        )
        assert [found.transaction_state for found in listed.transaction_states] == ["CompleteCommit"]
        (state,) = client.call(
            DescribeTransactionsRequest(transactional_ids=[topic]), ApiKey.DESCRIBE_TRANSACTIONS, 0
        ).transaction_states
        assert state.topics == []

        producer = ProducerIdAndEpoch(hanging.producer_id, hanging.producer_epoch)
        (answer,) = client.call(marker_of(producer, topic), ApiKey.WRITE_TXN_MARKERS, 1).markers
        assert answer.topics[0].partitions[0].error_code == 0
        assert is_stable(client, topic)
        assert content(client, topic) == ["data", "commit", "data", "abort"]
        assert committed_values(client, topic) == [b"first"]


def mark(client: RawClient, producer: ProducerIdAndEpoch, topic: str, coordinator_epoch: int) -> int:
    """Send a commit marker with this coordinator epoch, and return the error code of the response."""
    request = marker_of(producer, topic, commits=True)
    request.markers[0].coordinator_epoch = coordinator_epoch
    (answer,) = client.call(request, ApiKey.WRITE_TXN_MARKERS, 1).markers
    return int(answer.topics[0].partitions[0].error_code)


def test_s40_a_marker_of_an_older_coordinator_is_refused(broker_factory: BrokerFactory, topic: str) -> None:
    """The partition refuses markers with a coordinator epoch below that of its last marker, also after a kill."""
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        producer = txn.take_over()
        txn.write(topic, value=b"kept")
        assert mark(client, producer, topic, 7) == ErrorCode.UNKNOWN_LEADER_EPOCH, "of nobody"
        assert mark(client, producer, topic, 0) == 0
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = client
        eventually(lambda: txn.produce(topic, value=b"open still") == 0, "the coordinator is back")
        assert mark(client, producer, topic, -1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert content(client, topic) == ["data", "commit", "data"]
