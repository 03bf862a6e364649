"""The counters of a consumer. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConsumerCounts:
    """Counters of a consumer since it was created."""

    records_consumed: int = 0
    """Number of records returned by `poll`, `poll_columns` and iteration."""
    fetches: int = 0
    """Number of Fetch responses without an error."""
    bytes_fetched: int = 0
    """Bytes of batches in these Fetch responses, compressed."""

    def metrics(self) -> dict[str, float]:
        """Return the counters by the metric names of Kafka's client."""
        return {
            "records-consumed-total": self.records_consumed,
            "fetch-total": self.fetches,
            "bytes-consumed-total": self.bytes_fetched,
        }
