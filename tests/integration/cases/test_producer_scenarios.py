"""Tests idempotent producing in situations that have failed elsewhere, with live brokers: exhausted producer ids,
epochs and sequences, forgotten producers, internal errors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import INTERNAL_PARTITIONS, BrokerFactory, BrokerProcess
from committed_reader import committed_values
from foreign_clients import eventually
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from raw_transactions import BOTH, RawTransactions, is_stable, new_producer_id
from tests.support.producers import sequenced
from tests.support.storage import make_batch, open_log

from oncelog.metadata.internal_topics import partition_for
from oncelog_broker.coordinator.transaction import records
from oncelog_broker.coordinator.transaction.metadata import EXHAUSTED_EPOCH, TransactionMetadata
from oncelog_broker.coordinator.transaction.records import TransactionRecord
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.runtime.clock import SystemClock
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.produce import ProduceResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

MAX_SEQUENCE = 2**31 - 1
FENCING_EPOCH = 32767
Answer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
Sabotage = Callable[[str], None]


def send(client: RawClient, topic: str, batch: bytes | bytearray) -> Answer:
    answer = client.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0]  # type: ignore[no-any-return]


# --- producer ids


@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.stop])
def test_s4_s5_a_producer_id_is_given_once(
    broker_factory: BrokerFactory, topic: str, end: Callable[[BrokerProcess], object]
) -> None:
    broker = broker_factory().start()
    given: list[ProducerIdAndEpoch] = []
    for _ in range(3):
        with RawClient(broker.port) as client:
            given += [new_producer_id(client, version) for version in (0, 2, 4, 5)]
            given.append(RawTransactions(client, topic + str(len(given))).take_over())
        end(broker)
        broker.start()
    assert len({producer.producer_id for producer in given}) == len(given)
    assert {producer.epoch for producer in given} == {0}


def test_s5_an_empty_transactional_id_is_none(raw: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    answer = raw.call(request, ApiKey.INIT_PRODUCER_ID, 4)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


UNREACHABLE_STORE = """
from oncelog_broker.metadata.membership.producer_ids import ProducerIdManager
from oncelog_broker.metadata.stores.store import ConnectionLost

refusals = [1, 2, 3]
take = ProducerIdManager._take_block

async def take_block(self, *is_needed):
    if refusals and not is_needed:
        refusals.pop()
        raise ConnectionLost("/latest_producer_id_block", "gone")
    await take(self, *is_needed)

ProducerIdManager._take_block = take_block
"""


@pytest.mark.usefixtures("in_a_file")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_e29_no_block_of_ids_is_no_reason_to_give_up(
    broker_factory: BrokerFactory, sabotage: Sabotage, topic: str, is_transactional: bool
) -> None:
    """KAFKA-14417: REQUEST_TIMED_OUT was fatal for old producers; the error that the broker returns instead makes them
    retry.
    """
    sabotage(UNREACHABLE_STORE)
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        if is_transactional:
            RawTransactions(client, topic)
        transactional_id = topic if is_transactional else None
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        codes = [client.call(request, ApiKey.INIT_PRODUCER_ID, version).error_code for version in (0, 1, 4, 5)]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3 + [ErrorCode.NONE]


# --- epochs


@BOTH
def test_e12_an_init_that_cannot_be_logged_costs_no_epoch(
    broker_factory: BrokerFactory, too_few_in_sync: Callable[[str, bool], None], topic: str, is_v2: bool
) -> None:
    """KAFKA-9666: the coordinator's log is below its min.insync.replicas for a while. Every retry of InitProducerId
    used up an epoch, until no epoch was left.
    """
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        first = txn.take_over()
        for opens_one in (False, True):
            if opens_one:
                txn.write(topic, value=b"dropped")
            before = txn.producer
            too_few_in_sync("__transaction_state", True)
            for _ in range(50):
                assert txn.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            too_few_in_sync("__transaction_state", False)
            txn.take_over()
            assert txn.producer == before._replace(epoch=before.epoch + (2 if opens_one else 1))
        assert txn.producer.producer_id == first.producer_id
        txn.write(topic, value=b"kept")
        assert txn.end() == 0
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert committed_values(client, topic) == [b"kept"]


def plant(directory: Path, metadata: TransactionMetadata) -> None:
    """Write a state of a transactional id into the coordinator's log of a stopped broker."""
    key, value = records.encode(TransactionRecord(metadata.transactional_id, metadata))
    index = partition_for(metadata.transactional_id, INTERNAL_PARTITIONS)
    log = open_log(directory / f"__transaction_state-{index}", LogConfig(), clock=SystemClock())
    batch = build_batch([Record(0, SystemClock().now_ms(), key, value, [])])
    log.append_as_leader(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.close()


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_s35_e14_the_epochs_of_a_producer_id_run_out(
    broker_factory: BrokerFactory, topic: str, is_v2: bool, commits: bool
) -> None:
    """KAFKA-5283: after its last epochs a producer id is replaced by another id; no epoch is used twice, and late
    requests are refused.
    """
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        old_id = txn.take_over().producer_id
    broker.stop()
    now = SystemClock().now_ms()
    plant(broker.data, TransactionMetadata(topic, old_id, EXHAUSTED_EPOCH - 2, 60_000, last_update_timestamp=now))
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = client
        used = []
        for number in range(5):
            if not is_v2 or not number:
                txn.take_over()
            used.append(txn.producer)
            txn.write(topic, value=b"%d" % number)
            assert txn.end(commits) == 0
            eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert len(set(used)) == 5
        assert [producer.producer_id == old_id for producer in used] == [True, True, False, False, False]
        assert [producer.epoch for producer in used] == [EXHAUSTED_EPOCH - 1, EXHAUSTED_EPOCH, 0, 1, 2]
        for late in (used[1], used[1]._replace(epoch=FENCING_EPOCH), used[2]):
            assert txn.produce(topic, asking=late, sequence=7) != ErrorCode.NONE
            assert is_stable(client, topic)
        assert committed_values(client, topic) == ([b"%d" % number for number in range(5)] if commits else [])


def test_s35_s42_a_timeout_at_the_last_epoch_brings_another_producer_id(
    broker_factory: BrokerFactory, topic: str
) -> None:
    """The producer continues with another producer id, and its transaction that has timed out is aborted, too."""
    broker = broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic, partitions=2)
        txn, innocent = RawTransactions(client, topic, is_v2=True), RawTransactions(client, f"{topic}-2", is_v2=True)
        old_id = txn.take_over().producer_id
    broker.stop()
    now = SystemClock().now_ms()
    plant(broker.data, TransactionMetadata(topic, old_id, EXHAUSTED_EPOCH - 1, 500, last_update_timestamp=now))
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = innocent.client = client
        last = txn.take_over(timeout_ms=500)
        assert last == (old_id, EXHAUSTED_EPOCH)
        txn.write(topic, value=b"late")
        innocent.take_over(timeout_ms=500)
        innocent.write(topic, 1)
        eventually(lambda: is_stable(client, topic, 0) and is_stable(client, topic, 1), "both are aborted")
        fencing = last._replace(epoch=FENCING_EPOCH)
        assert txn.produce(topic, asking=fencing, sequence=0) != ErrorCode.NONE
        assert txn.end(False, asking=fencing) != ErrorCode.NONE
        eventually(lambda: txn.end(False, asking=last) == 0, "it is told as whom it goes on")
        assert txn.producer.producer_id != old_id
        txn.write(topic, value=b"in time")
        assert txn.end() == 0
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert committed_values(client, topic) == [b"in time"]


