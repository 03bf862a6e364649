"""One record, in the form that pages, tails and downloads use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncelog_console.limits import KEY_BYTES, VALUE_BYTES
from oncelog_console.lookups.batch_outcomes import Outcome
from oncelog_console.values.reader import Reading
from oncelog_protocol.records.columns import Headers


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record as pages show it; a control record has no key and value. `error`: why the record's batch is
    unreadable; None if it is
    readable. `key_size` and `value_size`: the full sizes in bytes of key and value, of which only the beginning may be
    kept. `key_reading`, `value_reading`: the decoded key and value; None for plain text and bytes.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    fate: Outcome
    producer_id: int
    producer_epoch: int
    error: str | None = None
    key_size: int = 0
    value_size: int = 0
    key_reading: Reading | None = None
    value_reading: Reading | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, plus characters of the decoded texts."""
        of_headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        readings = [each.text for each in (self.key_reading, self.value_reading) if each is not None]
        return self.key_size + self.value_size + of_headers + sum(len(text or "") for text in readings)

    def for_a_table(self) -> RecordView:
        """Return the record for a row of a table. The result has only the beginning of the value, because a compressed
        batch of a few kilobytes may contain a value of megabytes.
        """
        key, value = self.key and self.key[:KEY_BYTES], self.value and self.value[:VALUE_BYTES]
        return replace(self, key=key, value=value, headers=())
