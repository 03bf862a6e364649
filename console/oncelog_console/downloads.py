"""(pure) Records as a file: lines of JSON as `oncelog consume --json` prints them, or CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.cli.json_records import format_json
from oncelog.cli.offsets import format_timestamp

if TYPE_CHECKING:
    from oncelog.cli.text_records import Headers
    from oncelog_console.lookups.record_view import RecordView

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers", "fate")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""A spreadsheet takes a cell that begins with one of these as a formula, which may run programs."""
GUARD: Final = "'"
"""Put before such a cell: the spreadsheet shows the rest as text."""


class Kind(NamedTuple):
    """`written(topic, records)` returns the file's content."""

    ending: str
    media_type: str
    written: Callable[[str, Sequence[RecordView]], bytes]


@dataclass(frozen=True, slots=True)
class _WithTopic:
    """A record as a line of JSON needs it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def as_json_lines(topic: str, records: Sequence[RecordView]) -> bytes:
    """A line for each record; markers and unreadable batches have none. `oncelog produce --json` reads the lines."""
    return b"".join(
        format_json(
            _WithTopic(topic, each.partition, each.offset, each.timestamp_ms, each.key, each.value, each.headers),
            base64=False,
        )
        for each in records
        if not each.fate.is_control and each.error is None
    )


def as_csv(_topic: str, records: Sequence[RecordView]) -> bytes:
    """A row for each record, headings first. Bytes that are not UTF-8 become `base64:` and base64; null is an empty
    cell."""
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(COLUMNS)
    for each in records:
        headers = json.dumps([[name, _text(value)] for name, value in each.headers], ensure_ascii=False)
        cells = (format_timestamp(each.timestamp_ms), _text(each.key), _text(each.value))
        of_headers = headers if each.headers else ""
        value = each.error or cells[2]
        rows.writerow(
            (each.partition, each.offset, *map(guarded, (cells[0], cells[1], value, of_headers)), each.fate.value)
        )
    return written.getvalue().encode(errors="replace")


def guarded(cell: str | None) -> str:
    """The cell, which no spreadsheet takes as a formula; spaces before a formula do not hide it."""
    text = cell or ""
    return GUARD + text if text.lstrip(" ").startswith(FORMULA) else text


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return f"base64:{b64encode(data).decode()}"


KINDS: Final[Mapping[str, Kind]] = {
    "jsonl": Kind("jsonl", "application/x-ndjson", as_json_lines),
    "csv": Kind("csv", "text/csv; charset=utf-8", as_csv),
}