def test_s34_e17_a_producer_continues_after_an_error(raw: RawClient, topic: str) -> None:
    """KIP-360, with raw requests: a request with the current epoch increments the epoch, one with the previous epoch
    counts as a retry, and one with any other epoch is fenced.
    """
    txn = RawTransactions(raw, topic)
    first = txn.take_over()
    assert txn.init(shown=first) == ErrorCode.NONE
    second = txn.producer
    assert second == first._replace(epoch=1)
    assert txn.init(shown=first) == ErrorCode.NONE
    assert txn.producer == second
    assert txn.init(shown=second) == ErrorCode.NONE
    assert txn.producer == first._replace(epoch=2)
    for other in (first, first._replace(epoch=9), first._replace(producer_id=first.producer_id + 1)):
        assert txn.init(shown=other) == ErrorCode.PRODUCER_FENCED
        assert txn.init(shown=other, version=3) == ErrorCode.INVALID_PRODUCER_EPOCH


# --- sequences


def test_s11_e14_sequences_wrap_inside_a_batch(raw: RawClient, topic: str) -> None:
    """KAFKA-7692: ... After sequence 2147483647 follows 0: the batch after this wrap is accepted, and a duplicate of it
    is recognised.
    """
    raw.create_topic(topic)
    producer = new_producer_id(raw)
    before = sequenced(producer.producer_id, MAX_SEQUENCE - 3, 2)
    wrapping = make_batch(
        b"a", b"b", b"c", b"d", producer_id=producer.producer_id, producer_epoch=0, base_sequence=MAX_SEQUENCE - 1
    )
    after = sequenced(producer.producer_id, 2, 3)
    assert [send(raw, topic, batch).base_offset for batch in (before, wrapping, after)] == [0, 2, 6]
    assert [send(raw, topic, batch).base_offset for batch in (before, wrapping, after)] == [0, 2, 6]
    assert send(raw, topic, sequenced(producer.producer_id, 4)).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert send(raw, topic, sequenced(producer.producer_id, 6)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert raw.list_offset(topic, 0)[0] == 9


def test_e16_a_producer_all_of_whose_records_are_deleted_continues(raw: RawClient, topic: str) -> None:
    """KAFKA-7190: the broker keeps the state of a producer even if the producer's records were deleted. In KAFKA-7190
    the error UNKNOWN_PRODUCER_ID made producers restart repeatedly, and in-flight batches were duplicated.
    """
    raw.create_topic(topic)
    producer = new_producer_id(raw)
    for sequence in range(3):
        assert send(raw, topic, sequenced(producer.producer_id, sequence)).error_code == 0
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=[asked(name=topic, partitions=[partition])], timeout_ms=5000)
    (deleted,) = raw.call(request, ApiKey.DELETE_RECORDS, 2).topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (0, 3)
    copy = send(raw, topic, sequenced(producer.producer_id, 2))
    assert (copy.error_code, copy.base_offset, copy.log_start_offset) == (0, 2, 3)
    following = send(raw, topic, sequenced(producer.producer_id, 3))
    assert (following.error_code, following.base_offset) == (0, 3)


