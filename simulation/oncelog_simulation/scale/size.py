"""The size of a cluster: brokers, partitions, groups, producers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

RACKS: Final = 3
"""Number of racks over which the brokers are spread; each partition has a replica in each rack."""
REPLICAS: Final = 3
INTERNAL_PARTITIONS: Final = 50
"""Partitions of __consumer_offsets, and of __transaction_state: Kafka's default."""


@dataclass(frozen=True)
class Size:
    """The size of a cluster in which the replication factor is `REPLICAS`."""

    brokers: int
    partitions: int
    """Partitions of all topics, without the internal topics."""
    groups: int
    """Consumer groups with one member each, and with one committed offset."""
    producers: int
    """Transactional producers, each of which has ended one transaction."""
    topic_partitions: int = 100
    """Partitions of each topic."""

    @property
    def topics(self) -> int:
        return -(-self.partitions // self.topic_partitions)

    def topic_sizes(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic."""
        rest = self.partitions - self.topic_partitions * (self.topics - 1)
        last = self.topics - 1
        return {f"topic-{number}": rest if number == last else self.topic_partitions for number in range(self.topics)}

    def as_json(self) -> dict[str, int]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.brokers} brokers, {self.partitions:,} partitions, {self.groups:,} groups, "
            f"{self.producers:,} producers"
        )


TARGET: Final = Size(100, 100_000, 1_000, 10_000)
"""The size to which the report extrapolates."""
