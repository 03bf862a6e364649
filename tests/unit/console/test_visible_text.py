"""Text from a cluster is shown in an escaped, safe form."""

from __future__ import annotations

import pytest

from oncelog_console.rendering import age, environment
from oncelog_console.visible_text import MAX_JSON_DEPTH, byte_count, bytes_shown, finalized, number, short, visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("orders", "orders"),
        ("Zürich 東京 🙂", "Zürich 東京 🙂"),
        ("a\x00b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("two\nlines\tand", "two\nlines\tand"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_invisible_characters_are_escaped(text: str, seen: str) -> None:
    assert visible(text) == seen
    assert seen.encode(), "and can be sent"


def test_templates_escape_whatever_they_are_given() -> None:
    template = environment().from_string('<a title="{{ name }}">{{ name }}</a>{{ nothing }}{{ 7 }}')
    name = '"><script>alert(1)</script>\u202e&'
    escaped = "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\\u202e&amp;"
    assert template.render(name=name, nothing=None) == f'<a title="{escaped}">{escaped}</a>–7'


def test_the_value_of_a_field_comes_back_as_it_was() -> None:
    template = environment().from_string('<input value="{{ unchanged(name) }}">')
    assert template.render(name='a\u200b"b') == '<input value="a\u200b&#34;b">'


def test_a_long_value_is_cut_and_a_character_with_it() -> None:
    shown = bytes_shown("ä".encode() * 10, 5)
    assert (shown.kind, shown.text, shown.size, shown.is_cut) == ("text", "ää", 20, True)
    megabyte = bytes_shown(b"x" * 1_000_000, 600)
    assert (len(megabyte.text), megabyte.size, megabyte.is_cut) == (600, 1_000_000, True)


def test_null_is_not_empty_and_binary_is_hexadecimal() -> None:
    assert (bytes_shown(None, 9).kind, bytes_shown(b"", 9).kind) == ("null", "empty")
    assert bytes_shown(b"\xff\x00\x01", 9).text == "ff 00 01"
    assert bytes_shown(bytes(range(20)), 99, indents=True).text.splitlines()[1].startswith("000010  10 11 12 13")


def test_json_is_indented_unless_it_is_none() -> None:
    assert bytes_shown(b'{"a":[1]}', 99, indents=True).text == '{\n  "a": [\n    1\n  ]\n}'
    assert bytes_shown(b"{not json", 99, indents=True).kind == "text"
    assert bytes_shown(b"[" * 30_000, 40_000, indents=True).kind == "text", "nested too deeply"
    for depth, kind in ((MAX_JSON_DEPTH, "json"), (MAX_JSON_DEPTH + 1, "text")):
        deep = b"[" * depth + b"1,2" + b"]" * depth
        assert bytes_shown(deep, 9999, indents=True).kind == kind


def test_numbers_and_names_are_for_reading() -> None:
    assert [byte_count(each) for each in (0, 1023, 1536, 5 << 30, None)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        None,
    ]
    assert number(1234567) == "1\u202f234\u202f567"
    for text in (number(1234567), f"{number(1000)} records", number(-1000)):
        assert finalized(text) == text, "a template shows it as it is"
    assert visible("a\u202f1 1\u202fb 1\u202f23") == r"a\u202f1 1\u202fb 1\u202f23", "a name has none of these"
    assert short("a" * 200) == "a" * 119 + "…"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0.0 s"), (9_970, "10 s"), (119_700, "2 min 0 s"), (7_199_900, "2 h 0 min"), (200_000_000, "2 days")],
)
def test_ages_are_rounded_as_a_whole(milliseconds: int, text: str) -> None:
    assert age(0, milliseconds) == text