def test_e16_a_producer_that_was_silent_for_too_long_continues(broker_factory: BrokerFactory, topic: str) -> None:
    """redpanda#22670: the broker has forgotten the producer, and accepts the producer's next sequence, which is
    not 0.
    """
    settings = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "20"}
    broker = broker_factory(settings).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        producer = new_producer_id(client)
        for sequence in range(3):
            assert send(client, topic, sequenced(producer.producer_id, sequence)).error_code == 0
        # As long as the broker knows the producer, it refuses a gap in the sequences.
        eventually(lambda: send(client, topic, sequenced(producer.producer_id, 7)).error_code == 0, "it is forgotten")
        assert client.list_offset(topic, 0)[0] == 4


# --- errors that a broker should not return

FAILING_APPEND = """
from oncelog_broker.log.partition_log import PartitionLog

appends = []
append = PartitionLog.append_as_leader

def fails_now_and_then(self, batch, **options):
    if not self.name.startswith("test-"):
        return append(self, batch, **options)
    appends.append(1)
    if len(appends) % 4 == 1:
        raise RuntimeError("a bug")
    result = append(self, batch, **options)
    if len(appends) % 4 == 3:
        raise RuntimeError("a bug after the append")
    return result

PartitionLog.append_as_leader = fails_now_and_then
"""


def test_e23_an_internal_error_is_no_answer(broker_factory: BrokerFactory, sabotage: Sabotage, topic: str) -> None:
    """redpanda#5355, KAFKA-14034: after UNKNOWN_SERVER_ERROR an idempotent producer uses new sequences, so batches that
    were written are duplicated. After a lost connection the producer retries the same batch.
    """
    sabotage(FAILING_APPEND)
    broker = broker_factory().start()
    client = RawClient(broker.port)
    client.create_topic(topic)
    producer, errors, sequence = new_producer_id(client), 0, 0
    while sequence < 20:
        try:
            answer = send(client, topic, sequenced(producer.producer_id, sequence))
        except ConnectionError:
            errors += 1
            client.socket.close()
            client = RawClient(broker.port)
            continue
        assert answer.error_code == ErrorCode.NONE
        sequence += 1
    assert errors >= 10
    assert committed_values(client, topic) == [b"%d/%d" % (producer.producer_id, number) for number in range(20)]
    client.socket.close()


# --- order


def test_s59_the_errors_of_a_batch_are_checked_in_order(raw: RawClient, topic: str) -> None:
    """A batch with several faults gets the error of the first fault in the order topic, CRC, size, duplicate, epoch,
    sequence; the batch changes nothing.
    """
    pid = new_producer_id(raw).producer_id
    wrong_in_all = sequenced(pid, 7)
    wrong_in_all[-1] ^= 1
    assert send(raw, topic, wrong_in_all).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    raw.create_topic(topic, max_message_bytes="200")
    assert send(raw, topic, sequenced(pid, 0, epoch=1)).base_offset == 0
    assert send(raw, topic, wrong_in_all).error_code == ErrorCode.CORRUPT_MESSAGE
    large = make_batch(b"v" * 300, producer_id=pid, producer_epoch=0, base_sequence=7)
    assert send(raw, topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    copy = send(raw, topic, sequenced(pid, 0, epoch=1))
    assert (copy.error_code, copy.base_offset) == (ErrorCode.NONE, 0)
    assert send(raw, topic, sequenced(pid, 7, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(raw, topic, sequenced(pid, 7, epoch=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert raw.list_offset(topic, 0)[0] == 1
    following = send(raw, topic, sequenced(pid, 1, epoch=1))
    assert (following.error_code, following.base_offset) == (ErrorCode.NONE, 1)


def test_s67_a_sequence_changed_in_transit_is_detected(raw: RawClient, topic: str) -> None:
    """A batch whose sequence 1 arrives as 111 is refused and not written, and the original batch is accepted. A
    producer that restarts, with the next epoch or another id, begins at sequence 0.
    """
    raw.create_topic(topic)
    pid = new_producer_id(raw).producer_id
    assert send(raw, topic, sequenced(pid, 0)).base_offset == 0
    for _ in range(2):
        changed = send(raw, topic, sequenced(pid, 111))
        assert (changed.error_code, changed.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert raw.list_offset(topic, 0)[0] == 1
    assert send(raw, topic, sequenced(pid, 1)).base_offset == 1
    assert send(raw, topic, sequenced(pid, 111, epoch=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(raw, topic, sequenced(pid, 0, epoch=1)).base_offset == 2
    other = new_producer_id(raw)
    assert other.producer_id != pid
    assert send(raw, topic, sequenced(other.producer_id, 0)).base_offset == 3
