"""The condition that records must meet to be shown by a page, a tail or a download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from oncelog_console.limits import PAGE_RECORDS
from oncelog_console.lookups.record_view import RecordView
from oncelog_console.values.expression import BEGINNINGS
from oncelog_console.values.reader import ReadAs


class WantedHeader(NamedTuple):
    """A header that a record must have. `value` None means any value."""

    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The condition that a record must meet to be shown. A field that is None, or a `value` that is empty, does not
    restrict the records.

    `until_ms`: only records with a timestamp up to this one (ms since the epoch). `value`: a JSONPath expression if it
    begins like one, otherwise a text that the value must contain. `read_as`: the encoding with which values are
    decoded. `limit`: the number of wanted records.
    """

    committed_only: bool = False
    key: bytes | None = None
    header: WantedHeader | None = None
    until_ms: int | None = None
    value: str = ""
    read_as: ReadAs = ReadAs.AUTOMATIC
    limit: int = PAGE_RECORDS

    @property
    def is_search(self) -> bool:
        """Whether the condition is so narrow that many records may have to be read to find a matching record."""
        return bool(self.value) or any(each is not None for each in (self.key, self.header, self.until_ms))

    @property
    def expression(self) -> str | None:
        """The expression that values must match; None without an expression."""
        return self.value if self.value.startswith(BEGINNINGS) else None

    def takes(self, record: RecordView) -> bool:
        """Return whether the record meets all conditions; the expression is not evaluated here."""
        if self.committed_only and not record.fate.is_readable:
            return False
        if self.until_ms is not None and record.timestamp_ms > self.until_ms:
            return False
        if self.key is None and self.header is None and not self.value:
            return True
        if record.fate.is_control or record.error is not None:
            return False
        return self._has_key(record) and self._has_header(record) and self._has_text(record)

    def _has_key(self, record: RecordView) -> bool:
        return self.key is None or record.key == self.key

    def _has_header(self, record: RecordView) -> bool:
        if self.header is None:
            return True
        name, value = self.header
        return any(each == name and value in (None, content) for each, content in record.headers)

    def _has_text(self, record: RecordView) -> bool:
        if not self.value or self.expression is not None:
            return True
        return record.value is not None and self.value.encode(errors="replace") in record.value
