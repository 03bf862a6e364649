"""One record, as pages, tails and downloads hold it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncelog_console.limits import KEY_BYTES, VALUE_BYTES
from oncelog_console.lookups.batch_outcomes import Outcome
from oncelog_protocol.records.columns import Headers


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record; a control record has no key and value. `error`: why its batch is unreadable. `key_size` and
    `value_size`: the full sizes, if only the beginnings are kept."""

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

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        of_headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return self.key_size + self.value_size + of_headers

    def for_a_table(self) -> RecordView:
        """The row of a table, with the beginning of the value: a few kilobytes of a batch may contain megabytes of a
        value."""
        key, value = self.key and self.key[:KEY_BYTES], self.value and self.value[:VALUE_BYTES]
        return replace(self, key=key, value=value, headers=())
