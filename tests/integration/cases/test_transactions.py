"""Tests single requests of transactions against a live broker: late, repeated, or from a fenced producer."""

from __future__ import annotations

import pytest
from broker_process import INTERNAL_PARTITIONS, BrokerFactory
from foreign_clients import eventually
from raw_client import RawClient, frame
from raw_transactions import BOTH, RawTransactions, committed_offset, content, is_stable, last_stable_offset

from oncelog.metadata.internal_topics import partition_for
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch

# --- entire transactions


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@pytest.mark.parametrize("commits", [True, False])
def test_s38_s39_a_transaction_ends_with_a_marker_in_each_partition(
    raw: RawClient, topic: str, is_v2: bool, commits: bool
) -> None:
    raw.create_topic(topic, 3)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    first = txn.take_over()
    txn.write(topic, 0, 1)
    assert (last_stable_offset(raw, topic), last_stable_offset(raw, topic, 1)) == (0, 0)
    assert txn.end(commits) == ErrorCode.NONE
    eventually(lambda: is_stable(raw, topic) and is_stable(raw, topic, 1), "the transaction is complete")
    marker = "commit" if commits else "abort"
    assert [content(raw, topic, n) for n in range(3)] == [["data", marker], ["data", marker], []]
    assert txn.producer == (first._replace(epoch=1) if is_v2 else first)  # T7
    txn.write(topic, 1)
    assert txn.end() == ErrorCode.NONE


def test_s38_the_next_transaction_need_not_wait_for_the_last_one(raw: RawClient, topic: str) -> None:
    """The broker writes the transaction's marker before it reads the next request. If a request has many offsets, the
    broker makes them pending slice by slice; which are pending at a moment depends on time, so
    tests/unit/broker/coordinator/transaction/test_coordinator.py tests that with a simulated clock.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=txn.producer.producer_id,
        v3_and_below_producer_epoch=txn.producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    add = frame(request, ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    end = frame(txn.end_request(True), ApiKey.END_TXN, 3)
    added = raw.exchange(add)
    assert added[-5:-3] == b"\0\0"  # the error code of the last partition in the response
    for _ in range(50):
        ended = raw.exchange(end)
        assert ended[-3:-1] == b"\0\0"
        assert raw.exchange(add) == added


def test_t6_transactions_v2_are_in_force(raw: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    answer = raw.call(request, ApiKey.API_VERSIONS, 3)
    in_force = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert in_force["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0
    assert answer.supported_features == []  # the feature's minimum level is 0, which v3 cannot express
    supported = raw.call(request, ApiKey.API_VERSIONS, 4).supported_features
    assert "transaction.version" in {feature.name for feature in supported}


def test_s30_s31_the_coordinators_topic_is_made_at_first_use(broker_factory: BrokerFactory) -> None:
    broker = broker_factory()
    del broker.settings["transaction.state.log.num.partitions"]  # no setting here, because this test checks the default
    with RawClient(broker.start().port) as client:
        assert not list(broker.data.glob("__transaction_state-*"))
        RawTransactions(client, "tx")
    assert len(list(broker.data.glob("__transaction_state-*"))) == 50


def test_s31_clients_do_not_write_to_the_coordinators_topic(raw: RawClient, topic: str) -> None:
    txn = RawTransactions(raw, topic)
    txn.take_over()
    assert txn.produce("__transaction_state") == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("init", "add", "end", "code"),
    [
        (3, 1, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 2, 2, ErrorCode.PRODUCER_FENCED),
        (5, 3, 5, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_s41_t8_a_fenced_producer_is_told_in_the_words_of_its_version(
    raw: RawClient, topic: str, init: int, add: int, end: int, code: ErrorCode
) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    old = txn.take_over()
    txn.take_over()
    assert txn.init(init, shown=old) == code
    assert txn.add(topic, asking=old, version=add) == code
    assert txn.end(asking=old, version=end) == code
    assert txn.produce(topic, asking=old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert content(raw, topic) == []


@pytest.mark.parametrize("version", [7, 8])
def test_s37_a_first_offset_that_is_pending_is_told_where_all_topics_are_asked_for(
    raw: RawClient, topic: str, group: str, version: int
) -> None:
    """A seed of the simulation has found this defect: OffsetFetch omitted the pending offset, so after the commit,
    until the marker was written, the response was that the group had no offset.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=True)
    txn.find_group(group)
    txn.take_over()
    eventually(lambda: txn.commit_offset(group, topic, 5, 5) == 0, "the group is coordinated")
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)

    def stable_offsets() -> list[tuple[str, int, int]]:
        request = OffsetFetchRequest(group_id=group, topics=None, groups=[asked], require_stable=True)
        answer = raw.call(request, ApiKey.OFFSET_FETCH, version)
        topics = answer.topics if version < 8 else answer.groups[0].topics
        return [(each.name, found.error_code, found.committed_offset) for each in topics for found in each.partitions]

    assert stable_offsets() == [(topic, ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)]
    assert txn.end() == ErrorCode.NONE
    eventually(lambda: stable_offsets() == [(topic, ErrorCode.NONE, 5)], "the transaction is complete")


