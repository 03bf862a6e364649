"""Lines of text become records, and records become lines of text."""

import pytest

from oncelog.cli import text_records
from oncelog.cli.text_records import (
    InputRecord,
    Lines,
    Template,
    escaped_bytes,
    line_template,
    parse_header,
    parse_line,
)
from oncelog.consumer.records import ConsumerRecord


def record(key=b"k", value=b"v", headers=()):
    return ConsumerRecord("t", 2, 17, 1_767_225_600_000, 0, key, value, list(headers), 0)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_however_they_are_cut(size):
    data = b"one\n\ntwo \r\n\xff\x00three"
    lines = Lines()
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert found + lines.finish() == [b"one", b"", b"two \r", b"\xff\x00three"]


def test_input_that_ends_in_a_newline_has_no_line_after_it():
    lines = Lines()
    assert lines.feed(b"a\n") == [b"a"]
    assert lines.finish() == []


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(text_records, "MAX_LINE_BYTES", 10)
    lines = Lines()
    assert lines.feed(b"x" * 10) == []
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        lines.feed(b"x")


def test_key_and_value_are_separated():
    assert parse_line(b"a:b:c", key_separator=b":", null_value=None) == InputRecord(b"a", b"b:c")
    assert parse_line(b":", key_separator=b":", null_value=None) == InputRecord(b"", b"")
    assert parse_line(b"a:NULL", key_separator=b":", null_value=b"NULL") == InputRecord(b"a", None)
    assert parse_line(b"", key_separator=None, null_value=None) == InputRecord(None, b"")
    assert parse_line(b"", key_separator=None, null_value=b"") == InputRecord(None, None)


def test_a_line_without_its_separator_is_refused():
    with pytest.raises(ValueError, match=r"no key separator ':' in 'abc'"):
        parse_line(b"abc", key_separator=b":", null_value=None)


def test_escapes_are_resolved():
    assert escaped_bytes(r"a\tb\n\x00\xfe\\\0") == b"a\tb\n\x00\xfe\\\x00"
    assert escaped_bytes("é") == "é".encode()
    for wrong in (r"\q", "\\", r"\x1"):
        with pytest.raises(ValueError, match="unknown escape"):
            escaped_bytes(wrong)


def test_headers_are_parsed():
    assert parse_header("a=b=c") == ("a", b"b=c")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_header("a")


def test_a_template_is_filled_in():
    template = Template(
        r"{{{topic}}} {partition}:{offset} {timestamp}|{timestamp_ms} {key}={value} {headers}\0", b"null"
    )
    shown = template.render(record(b"\xff", None, [("a", b"1"), ("b", None)]))
    assert shown == b"{t} 2:17 2026-01-01T00:00:00.000Z|1767225600000 \xff=null a=1,b=null\x00"


@pytest.mark.parametrize("wrong", ["{nothing}", "{key!r}", "{offset:5}", "{", "{}", r"\q"])
def test_a_wrong_template_is_refused(wrong):
    with pytest.raises(ValueError, match=r".+"):
        Template(wrong, b"")


def test_columns_are_aligned():
    def line(**flags):
        wanted = {"timestamps": False, "offsets": False, "headers": False, "key_separator": None, **flags}
        return Template(line_template(**wanted), b"null").render(record(headers=[("h", b"x")]))

    assert line() == b"v\n"
    assert line(key_separator="{}") == b"k{}v\n"
    assert line(offsets=True, timestamps=True, headers=True, key_separator=r"\t") == (
        b"2026-01-01T00:00:00.000Z\tt:2:17\th=x\tk\tv\n"
    )
