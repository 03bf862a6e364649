"""Records are printed and read as lines of JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.json_records import format_json, parse_json
from oncelog.cli.text_records import InputRecord
from oncelog.consumer.records import ConsumerRecord

data = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(data, data, st.lists(st.tuples(st.text(max_size=5), data), max_size=3), st.booleans())
def test_a_record_is_read_back_from_its_json(key, value, headers, base64):
    line = format_json(ConsumerRecord("t", 3, 17, 1000, 0, key, value, headers, 0), base64=base64)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert parse_json(line) == InputRecord(key, value, headers, 3, 1000)


def test_values_are_text_where_possible():
    def shown(value, **options):
        line = json.loads(format_json(ConsumerRecord("t", 0, 0, -1, 0, None, value, [], 0), **options))
        return line["value"], line["encoding"]

    assert shown("é".encode(), base64=False) == ("é", "utf-8")
    assert shown(b"\xff", base64=False) == ("/w==", "base64")
    assert shown(b"a", base64=True) == ("YQ==", "base64")


def test_few_fields_are_enough():
    assert parse_json(b"{}") == InputRecord(None, None)
    assert parse_json(b'{"value":"v","headers":{"a":"1"}}') == InputRecord(None, b"v", [("a", b"1")])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"3", "a record is a JSON object"),
        (b'{"vlaue":"x"}', "unknown field 'vlaue'"),
        (b'{"value":3}', "value is a string or null"),
        (b'{"value":"*","encoding":"base64"}', "value: "),
        (b'{"value":"\\ud800"}', "value: "),
        (b'{"encoding":"hex"}', "encoding is one of"),
        (b'{"partition":-1}', "partition is an integer"),
        (b'{"partition":true}', "partition is an integer"),
        (b'{"timestamp":1.5}', "timestamp is an integer"),
        (b'{"headers":[["a"]]}', "headers are a list"),
        (b'{"headers":3}', "headers are a list"),
        (b'{"headers":[["a",3]]}', "header 'a' is a string"),
    ],
)
def test_a_wrong_line_is_refused_with_the_field(line, why):
    with pytest.raises(ValueError, match=why):
        parse_json(line)