def test_s42_e31_a_timeout_over_the_brokers_is_refused(raw: RawClient, topic: str) -> None:
    assert RawTransactions(raw, topic).init(timeout_ms=900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("shown", [ProducerIdAndEpoch(-1, 3), ProducerIdAndEpoch(3, -1)])
def test_t21_producer_id_and_epoch_go_together(raw: RawClient, topic: str, shown: ProducerIdAndEpoch) -> None:
    assert RawTransactions(raw, topic).init(shown=shown) == ErrorCode.INVALID_REQUEST


# --- late requests


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@pytest.mark.parametrize("commits", [True, False])
def test_e2_a_late_produce_opens_nothing(raw: RawClient, topic: str, is_v2: bool, commits: bool) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    old = txn.take_over()
    txn.write(topic)
    assert txn.end(commits) == 0
    eventually(lambda: is_stable(raw, topic), "the transaction is complete")
    late = ErrorCode.INVALID_PRODUCER_EPOCH if is_v2 else ErrorCode.INVALID_TXN_STATE
    assert txn.produce(topic, asking=old, sequence=1) == late
    assert is_stable(raw, topic)
    assert content(raw, topic) == ["data", "commit" if commits else "abort"]


@pytest.mark.parametrize(("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
def test_s13_a_partition_that_was_not_added_is_refused(
    raw: RawClient, topic: str, version: int, code: ErrorCode
) -> None:
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    txn.write(topic, 0)
    assert txn.produce(topic, 1, version=version) == code
    assert content(raw, topic, 1) == []


def test_s13_a_batch_that_was_refused_comes_before_the_next(raw: RawClient, topic: str) -> None:
    """KAFKA-14561: the partition does not know the producer yet, and would therefore accept any sequence number."""
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    assert txn.produce(topic, sequence=0) == ErrorCode.INVALID_TXN_STATE
    assert txn.add(topic) == 0
    assert txn.produce(topic, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [txn.produce(topic, sequence=sequence) for sequence in (0, 1)] == [ErrorCode.NONE] * 2
    assert txn.end() == ErrorCode.NONE


def test_s13_the_check_can_be_switched_off(broker_factory: BrokerFactory, topic: str) -> None:
    broker = broker_factory({"transaction.partition.verification.enable": "false"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        txn.take_over()
        assert txn.produce(topic) == ErrorCode.NONE
        assert not is_stable(client, topic)  # the transaction hangs: no client will end it (E32)
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=txn.producer.producer_id,
                    producer_epoch=txn.producer.epoch,
                    transaction_result=False,
                    topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        )
        (answer,) = client.call(request, ApiKey.WRITE_TXN_MARKERS, 1).markers
        assert answer.topics[0].partitions[0].error_code == 0
        assert is_stable(client, topic)


@pytest.mark.parametrize("commits", [True, False])
def test_e1_an_old_end_does_not_touch_the_next_transaction(raw: RawClient, topic: str, commits: bool) -> None:
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic, is_v2=True)
    first = txn.take_over()
    txn.write(topic)
    assert txn.end() == 0
    txn.write(topic, 0)
    assert txn.end(commits, asking=first) == ErrorCode.PRODUCER_FENCED
    txn.write(topic, 1)
    assert txn.end(False) == 0
    eventually(lambda: is_stable(raw, topic) and is_stable(raw, topic, 1), "the transaction is complete")
    assert content(raw, topic) == ["data", "commit", "data", "abort"]
    assert content(raw, topic, 1) == ["data", "abort"]


@BOTH
def test_e20_e21_a_repeated_end_is_answered_alike(raw: RawClient, topic: str, is_v2: bool) -> None:
    raw.create_topic(topic, 40)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    old = txn.take_over()
    txn.write(topic, *range(40))
    version = 5 if is_v2 else 3
    for _ in range(3):  # all requests were in flight together, so markers may not be written yet
        raw.send(txn.end_request(True, old), ApiKey.END_TXN, version)
    codes = [raw.receive().error_code for _ in range(3)]
    assert codes[0] == 0
    assert set(codes[1:]) <= {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}
    eventually(lambda: all(is_stable(raw, topic, n) for n in range(40)), "the transaction is complete")
    assert txn.end(True, asking=old) == 0
    assert txn.end(False, asking=old) == ErrorCode.INVALID_TXN_STATE
    assert content(raw, topic, 39) == ["data", "commit"]


def test_s38_the_answer_goes_before_the_markers(broker_factory: BrokerFactory, topic: str) -> None:
    """The first EndTxn of a broker is an exception: its request is decoded in slices, so its response is sent one loop
    iteration later.
    """
    broker = broker_factory().start("marker-sent@2 = crash")
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        for _ in range(2):
            txn.take_over()  # this call retries, and succeeds when the previous transaction is complete
            txn.write(topic)
            assert txn.end() == 0
        broker.wait_killed()


@pytest.mark.crossed("is_v2", "fail_points")
@BOTH
@pytest.mark.parametrize(
    "fail_points",
    [
        "marker-sent@1 = drop",
        "marker-sent@1 = duplicate",
        "marker-sent@1 = reorder",
        "marker-acknowledged@1 = drop",
        "marker-acknowledged = duplicate",
        "complete-logged = delay 50",
        "complete-logged = duplicate",
    ],
)
def test_e7_e8_e13_lost_late_and_repeated_markers_are_harmless(
    broker_factory: BrokerFactory, topic: str, fail_points: str, is_v2: bool
) -> None:
    broker = broker_factory().start(fail_points)
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        txn.take_over()
        for commits in (True, False):
            txn.write(topic, 0, 1)
            assert txn.end(commits) == 0
            txn.take_over()  # this call retries, and succeeds when the transaction is complete
        assert is_stable(client, topic)
        assert is_stable(client, topic, 1)
        for partition in (0, 1):
            data, commit, *others = content(client, topic, partition)
            assert (data, commit, others[-2:]) == ("data", "commit", ["data", "abort"])
            # With V1 a marker may be written twice, which is harmless, because the second marker belongs to the ended
            # transaction (E13).
            assert set(others[:-2]) <= (set() if is_v2 else {"commit"})


# --- recovery


DIES = {
    "after prepare is logged": "prepare-logged = after crash",
    "before the reply": "reply-sent = crash",
    "before the markers": "marker-sent = crash",
    "after the first marker": "marker-sent@2 = crash",
    "before complete is logged": "complete-logged = crash",
    "after complete is logged": "complete-logged = after crash",
}


@pytest.mark.crossed("is_v2", "commits", "when")
@BOTH
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("when", DIES)
def test_s44_e20_a_kill_between_prepare_and_complete_is_recovered(
    broker_factory: BrokerFactory, topic: str, when: str, commits: bool, is_v2: bool
) -> None:
    broker = broker_factory().start(DIES[when])
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        old = txn.take_over()
        txn.write(topic, 0, 1)
        client.send(txn.end_request(commits, old), ApiKey.END_TXN, 5 if is_v2 else 3)
        broker.wait_killed()
    broker.start()
    with RawClient(broker.port) as client:
        eventually(lambda: is_stable(client, topic) and is_stable(client, topic, 1), "what was decided is finished")
        marker = "commit" if commits else "abort"
        for partition in (0, 1):
            data, *markers = content(client, topic, partition)
            assert data == "data"
            assert set(markers) == {marker}
            assert len(markers) == 1 or not is_v2  # V1 may write the marker twice, which is harmless (S39)
        txn.client = client
        assert eventually(lambda: txn.end(commits, asking=old) == 0, "the retry is answered as the first try")
        txn.write(topic, 0)
        assert txn.end() == 0


@BOTH
def test_s44_a_restart_leaves_an_open_transaction_open(broker_factory: BrokerFactory, topic: str, is_v2: bool) -> None:
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        txn.take_over()
        txn.write(topic)
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        txn.client = client
        assert last_stable_offset(client, topic) == 0
        txn.write(topic)
        eventually(lambda: txn.end() == 0, "the coordinator has loaded its log")
        eventually(lambda: is_stable(client, topic), "the transaction is complete")
        assert content(client, topic) == ["data", "data", "commit"]


@BOTH
def test_s42_e18_a_transaction_that_takes_too_long_is_aborted(
    broker_factory: BrokerFactory, topic: str, is_v2: bool
) -> None:
    broker = broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic, is_v2=is_v2)
        txn.take_over(timeout_ms=1500)
        txn.write(topic)
        assert last_stable_offset(client, topic) == 0
        eventually(lambda: is_stable(client, topic), "the transaction is aborted")
        assert content(client, topic) == ["data", "abort"]
        assert txn.produce(topic) == ErrorCode.INVALID_PRODUCER_EPOCH
        # With V2 the broker cannot distinguish this from a lost response to the producer's own abort: it refuses a
        # commit, and an abort lets the producer continue.
        assert txn.end() == (ErrorCode.INVALID_TXN_STATE if is_v2 else ErrorCode.PRODUCER_FENCED)
        assert txn.end(False) == (ErrorCode.NONE if is_v2 else ErrorCode.PRODUCER_FENCED)
        txn.take_over()
        txn.write(topic)
        assert txn.end() == 0


def test_s43_idle_transactional_ids_are_forgotten(broker_factory: BrokerFactory, topic: str) -> None:
    settings = {
        "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
        # a transaction timeout longer than the time until the first EndTxn, even on a busy machine
        "transactional.id.expiration.ms": "3000",
    }
    broker = broker_factory(settings).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        txn = RawTransactions(client, topic)
        txn.take_over()
        assert txn.end() == ErrorCode.INVALID_TXN_STATE
        eventually(lambda: txn.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the id is forgotten")


# --- offsets of groups


@pytest.mark.crossed("is_v2", "commits")
@BOTH
@pytest.mark.parametrize("commits", [True, False])
def test_s37_offsets_are_pending_until_the_marker(
    raw: RawClient, topic: str, group: str, is_v2: bool, commits: bool
) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    txn.take_over()
    assert RawTransactions(raw, group) is not None
    if not is_v2:
        assert txn.add_offsets(group) == 0
    else:
        eventually(lambda: txn.add_offsets("any") == 0, "__consumer_offsets is there")
        assert txn.end(False) == 0
    version = 5 if is_v2 else 3
    eventually(lambda: txn.commit_offset(group, topic, 42, version) == 0, "the group is coordinated")
    assert committed_offset(raw, group, topic) == (ErrorCode.NONE, -1)
    assert committed_offset(raw, group, topic, stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert txn.end(commits) == 0
    expected = (ErrorCode.NONE, 42 if commits else -1)
    eventually(lambda: committed_offset(raw, group, topic, stable=True) == expected, "the marker is written")


def test_e5_offsets_after_the_end_are_refused(raw: RawClient, topic: str, group: str) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    assert txn.add_offsets(group) == 0
    assert txn.end(False) == 0
    late = {ErrorCode.INVALID_TXN_STATE}
    eventually(lambda: txn.commit_offset(group, topic, 42) in late, "refused")
    assert txn.commit_offset(group, topic, 42, 4) == ErrorCode.TRANSACTION_ABORTABLE
    assert committed_offset(raw, group, topic, stable=True) == (ErrorCode.NONE, -1)


def test_s46_a_generation_of_no_group_is_refused(raw: RawClient, topic: str, group: str) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    assert txn.add_offsets(group) == 0
    code = txn.commit_offset(group, topic, 1, generation_id=3, member_id="gone")
    assert code == ErrorCode.ILLEGAL_GENERATION


# --- partitions, and finding coordinators


def test_s36_all_partitions_are_added_or_none(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=txn.producer.producer_id,
        v3_and_below_producer_epoch=txn.producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 7])],
    )
    (answer,) = raw.call(request, ApiKey.ADD_PARTITIONS_TO_TXN, 0).results_by_topic_v3_and_below
    assert [found.partition_error_code for found in answer.results_by_partition] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert txn.end() == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 3])
