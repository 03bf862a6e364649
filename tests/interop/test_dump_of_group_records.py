"""`oncelog dump` prints the records of every group protocol as Kafka's DumpLogSegments does (S57, KIP-848, KIP-932,
KIP-1071).

The records are not written by a broker: each kind is filled with values of its own, so that every field is printed.
"""

from __future__ import annotations

import dataclasses
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka
from click.testing import CliRunner
from conftest import or_skip

from oncelog_broker.dump.command import dump
from oncelog_broker.dump.decoders import KINDS, Decoder
from oncelog_protocol.coordinator_records.versioned import encode_versioned
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record
from oncelog_protocol.schema import FieldSchema, fields_of, schema_of

RELEASE = "4.3.1"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
LEGACY_OFFSET_COMMIT = 0
"""The oldest kind of record for a committed offset; Kafka's tool reads only the oldest version of its value."""
OPTIONS = {Decoder.OFFSETS: "--offsets-decoder", Decoder.SHARE_GROUP_STATE: "--share-group-state-decoder"}


def filled(cls: type, version: int, numbers: count[int], *, is_whole: bool = True) -> Any:
    """Return a message whose fields all have different values; without `is_whole`, optional fields keep their
    defaults.
    """
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return cls(
        **{
            field.name: filled_field(field, version, numbers)
            for field in fields_of(cls)
            if field.name in required or (is_whole and version in field.versions)
        }
    )


def filled_field(field: FieldSchema, version: int, numbers: count[int]) -> Any:
    if field.type_name == "array":
        assert field.element is not None
        return [filled_field(field.element, version, numbers) for _ in range(2)]
    if field.struct is not None:
        return filled(field.struct, version, numbers)
    number = next(numbers)
    match field.type_name:
        case "string":
            return f"text {number}"
        case "bytes":
            return b"\xff%d" % number
        case "uuid":
            return number.to_bytes(16, "big")
        case "int8":
            return number % 128
        case "bool":
            return number % 2 == 0
    return number


def records_of(decoder: Decoder) -> list[Record]:
    """Return three records of each kind: a filled value, a value with all defaults, and a tombstone."""
    numbers = count(1)
    made: list[Record] = []
    for number, (key_class, value_class) in sorted(decoder.kinds.items()):
        version = 0 if number == LEGACY_OFFSET_COMMIT else schema_of(value_class).versions.high
        small = filled(value_class, version, numbers, is_whole=False)
        for value in (filled(value_class, version, numbers), small, None):
            key = encode_versioned(filled(key_class, number, numbers), number)
            encoded = None if value is None else encode_versioned(value, version)
            made.append(Record(len(made), 5, key, encoded, []))
    return made


@pytest.mark.parametrize("decoder", OPTIONS)
def test_s57_records_of_all_group_protocols_are_shown_as_by_kafkas_tool(decoder: Decoder, tmp_path: Path) -> None:
    tools = or_skip(lambda: ApacheKafka(RELEASE, tmp_path / "tools"))
    records = records_of(decoder)
    assert len(records) == 3 * len(KINDS[decoder])
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(build_batch(records, base_offset=0))
    named = ["--files", str(path), OPTIONS[decoder]]
    ours = CliRunner().invoke(dump, named).stdout.splitlines()
    assert ours == tools.tool(DUMP, named).splitlines()
    assert sum(" payload: " in line for line in ours) == len(records)
