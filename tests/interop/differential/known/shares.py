"""Known differences in share groups (KIP-932)."""

from __future__ import annotations

from typing import Any, Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import Known
from tests.interop.differential.side import NO_ANSWER

ERROR: Final = "error_code"
ACK_ERROR: Final = "acknowledge_error_code"
INTERVAL: Final = "heartbeat_interval_ms"
OFFSETS: Final = "DescribeShareGroupOffsets"
STATES: Final = "*ShareGroupState*"


def is_behind(kafka: Any, ours: Any) -> bool:
    """Return whether Kafka's start offset is smaller."""
    return isinstance(kafka, int) and isinstance(ours, int) and kafka < ours


def is_more(kafka: Any, ours: Any) -> bool:
    return isinstance(kafka, int) and isinstance(ours, int) and kafka > ours


def same_records(kafka: Any, ours: Any) -> bool:
    """Return whether both lists of acquired records have the same offsets with the same delivery counts."""
    theirs, mine = (
        [
            (offset, one["delivery_count"])
            for one in side
            for offset in range(one["first_offset"], one["last_offset"] + 1)
        ]
        for side in (kafka, ours)
    )
    return theirs == mine


KNOWN: Final = (
    # members
    Known("early-heartbeats", "share*.*", INTERVAL, 5000, 100, seen_in="shares.one_member"),
    Known("epoch-of-nobody", "share*.*", "assignment_epoch", relation=is_behind, seen_in="shares.one_member"),
    Known("named-twice", "shares.descriptions", "groups", label="twice"),
    # records
    Known("unnamed-share-group", "share_records.bad_fetches", ERROR, 0, 42, "ShareFetch", "empty group"),
    Known("unnamed-share-group", "share_records.bad_fetches", ERROR, 123, 42, "ShareAcknowledge", "empty group"),
    Known("shares-of-no-topic", "share_records.partitions", ERROR, -1, 0, label="only an unknown topic"),
    Known("unknown-share-partition", "share_records.not_assigned", ERROR, 3, 121, label="not subscribed"),
    Known("invalid-offsets", "share_records.invalid_acknowledgements", ERROR, 0, 42, label="negative first"),
    Known("invalid-offsets", "share_records.invalid_acknowledgements", ACK_ERROR, 0, 42, label="negative first"),
    Known("invalid-offsets", "share_records.invalid_acknowledgements", ERROR, 121, 42, label="overlapping"),
    Known("invalid-offsets", "share_records.invalid_acknowledgements", ACK_ERROR, 121, 42, label="overlapping"),
    Known("halves-of-batches", "share_records.bad_record_in_a_batch", "records", label="fetch *"),
    Known("halves-of-batches", "share_records.bad_record_in_a_batch", "acquired_records*", label="fetch *"),
    Known("halves-of-batches", "share_records.limits", "last_offset", 1, 4, label="few bytes"),
    Known("joined-records", "share_records.limits", "acquired_records", label="at most *", relation=same_records),
    Known("odd-share-limits", "share_records.odd_limits", "acquired_records", label="entries of *"),
    Known("odd-share-limits", "share_records.odd_limits", "responses.topic a", ours=ABSENT, label="negative bytes"),
    Known("odd-share-limits", "share_records.odd_limits", ERROR, -1, 42, label="mode 2"),
    # offsets
    Known(
        "start-offset-behind",
        "*share*.*",
        "start_offset",
        api=OFFSETS,
        relation=is_behind,
        seen_in="share_records.each_type",
    ),
    Known("start-offset-behind", "*share*.*", "lag", -1, api=OFFSETS, seen_in="share_records.offset_resets"),
    Known("unknown-share-offsets", "share_offsets.describing", "", NO_ANSWER, label="unknown partition"),
    Known("unknown-share-offsets", "share_offsets.describing", ERROR, -1, 0, label="no partitions"),
    Known("unknown-share-offsets", "share_offsets.describing", ERROR, 0, 3, label="unknown topic"),
    Known("odd-share-offsets", "share_offsets.altering", ERROR, 0, 42, label="negative"),
    Known("odd-share-offsets", "share_offsets.altering", "lag", -7, 0),
    Known("altered-epoch", "share_offsets.altering", "group_epoch", 1, 2, label="new group"),
    Known("altered-epoch", "share_offsets.reading_altered", "first_offset", 3, 1, label="from 1"),
    Known("altered-epoch", "share_offsets.reading_altered", "delivery_count", 2, 1, label="from 1"),
    Known("altered-epoch", "share_offsets.deleting", "responses.topic a*", label="from the beginning"),
    Known("id-of-the-deleted", "share_offsets.deleting", "responses.no id", ours=ABSENT, api="Delete*"),
    Known("id-of-the-deleted", "share_offsets.deleting", "responses.topic *", ABSENT, api="Delete*"),
    Known("gaps-in-the-lag", "*share*.*", "lag", api=OFFSETS, relation=is_more, seen_in="share_records.isolation"),
    # states
    Known("share-states", "share_states.*", "*", api=STATES),
)
