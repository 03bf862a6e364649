"""Records are exported as files: lines of JSON that can be produced again, and CSV in which no cell is a formula."""

from __future__ import annotations

import csv
import io
import json

import pytest

from oncelog.cli.json_records import parse_json
from oncelog_console.downloads import COLUMNS, as_csv, as_json_lines, guarded
from oncelog_console.lookups.batch_outcomes import Outcome
from oncelog_console.lookups.record_view import RecordView


def record(key: bytes | None, value: bytes | None, fate: Outcome = Outcome.PLAIN, **fields: object) -> RecordView:
    return RecordView(3, 17, 0, key, value, (("h", b"=1"),), fate, -1, -1, **fields)  # type: ignore[arg-type]


def rows(*records: RecordView) -> list[list[str]]:
    return list(csv.reader(io.StringIO(as_csv("orders", records).decode(), newline="")))


def test_lines_of_json_can_be_produced_again() -> None:
    lines = as_json_lines("orders", [record(b"k", b"v\n2"), record(None, b"\xff"), record(b"k", None)]).splitlines()
    assert [(each.key, each.value) for each in map(parse_json, lines)] == [
        (b"k", b"v\n2"),
        (None, b"\xff"),
        (b"k", None),
    ]
    assert json.loads(lines[0])["topic"] == "orders"


def test_lines_of_json_leave_out_markers_and_unreadable_batches() -> None:
    assert as_json_lines("orders", [record(None, None, Outcome.COMMIT), record(None, None, error="corrupt")]) == b""


def test_csv_has_headings_text_bytes_and_the_reason_of_an_unreadable_batch() -> None:
    headings, text, binary, corrupt = rows(
        record(b"k,1", b'say "hi"\nthere'), record(None, b"\xff"), record(None, None, error="corrupt")
    )
    assert tuple(headings) == COLUMNS
    assert text == ["3", "17", "1970-01-01T00:00:00.000Z", "k,1", 'say "hi"\nthere', '[["h", "=1"]]', "no transaction"]
    assert binary[3:5] == ["", "base64:/w=="]
    assert corrupt[4] == "corrupt"


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1"])
def test_no_cell_of_csv_is_a_formula(formula: str) -> None:
    assert guarded(formula) == f"'{formula}"
    (_, row) = rows(record(formula.encode(), formula.encode()))
    assert row[3:5] == [f"'{formula}", f"'{formula}"]


def test_other_cells_stay_as_they_are() -> None:
    assert [guarded(each) for each in ("a=1", "1-1", "", None)] == ["a=1", "1-1", "", ""]
