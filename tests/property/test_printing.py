"""The commands print no character that can steer a terminal, whatever names another user chose."""

from __future__ import annotations

import io
import json
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import click
import yaml
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.json_records import format_json, parse_json
from oncelog.cli.output import OUTPUTS, YAML, Column, chosen_document, say, show_rows, show_table, tell
from oncelog.cli.running import Failure
from oncelog.cli.text_records import Template
from oncelog.escaping import visible, visible_bytes, visible_json

# Any text that a broker may send: the text is valid UTF-8, so it has no lone surrogates.
ODD = st.sampled_from("\x00\x07\x1b[31m\x7f\x80\x9b\x9d\xad\u200b\u200e\u202e\u2066\u2028\ufeff\U000e0001\r\n\t|")
NAMES = st.text(st.one_of(st.characters(codec="utf-8"), ODD), max_size=20)
COLUMNS = (Column.headed("Name"), Column.headed("Number"))


def steers(text: str) -> list[str]:
    """Return the characters that a terminal obeys or shows as nothing: control and format characters, and line and
    paragraph separators.
    """
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"]


def printed(name: str, number: int, output: str) -> str:
    text = io.StringIO()
    with redirect_stdout(text), click.Context(click.Command("test")) as context:
        show_rows(
            COLUMNS, [(name, number), ([name, name], None)], chosen_document(context, click.Option(["-o"]), output)
        )
    return text.getvalue()


@given(NAMES, st.integers())
def test_rows_steer_no_terminal_in_any_format(name: str, number: int) -> None:
    for output in OUTPUTS:
        shown = printed(name, number, output)
        assert steers(shown.replace("\t", "") if output == "plain" else shown) == []
    lines = printed(name, number, "plain").split("\n")
    assert [line.count("\t") for line in lines] == [1, 1, 0], "a name made a line or a field"


@given(NAMES, st.integers())
def test_documents_keep_the_name(name: str, number: int) -> None:
    expected = [{"name": name, "number": number}, {"name": [name, name], "number": None}]
    assert json.loads(printed(name, number, "json")) == expected
    assert yaml.safe_load(printed(name, number, YAML)) == expected


@given(NAMES)
def test_titles_lines_and_refusals_steer_no_terminal(name: str) -> None:
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        show_table([name, "Number"], [(name, 1)], name, name)
        say(name)
        tell(name)
        Failure(f"{name}: no").show()
    assert steers(text.getvalue()) == []


@given(NAMES.map(str.encode) | st.binary(max_size=20), NAMES)
def test_keys_and_headers_of_records_steer_no_terminal(key: bytes, name: str) -> None:
    record = SimpleNamespace(
        topic="t", partition=0, offset=1, timestamp_ms=2, key=key, value=None, headers=[(name, key)]
    )  # fmt: skip
    shown = Template("{topic} {key} {headers}", b"null", visible_bytes).render(record)
    assert steers(shown.decode()) == []
    assert b"\n" not in shown
    line = format_json(record, base64=False)
    assert steers(line.decode()) == []
    assert parse_json(line).key == key


@given(NAMES)
def test_visible_characters_are_printed_unchanged(name: str) -> None:
    assert visible(visible(name)) == visible(name)
    if name.isprintable():
        assert visible(name) == name
        assert visible_json(name) == name
