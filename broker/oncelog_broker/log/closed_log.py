"""The state of a cleanly closed log, from which the log is opened again without reading its files.

The caller must know that no file of the log has changed since the log was closed, or that the log has only grown
(`directories/closed_logs.py`).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.log.header_fields import HeaderFields
from oncelog_broker.log.leader_epochs import EpochEntry
from oncelog_protocol.light_classes import NamedTuple

MAX_SEGMENTS: Final = 1000
MAX_PRODUCERS: Final = 100
"""A log with more segments or producers has no `ClosedLog`, so that the state of very many logs stays small; opening
such a log costs more than reading its state anyway.
"""
MAX_ACTIVE_BYTES: Final = 64 << 20
"""A log whose active segment is larger has no `ClosedLog`. Its first append would read the indexes on the event loop,
which takes some 6 ms for an index of this size.
"""


class ClosedSegment(NamedTuple):
    """One segment of a closed log."""

    base_offset: int
    size: int
    """The number of bytes in the log file."""
    is_made: bool
    """Whether the log file exists; the only segment of a log without records may have no file."""


class ClosedLog(NamedTuple):
    """The content of a closed log: its offsets, segments, leader epochs and producers."""

    log_start_offset: int
    log_end_offset: int
    segments: tuple[ClosedSegment, ...]
    epochs: tuple[EpochEntry, ...]
    producers: tuple[bytes, ...]
    """The entries of the producers (`producers/entry.py`), as at the log end."""


class Growth(NamedTuple):
    """What was appended to a log since it was closed, and the leader epochs that the log has now."""

    size: int
    """The number of bytes in the active log file."""
    log_end_offset: int
    max_timestamp: int
    """The largest timestamp of the new records; NO_TIMESTAMP if no new record has one."""
    max_timestamp_offset: int
    """The last offset of the batch with that timestamp."""
    producer_headers: tuple[HeaderFields, ...]
    """The headers of the new batches that have a producer id, in order."""
    epochs: tuple[EpochEntry, ...]
