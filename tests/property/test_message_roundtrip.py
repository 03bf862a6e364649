"""Any message of any version survives encoding and decoding. Any bytes decode to a message or raise MalformedMessage,
and nothing else.

The test generates messages from the message declarations. The compiled codec and the interpreting codec must produce
the same bytes and the same values, and must refuse the same bytes.
"""

import dataclasses
import tracemalloc
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_protocol.api import ApiKey, request_type, response_type
from oncelog_protocol.codec import codec, default_value, interpreted_codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.schema import (
    FieldSchema,
    array,
    boolean,
    fields_of,
    int8,
    int64,
    message,
    schema_of,
    string,
    uuid,
)

EXAMPLES_PER_VERSION = 3
LIED_TO_MEMORY_BYTES = 64 * 1024


def declared():
    yield from (RequestHeader, ResponseHeader)
    for key in ApiKey:
        try:
            yield request_type(key)
        except ModuleNotFoundError:
            continue
        yield response_type(key)


VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for cls in declared()
    for version in range(schema_of(cls).versions.low, schema_of(cls).versions.high + 1)
]
every_version = pytest.mark.parametrize(("cls", "version"), VERSIONS)

PRIMITIVES = {
    "boolean": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5),
}


@cache
def messages(cls: type, version: int) -> st.SearchStrategy:
    """Generate messages. Fields that the version does not have may have any value, because encoding must leave them
    out.
    """
    return st.builds(cls, **{field.name: values(field, version) for field in fields_of(cls)})


def values(field: FieldSchema, version: int) -> st.SearchStrategy:
    if version not in field.versions:
        if field.struct:
            return st.just(default_value(field))
        return st.just(default_value(field)) | values(field, field.versions.low)
    if field.type_name == "array":
        strategy = st.lists(values(field.element, version), max_size=2)
    elif field.struct:
        strategy = messages(field.struct, version)
    else:
        strategy = PRIMITIVES[field.type_name]
    tagged_struct = version in field.tagged and field.type_name == "struct"
    return st.none() | strategy if version in field.nullable or tagged_struct else strategy


def as_received(message, version: int):
    """Return the message as a peer receives it at `version`: fields that the version lacks get their defaults."""
    if isinstance(message, list):
        return [as_received(item, version) for item in message]
    if not dataclasses.is_dataclass(message):
        return message
    return type(message)(
        **{
            field.name: as_received(getattr(message, field.name), version)
            if version in field.versions
            else default_value(field)
            for field in fields_of(type(message))
        }
    )


def outcome(decoder, data: bytes):
    """Return the decoded message and its end position, or MalformedMessage; any other exception fails the test."""
    try:
        decoded, end = decoder.decode_from(data)
    except MalformedMessage:
        return MalformedMessage
    assert end <= len(data)
    return decoded, end


def assert_alike(one, other):
    """Check equality. A changed byte may turn a number into NaN, which does not equal itself. The printed messages are
    therefore compared in that case.
    """
    assert one == other or repr(one) == repr(other)


def elements(value) -> int:
    """Return the number of elements in all arrays and tagged fields of a message."""
    if isinstance(value, list):
        return len(value) + sum(map(elements, value))
    if not dataclasses.is_dataclass(value):
        return 0
    fields = [(field, getattr(value, field.name)) for field in fields_of(type(value))]
    tags = sum(field.tag is not None and held != default_value(field) for field, held in fields)
    return tags + sum(elements(held) for _, held in fields)


def assert_elements_are_counted(decoder, data, count):
    decoder.decode(data, max_elements=count)
    if count > 0:
        with pytest.raises(MalformedMessage):
            decoder.decode(data, max_elements=count - 1)


