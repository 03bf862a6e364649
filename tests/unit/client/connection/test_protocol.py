from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.connection.protocol import ConnectionProtocol
from oncelog.errors import ConnectionFailed
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import UnencodableMessage
from oncelog_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.messages.produce import ProduceRequest

METADATA_VERSION = 9


def protocol() -> ConnectionProtocol[str]:
    return ConnectionProtocol("me", max_response_bytes=10_000)


def metadata_request(name: str = "t") -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])


def feed(connection: ConnectionProtocol[str], data: bytes) -> list[tuple[str, Any]]:
    done = []
    for position in range(0, len(data), 50):
        part = data[position : position + 50]
        connection.get_buffer()[: len(part)] = part
        done += connection.received(len(part))
    return done


def answer(correlation_id: int, response: Any, version: int, header_version: int = 1) -> bytes:
    body = codec(ResponseHeader, header_version).encode(ResponseHeader(correlation_id=correlation_id))
    body += codec(type(response), version).encode(response)
    return len(body).to_bytes(4, "big") + body


def test_a_request_is_framed_with_its_header() -> None:
    connection = protocol()
    frame = b"".join(connection.send(metadata_request(), METADATA_VERSION, "first"))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = codec(RequestHeader, 2).decode_from(frame, 4)
    assert (header.request_api_key, header.request_api_version, header.client_id) == (3, METADATA_VERSION, "me")
    assert codec(MetadataRequest, METADATA_VERSION).decode(frame, position) == metadata_request()


def test_responses_find_their_requests_in_order() -> None:
    connection = protocol()
    for waiter in ("first", "second"):
        connection.send(metadata_request(), METADATA_VERSION, waiter)
    responses = [MetadataResponse(brokers=[], topics=[], cluster_id=name) for name in ("a", "b")]
    data = b"".join(answer(index, response, METADATA_VERSION) for index, response in enumerate(responses))
    assert feed(connection, data) == [("first", responses[0]), ("second", responses[1])]
    assert not connection.in_flight


def test_correlation_ids_wrap() -> None:
    connection = protocol()
    connection._correlation_id = 2**31 - 1
    connection.send(metadata_request(), METADATA_VERSION, "last")
    connection.send(metadata_request(), METADATA_VERSION, "first")
    assert [request.correlation_id for request in connection.in_flight] == [2**31 - 1, 0]


@pytest.mark.parametrize("correlation_id", [1, -1, 7])
def test_a_response_to_another_request_is_an_error(correlation_id: int) -> None:
    connection = protocol()
    connection.send(metadata_request(), METADATA_VERSION, "first")
    with pytest.raises(ConnectionFailed, match=f"correlation id {correlation_id}, expected 0"):
        feed(connection, answer(correlation_id, MetadataResponse(brokers=[], topics=[]), METADATA_VERSION))


def test_the_responses_before_a_wrong_one_count() -> None:
    connection = protocol()
    for waiter in ("first", "second"):
        connection.send(metadata_request(), METADATA_VERSION, waiter)
    response = MetadataResponse(brokers=[], topics=[])
    data = answer(0, response, METADATA_VERSION) + answer(7, response, METADATA_VERSION)
    connection.get_buffer()[: len(data)] = data
    done = []
    with pytest.raises(ConnectionFailed, match="correlation id 7, expected 1"):
        for completed in connection.received(len(data)):
            done.append(completed)  # noqa: PERF402 - what comes before the error
    assert done == [("first", response)]
    assert [request.waiter for request in connection.in_flight] == ["second"]


def test_a_response_to_nothing_is_an_error() -> None:
    with pytest.raises(ConnectionFailed, match="no request is in flight"):
        feed(protocol(), answer(0, MetadataResponse(brokers=[], topics=[]), METADATA_VERSION))


def test_a_request_without_response_is_not_in_flight() -> None:
    connection = protocol()
    connection.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9, None)
    assert not connection.in_flight


def test_a_request_that_cannot_be_encoded_changes_nothing() -> None:
    connection = protocol()
    with pytest.raises(UnencodableMessage):
        connection.send(metadata_request("x" * 40_000), METADATA_VERSION, "first")
    assert not connection.in_flight
    connection.send(metadata_request(), METADATA_VERSION, "first")
    assert connection.in_flight[0].correlation_id == 0


def test_the_refusal_of_a_version_is_read_in_version_0() -> None:
    connection = protocol()
    connection.send(ApiVersionsRequest(), 3, "versions")
    response = ApiVersionsResponse(error_code=35, api_keys=[])
    assert feed(connection, answer(0, response, 0, header_version=0)) == [("versions", response)]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_response_or_a_connection_error(data: bytes) -> None:
    connection = protocol()
    for waiter in "abc":
        connection.send(metadata_request(), METADATA_VERSION, waiter)
    try:
        done = feed(connection, data)
    except ConnectionFailed:
        return
    assert [waiter for waiter, _ in done] == ["a", "b", "c"][: len(done)]


@given(st.binary(max_size=200))
def test_any_body_behind_a_good_header_is_a_response_or_an_error(data: bytes) -> None:
    connection = protocol()
    connection.send(metadata_request(), METADATA_VERSION, "a")
    frame = bytes(4) + b"\0" + data
    try:
        done = feed(connection, len(frame).to_bytes(4, "big") + frame)
    except ConnectionFailed:
        return
    assert isinstance(done[0][1], MetadataResponse)
