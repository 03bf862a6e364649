"""The partition, offset and timestamp of a sent record."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_OFFSET: Final = -1
"""The offset of a record sent with acks=0, which is unknown."""


class RecordMetadata(NamedTuple):
    """Partition, offset and timestamp of a sent record. `offset` is -1 with acks=0; `timestamp_ms` is the timestamp of
    the broker if the topic uses log append time.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