def stepped(steps):
    """Run a generator, which yields to pause, until it ends; return the generator's return value."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


@every_version
def test_decoding_an_encoded_message_gives_the_same_message(cls, version):
    """All properties are checked with the same few messages, because generating one costs more than checking it."""
    codecs = codec(cls, version), interpreted_codec(cls, version)

    @examples(EXAMPLES_PER_VERSION)
    @given(messages(cls, version), st.integers(2, 254), st.lists(st.binary(max_size=60), min_size=2, max_size=2))
    def check(message, difference, noise):
        data = assert_round_trip(*codecs, message, version)
        assert_no_part_is_a_message(*codecs, data)
        assert_both_take_a_changed_byte_alike(*codecs, data, difference)
        if version in schema_of(cls).flexible:
            assert_unknown_tags_are_skipped(*codecs, message, version)
        for any_bytes in noise:
            assert_alike(outcome(codecs[0], any_bytes), outcome(codecs[1], any_bytes))

    check()


def assert_round_trip(compiled, interpreted, message, version):
    data = compiled.encode(message)
    assert interpreted.encode(message) == data
    received = as_received(message, version)
    assert compiled.decode_from(data) == interpreted.decode_from(data) == (received, len(data))
    assert_elements_are_counted(compiled, data, elements(received))
    assert_elements_are_counted(interpreted, data, elements(received))
    parts = []
    stepped(compiled.encode_steps(message, parts))
    assert b"".join(parts) == data
    assert stepped(compiled.decode_steps(data)) == received
    if data:
        with pytest.raises(MalformedMessage):
            stepped(compiled.decode_steps(data[:-1]))
    return data


def assert_no_part_is_a_message(compiled, interpreted, data):
    for size in range(len(data)):
        assert outcome(compiled, data[:size]) is MalformedMessage
        assert outcome(interpreted, data[:size]) is MalformedMessage


def assert_both_take_a_changed_byte_alike(compiled, interpreted, data, difference):
    """Replace each byte by a value that is one more, one less, or random. This includes lengths, counts and tags that
    are wrong by one.
    """
    data = bytearray(data)
    for position, byte in enumerate(data):
        for change in (1, 255, difference):
            data[position] = (byte + change) & 0xFF
            assert_alike(outcome(compiled, data), outcome(interpreted, data))
        data[position] = byte


def assert_unknown_tags_are_skipped(compiled, interpreted, message, version):
    """A newer peer may send tagged fields that this version does not know (KIP-482)."""
    without_ours = {field.name: default_value(field) for field in fields_of(type(message)) if version in field.tagged}
    message = dataclasses.replace(message, **without_ours)
    without_tags = compiled.encode(message)[:-1]
    data = without_tags + b"\x02" + b"\x63\x03new" + b"\xe4\x07\x00"
    lying = without_tags + b"\x01" + b"\x63\x04new"
    for decoder in (compiled, interpreted):
        assert outcome(decoder, data) == (as_received(message, version), len(data))
        assert outcome(decoder, lying) is MalformedMessage


@message(versions="0-1", flexible="1+")
class ArraysOfEverything:
    """A message with an array of each primitive type; arrays of fixed-size elements are decoded in one call."""

    uuids: list[bytes] = array(of=uuid())
    flags: list[bool] = array(of=boolean())
    bytes_: list[int] = array(of=int8())
    longs: list[int] = array(of=int64())
    strings: list[str] = array(of=string())


@pytest.mark.parametrize("pattern", ["000fffff", "ffff3f", "7fffffff", "fffffe07", "7f", "ff"])
def test_lengths_that_lie_take_no_memory(pattern):
    """Decoding must not allocate memory for counts and lengths far beyond the available bytes (CVE-2022-34917)."""
    data = bytes.fromhex(pattern) * 16
    decoders = [codec(ArraysOfEverything, version) for version in (0, 1)]
    decoders += [codec(*param.values) for param in VERSIONS]
    tracemalloc.start()
    try:
        for decoder in decoders:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            outcome(decoder, data)
            assert tracemalloc.get_traced_memory()[1] - before < LIED_TO_MEMORY_BYTES, decoder.cls
    finally:
        tracemalloc.stop()