def test_s36_clients_add_no_internal_topics(raw: RawClient, topic: str, version: int) -> None:
    """If clients could add internal topics to transactions, a marker would finally be written into the coordinators'
    own state.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    raw.call(FindCoordinatorRequest(key="any"), ApiKey.FIND_COORDINATOR, 0)
    request = txn.add_request(topic)
    internal = [AddPartitionsToTxnTopic(name=name, partitions=[0, 999]) for name in INTERNAL_TOPICS]
    request.v3_and_below_topics += internal
    topics = raw.call(request, ApiKey.ADD_PARTITIONS_TO_TXN, version).results_by_topic_v3_and_below
    codes = {found.name: [each.partition_error_code for each in found.results_by_partition] for found in topics}
    refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert codes == {topic: [ErrorCode.OPERATION_NOT_ATTEMPTED], **dict.fromkeys(INTERNAL_TOPICS, refused)}
    assert txn.end() == ErrorCode.INVALID_TXN_STATE


def test_s36_a_client_adds_no_internal_topic_but_the_offsets_topic(raw: RawClient, topic: str) -> None:
    txn = RawTransactions(raw, topic)
    txn.take_over()
    raw.call(FindCoordinatorRequest(key="any"), ApiKey.FIND_COORDINATOR, 0)
    for name, code in ((TRANSACTION_STATE, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (CONSUMER_OFFSETS, ErrorCode.NONE)):
        asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=topic,
            producer_id=txn.producer.producer_id,
            producer_epoch=txn.producer.epoch,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
        )
        answer = raw.call(AddPartitionsToTxnRequest(transactions=[asked]), ApiKey.ADD_PARTITIONS_TO_TXN, 5)
        (result,) = answer.results_by_transaction
        assert result.topic_results[0].results_by_partition[0].partition_error_code == code
    txn.is_v2 = True
    assert txn.end() == ErrorCode.NONE


def test_s39_no_marker_goes_to_the_log_of_transactions(raw: RawClient, topic: str) -> None:
    txn = RawTransactions(raw, topic)
    txn.take_over()
    index = partition_for(topic, INTERNAL_PARTITIONS)
    before = raw.list_offset(TRANSACTION_STATE, index)
    asked = WriteTxnMarkersRequest.WritableTxnMarker
    marker = asked(
        producer_id=txn.producer.producer_id,
        producer_epoch=txn.producer.epoch,
        transaction_result=True,
        topics=[asked.WritableTxnMarkerTopic(name=TRANSACTION_STATE, partition_indexes=[index])],
        coordinator_epoch=0,
    )
    (answer,) = raw.call(WriteTxnMarkersRequest(markers=[marker]), ApiKey.WRITE_TXN_MARKERS, 1).markers
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.list_offset(TRANSACTION_STATE, index) == before


@pytest.mark.parametrize(("version", "code"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)])
def test_s36_a_verify_only_request_changes_nothing(raw: RawClient, topic: str, version: int, code: ErrorCode) -> None:
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    assert txn.add(topic, 0) == 0
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=topic,
        producer_id=txn.producer.producer_id,
        producer_epoch=txn.producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
    )
    answer = raw.call(AddPartitionsToTxnRequest(transactions=[asked]), ApiKey.ADD_PARTITIONS_TO_TXN, version)
    (result,) = answer.results_by_transaction
    assert [found.partition_error_code for found in result.topic_results[0].results_by_partition] == [0, code]


def test_e32_open_transactions_can_be_looked_at(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    txn.write(topic, 1)
    (state,) = raw.call(
        DescribeTransactionsRequest(transactional_ids=[topic]), ApiKey.DESCRIBE_TRANSACTIONS, 0
    ).transaction_states
    assert (state.error_code, state.transaction_state, state.producer_id) == (0, "Ongoing", txn.producer.producer_id)
    assert [(found.topic, found.partitions) for found in state.topics] == [(topic, [1])]
    (unknown,) = raw.call(
        DescribeTransactionsRequest(transactional_ids=["no such"]), ApiKey.DESCRIBE_TRANSACTIONS, 0
    ).transaction_states
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    listed = raw.call(
        ListTransactionsRequest(
            state_filters=["Ongoing", "Nonsense"], producer_id_filters=[], transactional_id_pattern=f"{topic}.*"
        ),
        ApiKey.LIST_TRANSACTIONS,
        2,
    )
    assert listed.unknown_state_filters == ["Nonsense"]
    assert [found.transactional_id for found in listed.transaction_states] == [topic]
    for pattern in ("(", "x" * 1000):
        asking = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        refused = raw.call(asking, ApiKey.LIST_TRANSACTIONS, 2)
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[1])
    described = raw.call(DescribeProducersRequest(topics=[asked]), ApiKey.DESCRIBE_PRODUCERS, 0)
    (producer,) = described.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (txn.producer.producer_id, 0)
    assert txn.end() == 0
