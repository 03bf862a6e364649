"""The records of the internal topics are decoded as Kafka's DumpLogSegments shows them (S57)."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog_broker.coordinator.group.records import encode, group_record, offset_record
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state_records import SnapshotRecord, UpdateRecord
from oncelog_broker.coordinator.share.share_state_records import encode as encode_share_state
from oncelog_broker.dump.command import dump
from oncelog_broker.dump.decoders import Decoder, decoder_of, message_json
from oncelog_protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from oncelog_protocol.consumer_protocol import encode_versioned as encode_consumer_protocol
from oncelog_protocol.coordinator_records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog_protocol.coordinator_records.share_group_state import ShareUpdateValue
from oncelog_protocol.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from oncelog_protocol.coordinator_records.versioned import encode_versioned
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

TRANSACTION = TransactionLogValue(
    producer_id=7,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0, 2])],
    transaction_last_update_timestamp_ms=11,
    transaction_start_timestamp_ms=10,
    client_transaction_version=2,
)
TRANSACTION_LINE = (
    'key: {"type":"0","data":{"transactionalId":"billing é"}} payload: {"version":"1","data":{"producerId":7,'
    '"producerEpoch":2,"transactionTimeoutMs":60000,"transactionStatus":1,"transactionPartitions":[{"topic":"orders",'
    '"partitionIds":[0,2]}],"transactionLastUpdateTimestampMs":11,"transactionStartTimestampMs":10,'
    '"clientTransactionVersion":2}}'
)
TRANSACTION_KEY = encode_versioned(TransactionLogKey(transactional_id="billing é"), 0)
OFFSET_KEY = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(dump, [str(argument) for argument in arguments])


def log_with(directory: Path, *records: tuple[bytes | None, bytes | None]) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{0:020}.log"
    path.write_bytes(build_batch([Record(n, 5, *record, []) for n, record in enumerate(records)], base_offset=0))
    return path


def contents(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.partition("headerKeys: [] ")[2] for line in result.stdout.splitlines() if line.startswith("| ")]


def test_s57_the_transaction_log_is_decoded(tmp_path: Path) -> None:
    path = log_with(
        tmp_path / "__transaction_state-3",
        (TRANSACTION_KEY, encode_versioned(TRANSACTION, 1)),
        (TRANSACTION_KEY, None),
    )
    deleted = 'key: {"type":"0","data":{"transactionalId":"billing é"}} payload: <DELETE>'
    assert contents(run(path, "--print-data-log")) == [TRANSACTION_LINE, deleted]
    assert contents(run(path)) == []


def test_s57_values_of_the_previous_version_have_no_tagged_fields(tmp_path: Path) -> None:
    path = log_with(tmp_path, (TRANSACTION_KEY, encode_versioned(TRANSACTION, 0)))
    (line,) = contents(run(path, "--transaction-log-decoder"))
    assert line == TRANSACTION_LINE.replace('"version":"1"', '"version":"0"').replace(
        ',"clientTransactionVersion":2', ""
    )


def test_s57_committed_offsets_are_decoded(tmp_path: Path) -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=7)
    path = log_with(
        tmp_path / "__consumer_offsets-12",
        encode(offset_record("g", "t", 3, value)),
        (OFFSET_KEY, encode_versioned(value, 1)),
        encode(offset_record("g", "t", 3, None)),
    )
    key = 'key: {"type":"1","data":{"group":"g","topic":"t","partition":3}} payload: '
    assert contents(run(path, "--print-data-log")) == [
        key + '{"version":"3","data":{"offset":5,"leaderEpoch":1,"metadata":"m","commitTimestamp":7}}',
        key + '{"version":"1","data":{"offset":5,"metadata":"m","commitTimestamp":7,"expireTimestamp":-1}}',
        key + "<DELETE>",
    ]


def test_s57_groups_show_what_their_consumers_say(tmp_path: Path) -> None:
    subscription = encode_consumer_protocol(ConsumerProtocolSubscription(topics=["t"], user_data=b"u"), 1)
    assigned = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0])
    assignment = encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=[assigned]), 0)
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=subscription,
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=9,
        members=[member],
    )
    path = log_with(tmp_path, encode(group_record("g", value)))
    line = contents(run(path, "--offsets-decoder"))[0]
    assert line == (
        'key: {"type":"2","data":{"group":"g"}} payload: {"version":"3","data":{"protocolType":"consumer",'
        '"generation":4,"protocol":"range","leader":"m","currentStateTimestamp":9,"members":[{"memberId":"m",'
        '"groupInstanceId":null,"clientId":"c","clientHost":"/h","rebalanceTimeout":1,"sessionTimeout":2,'
        '"subscription":{"topics":["t"],"userData":"dQ==","ownedPartitions":[]},"assignment":""}]}}'
    )
    member.assignment, value.protocol_type = assignment, "connect"
    shown = message_json(value, 3)["members"][0]
    assert shown["subscription"] == "AAEAAAABAAF0AAAAAXUAAAAA", "of another protocol: bytes"


def test_s57_the_directory_says_which_topic_it_is_and_options_overrule_it(tmp_path: Path) -> None:
    assert decoder_of(tmp_path / "__transaction_state-0" / "0.log") is Decoder.TRANSACTION_LOG
    assert decoder_of(tmp_path / "__consumer_offsets-49" / "0.log") is Decoder.OFFSETS
    deleted = "__consumer_offsets-4.0123456789abcdef0123456789abcdef-delete"
    assert decoder_of(tmp_path / deleted / "0.log") is Decoder.OFFSETS
    for other in ("orders-0", "__consumer_offsets", "x__consumer_offsets-0", "__consumer_offsets-x-1"):
        assert decoder_of(tmp_path / other / "0.log") is None
    path = log_with(tmp_path / "__transaction_state-0", (OFFSET_KEY, None))
    assert contents(run(path, "--offsets-decoder"))[0].startswith('key: {"type":"1","data":{"group":"g"')
    assert run(path, "--offsets-decoder", "--transaction-log-decoder").exit_code == 2


def test_s57_json_nests_what_was_decoded(tmp_path: Path) -> None:
    path = log_with(tmp_path, (TRANSACTION_KEY, encode_versioned(TRANSACTION, 1)))
    _, record = map(json.loads, run(path, "--transaction-log-decoder", "--json").stdout.splitlines())
    assert record["key"]["data"] == {"transactionalId": "billing é"}
    assert record["payload"]["data"]["producerId"] == 7


def test_s57_records_of_share_partitions_are_decoded(tmp_path: Path) -> None:
    key = ShareKey("jobs", bytes(15) + b"\x01", 2)
    batch = ShareUpdateValue.StateBatch(first_offset=4, last_offset=6, delivery_state=2, delivery_count=1)
    update = ShareUpdateValue(snapshot_epoch=1, leader_epoch=3, start_offset=-1, state_batches=[batch])
    path = log_with(
        tmp_path / "__share_group_state-7",
        encode_share_state(UpdateRecord(key, update)),
        encode_share_state(SnapshotRecord(key, None)),
    )
    data = '{"groupId":"jobs","topicId":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2}'
    assert contents(run(path, "--print-data-log")) == [
        f'key: {{"type":"1","data":{data}}} payload: {{"version":"0","data":{{"snapshotEpoch":1,"leaderEpoch":3,'
        '"startOffset":-1,"stateBatches":[{"firstOffset":4,"lastOffset":6,"deliveryState":2,"deliveryCount":1}]}}',
        f'key: {{"type":"0","data":{data}}} payload: <DELETE>',
    ]


def test_records_of_later_protocols_are_skipped(tmp_path: Path) -> None:
    path = log_with(tmp_path, (b"\x00\x63whatever", b"\x00\x00whatever"))
    assert contents(run(path, "--offsets-decoder")) == ["key: Unknown record type 99 at offset 0, skipping."]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (None, b"x", "offset 0 cannot be decoded: the record has no key"),
        (b"\x00", b"x", "offset 0 cannot be decoded: 1 bytes are too short"),
        (TRANSACTION_KEY[:-1], None, "offset 0 cannot be decoded: TransactionLogKey v0"),
        (TRANSACTION_KEY, b"\x00\x01\x00", "offset 0 cannot be decoded: TransactionLogValue v1"),
        (TRANSACTION_KEY, b"\x00\x09", "TransactionLogValue of version 9 is not known here"),
    ],
)
def test_an_undecodable_record_is_a_fault_and_reading_continues(
    tmp_path: Path, key: bytes | None, value: bytes | None, fault: str
) -> None:
    path = log_with(tmp_path, (key, value), (TRANSACTION_KEY, None))
    result = run(path, "--transaction-log-decoder")
    assert result.exit_code == 1
    assert fault in result.stderr
    assert "<DELETE>" in result.stdout


def test_group_keys_are_of_their_own_version() -> None:
    assert message_json(GroupMetadataKey(group="g"), 2) == {"group": "g"}
