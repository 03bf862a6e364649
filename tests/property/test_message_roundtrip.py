"""Any message of any version survives the wire; any bytes give a message or MalformedMessage, nothing else.

Messages are made from the declarations. The compiled codec and the interpreted one must agree in everything: bytes,
values, and which bytes they refuse.
"""

import dataclasses
import tracemalloc
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog_protocol.api import ApiKey, request_type, response_type
from oncelog_protocol.codec import codec, default_value, interpreted_codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.schema import FieldSchema, fields_of, schema_of

EXAMPLES_PER_VERSION = 4
MUTATIONS_PER_VERSION = 8


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
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5),
}


@cache
def messages(cls: type, version: int) -> st.SearchStrategy:
    """Messages in which a field that the version does not carry may hold anything too: it must not be sent."""
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
    """What is left of a message at `version`: the fields that it does not carry have their defaults."""
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


def outcome(decode, data: bytes):
    """The message, or MalformedMessage; anything else that is raised fails the test."""
    try:
        return decode(data)
    except MalformedMessage:
        return MalformedMessage


@every_version
def test_round_trip(cls, version):
    compiled, interpreted = codec(cls, version), interpreted_codec(cls, version)

    @settings(max_examples=EXAMPLES_PER_VERSION)
    @given(messages(cls, version))
    def check(message):
        data = compiled.encode(message)
        assert interpreted.encode(message) == data
        assert compiled.decode_from(data) == interpreted.decode_from(data) == (as_received(message, version), len(data))

    check()


@every_version
def test_truncated_bytes(cls, version):
    compiled, interpreted = codec(cls, version), interpreted_codec(cls, version)

    @settings(max_examples=2)
    @given(messages(cls, version))
    def check(message):
        data = compiled.encode(message)
        for size in range(len(data)):
            assert outcome(compiled.decode, data[:size]) is MalformedMessage
            assert outcome(interpreted.decode, data[:size]) is MalformedMessage

    check()


@every_version
def test_mutated_bytes(cls, version):
    compiled, interpreted = codec(cls, version), interpreted_codec(cls, version)
    changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)

    @settings(max_examples=MUTATIONS_PER_VERSION)
    @given(messages(cls, version), changes)
    def check(message, changes):
        data = bytearray(compiled.encode(message))
        for where, byte in changes if data else ():
            data[int(where * len(data))] = byte
        assert outcome(compiled.decode, data) == outcome(interpreted.decode, data)

    check()


@every_version
def test_any_bytes(cls, version):
    compiled, interpreted = codec(cls, version), interpreted_codec(cls, version)

    @settings(max_examples=MUTATIONS_PER_VERSION)
    @given(st.binary(max_size=60))
    def check(data):
        assert outcome(compiled.decode, data) == outcome(interpreted.decode, data)

    check()


@pytest.mark.parametrize("pattern", ["7f", "ff", "fffffe07", "7fffffff", "00000040"])
def test_lengths_that_lie_take_no_memory(pattern):
    """Counts and lengths far beyond the bytes that are there (CVE-2022-34917)."""
    data = bytes.fromhex(pattern) * 16
    decoders = [codec(*param.values).decode for param in VERSIONS]
    tracemalloc.start()
    try:
        for decode in decoders:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            outcome(decode, data)
            assert tracemalloc.get_traced_memory()[1] - before < 64 * 1024, decode.__self__.cls
    finally:
        tracemalloc.stop()
