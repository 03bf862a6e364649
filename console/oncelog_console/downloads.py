"""(pure) Writes records as a file: lines of JSON as `oncelog consume --json` prints them, or CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.cli.json_records import format_json
from oncelog.cli.offsets import format_timestamp

if TYPE_CHECKING:
    from oncelog.cli.text_records import Headers
    from oncelog_console.lookups.record_view import RecordView
    from oncelog_console.values.reader import Reading

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers", "fate")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""If a cell begins with one of these characters, a spreadsheet treats the cell as a formula, which may run programs."""
GUARD: Final = "'"
"""The character before a cell that looks like a formula, so that the spreadsheet shows the rest of the cell as text."""


class Kind(NamedTuple):
    """The format of a downloaded file; `written(topic, records)` returns the content of the file."""

    ending: str
    media_type: str
    written: Callable[[str, Sequence[RecordView]], bytes]


@dataclass(frozen=True, slots=True)
class _WithTopic:
    """A record with its topic, with the fields that are written as a line of JSON."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    decoded: Mapping[str, Any]


def _as_output(topic: str, record: RecordView) -> _WithTopic:
    readings = (("key", record.key_reading), ("value", record.value_reading))
    read = {name: reading for name, reading in readings if reading is not None and reading.text is not None}
    return _WithTopic(
        topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        None if "key" in read else record.key,
        None if "value" in read else record.value,
        record.headers,
        {name: json.loads(reading.text or "null") for name, reading in read.items()},
    )


def as_json_lines(topic: str, records: Sequence[RecordView]) -> bytes:
    """Return one line for each record, without markers and unreadable batches. `oncelog produce --json` can read the
    lines. Keys and values that were decoded with a schema are JSON, as in the output of `oncelog consume --json --value
    registry`.
    """
    return b"".join(
        format_json(_as_output(topic, each), base64=False)
        for each in records
        if not each.fate.is_control and each.error is None
    )


def as_csv(_topic: str, records: Sequence[RecordView]) -> bytes:
    """Return a line of headings and one row for each record. Bytes that are not UTF-8 become `base64:` and base64; null
    is an empty cell."""
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(COLUMNS)
    for each in records:
        headers = json.dumps([[name, _text(value)] for name, value in each.headers], ensure_ascii=False)
        key, value = _said(each.key_reading, each.key), _said(each.value_reading, each.value)
        cells = (format_timestamp(each.timestamp_ms), key, each.error or value, headers if each.headers else "")
        rows.writerow((each.partition, each.offset, *map(guarded, cells), each.fate.value))
    return written.getvalue().encode(errors="replace")


def guarded(cell: str | None) -> str:
    """Return a cell that no spreadsheet takes for a formula; spaces before a formula do not hide it."""
    text = cell or ""
    return GUARD + text if text.lstrip(" ").startswith(FORMULA) else text


def _said(reading: Reading | None, data: bytes | None) -> str | None:
    return _text(data) if reading is None or reading.text is None else reading.text


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
