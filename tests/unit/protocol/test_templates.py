"""A message template is derived from the message's declaration: the bytes before and after the records, and the
positions of the numbers that vary. Some messages have no template.
"""

from __future__ import annotations

from struct import Struct

import pytest

from oncelog_protocol.codec import codec
from oncelog_protocol.messages.fetch import FetchResponse
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.templates import NoTemplate, around_records, changing, records_reader, records_writer
from oncelog_protocol.wire_readers import read_compact_nullable_records, read_nullable_records
from oncelog_protocol.wire_writers import put_compact_nullable_records, put_nullable_records

RECORDS = memoryview(b"records")
VERSIONS = range(3, 14)


def request() -> ProduceRequest:
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=5, records=RECORDS)
    topic = ProduceRequest.TopicProduceData(name="orders", topic_id=bytes(16), partition_data=[data])
    return ProduceRequest(transactional_id="txn", acks=-1, timeout_ms=7, topic_data=[topic])


def response() -> ProduceResponse:
    topic = ProduceResponse.TopicProduceResponse
    answer = topic.PartitionProduceResponse(index=5, error_code=0, base_offset=1)
    return ProduceResponse(responses=[topic(name="orders", topic_id=bytes(16), partition_responses=[answer])])


@pytest.mark.parametrize("version", VERSIONS)
def test_head_records_and_tail_are_the_whole_message(version: int) -> None:
    found = codec(ProduceRequest, version)
    head, tail = around_records(found, request(), request().topic_data[0].partition_data[0].records)
    whole = memoryview(found.encode(request()))
    read, position = records_reader(ProduceRequest, version)(whole, len(head), len(whole))
    assert whole[: len(head)] == head
    assert read == RECORDS
    assert whole[position:] == tail


def test_the_reader_and_the_writer_are_those_of_the_declared_field() -> None:
    assert records_reader(ProduceRequest, 8) is read_nullable_records
    assert records_reader(ProduceRequest, 9) is read_compact_nullable_records
    assert records_writer(FetchResponse, 11) is put_nullable_records
    assert records_writer(FetchResponse, 12) is put_compact_nullable_records


@pytest.mark.parametrize("version", range(5, 14))
def test_a_pattern_with_other_numbers_is_the_message_with_other_numbers(version: int) -> None:
    message, found = response(), codec(ProduceResponse, version)
    answer = message.responses[0].partition_responses[0]
    names = ("base_offset", "log_append_time_ms", "log_start_offset")
    pattern = changing(
        lambda: found.encode(message), *((answer, name) for name in names), (message, "throttle_time_ms")
    )
    assert message == response(), "the message is as it was"
    pattern = pattern.behind(b"head")
    answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = -2, 1 << 60, 300
    message.throttle_time_ms = 77
    layout = Struct(">" + pattern.format)
    values = layout.unpack(b"head" + found.encode(message))
    assert values[::2] == pattern.kept
    assert values[1::2] == (-2, 1 << 60, 300, 77)
    assert layout.pack(*values) == b"head" + found.encode(message)


def test_a_version_without_a_needed_field_has_no_template() -> None:
    message = response()
    answer = message.responses[0].partition_responses[0]
    with pytest.raises(NoTemplate, match="log_start_offset is not there"):
        changing(lambda: codec(ProduceResponse, 4).encode(message), (answer, "log_start_offset"))
    with pytest.raises(NoTemplate, match="base_offset is not behind"):
        changing(
            lambda: codec(ProduceResponse, 9).encode(message), (answer, "log_start_offset"), (answer, "base_offset")
        )
    with pytest.raises(NoTemplate, match="error_message is not of fixed size"):
        changing(lambda: codec(ProduceResponse, 9).encode(message), (answer, "error_message"))


def test_a_message_without_records_has_no_template() -> None:
    with pytest.raises(NoTemplate, match="0 fields"):
        records_reader(HeartbeatRequest, 4)
    with pytest.raises(NoTemplate, match="not in the message"):
        around_records(codec(FetchResponse, 12), FetchResponse(responses=[]), RECORDS)
