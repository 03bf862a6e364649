"""Where a record went."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_OFFSET: Final = -1
"""The offset of a record sent with acks=0: the broker did not say."""


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` is -1 with acks=0; `timestamp_ms` is the log's own where the topic says so."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
