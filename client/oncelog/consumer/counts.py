"""The counters of a consumer. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConsumerCounts:
    """What a consumer has done since it was made."""

    records_consumed: int = 0
    """Records returned by `poll`, `poll_columns` and iteration."""
    fetches: int = 0
    """Fetch responses without an error."""
    bytes_fetched: int = 0
    """Bytes of batches in these responses, compressed."""

    def metrics(self) -> dict[str, float]:
        """Return the counters by the names that Kafka's client has for them."""
        return {
            "records-consumed-total": self.records_consumed,
            "fetch-total": self.fetches,
            "bytes-consumed-total": self.bytes_fetched,
        }
