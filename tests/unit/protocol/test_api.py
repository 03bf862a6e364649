"""API keys, their message types, and the versions of the message headers."""

import subprocess
import sys

import pytest

from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.schema import schema_of


def declared_keys():
    for key in ApiKey:
        try:
            request_type(key)
        except ModuleNotFoundError:
            continue
        yield key


def test_key_is_the_number_on_the_wire():
    assert ApiKey(22) is ApiKey.INIT_PRODUCER_ID
    assert ApiKey.INIT_PRODUCER_ID == 22
    assert ApiKey.INIT_PRODUCER_ID.message_name == "InitProducerId"


def test_message_types_are_found_by_key():
    assert request_type(ApiKey.INIT_PRODUCER_ID) is InitProducerIdRequest
    assert response_type(ApiKey.INIT_PRODUCER_ID) is InitProducerIdResponse


def test_a_key_without_messages_is_known():
    with pytest.raises(ModuleNotFoundError):
        request_type(ApiKey.DESCRIBE_QUORUM)  # oncelog has no metadata log that this API could describe


@pytest.mark.parametrize("key", list(declared_keys()), ids=lambda key: key.name)
def test_header_versions_follow_the_declarations(key):
    for message_type in (request_type, response_type):
        schema = schema_of(message_type(key))
        assert schema.api_key == key
        for version in range(schema.versions.low, schema.versions.high + 1):
            assert (version >= key.first_flexible) is (version in schema.flexible)
            assert request_header_version(key, version) == (2 if version in schema.flexible else 1)


def test_api_versions_response_header_is_never_flexible():
    assert [request_header_version(ApiKey.API_VERSIONS, v) for v in range(5)] == [1, 1, 1, 2, 2]
    assert [response_header_version(ApiKey.API_VERSIONS, v) for v in range(5)] == [0] * 5


def test_response_header_versions():
    assert [response_header_version(ApiKey.PRODUCE, v) for v in (3, 8, 9, 13)] == [0, 0, 1, 1]
    assert [response_header_version(ApiKey.SASL_HANDSHAKE, v) for v in (0, 1)] == [0, 0]
    assert response_header_version(ApiKey.OFFSET_DELETE, 0) == 0
    assert response_header_version(ApiKey.DESCRIBE_CLUSTER, 0) == 1


def test_client_id_is_never_compact():
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="me")
    assert codec(RequestHeader, 1).encode(header) == bytes.fromhex("0012 0003 00000007 0002") + b"me"
    assert codec(RequestHeader, 2).encode(header) == bytes.fromhex("0012 0003 00000007 0002") + b"me\0"


def test_a_response_header_is_read():
    assert codec(ResponseHeader, 0).encode(ResponseHeader(correlation_id=7)) == bytes.fromhex("00000007")
    assert codec(ResponseHeader, 1).encode(ResponseHeader(correlation_id=7)) == bytes.fromhex("00000007 00")


def test_importing_the_keys_imports_no_messages():
    program = "import sys, oncelog_protocol.api; print([m for m in sys.modules if '.messages.' in m])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
