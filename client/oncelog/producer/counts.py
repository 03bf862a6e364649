"""The counters of a producer. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerCounts:
    """Counters since the producer was created. A record counts as sent when it has been acknowledged."""

    records_sent: int = 0
    bytes_sent: int = 0
    """Bytes of acknowledged batches, after compression."""
    records_failed: int = 0
    records_retried: int = 0
    batches_split: int = 0
    requests: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the counters by the metric names of Kafka's client."""
        return {
            "record-send-total": self.records_sent,
            "outgoing-byte-total": self.bytes_sent,
            "record-error-total": self.records_failed,
            "record-retry-total": self.records_retried,
            "batch-split-total": self.batches_split,
            "request-total": self.requests,
        }
