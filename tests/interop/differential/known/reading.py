"""Known differences in Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any, Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.plain import CUT_BATCH
from tests.interop.differential.register import NOWHERE, Known

ERROR: Final = "error_code"


def ends_cut(kafka: Any, ours: Any) -> bool:
    """Return whether Kafka's response has the same batches, followed by an incomplete one."""
    return bool(kafka == [*ours, CUT_BATCH])


def names_more(kafka: Any, ours: Any) -> bool:
    """Return whether Kafka's response contains all elements of oncelog's response, and more."""
    return bool(ours == ABSENT or (isinstance(ours, list) and all(one in kafka for one in ours)))


def same_partitions(kafka: Any, ours: Any) -> bool:
    """Return whether both responses have the same partitions with the same contents, in any order."""
    theirs, mine = (
        {(topic["topic"], one["partition_index"]): one for topic in side for one in topic["partitions"]}
        for side in (kafka, ours)
    )
    return bool(theirs == mine)


KNOWN: Final = (
    Known("whole-batches", "fetch.limits", "records", label="* ends inside a batch: *", relation=ends_cut),
    Known("whole-batches", "transaction_ends.aborted_transactions", "records", label="*batch*", relation=ends_cut),
    Known(
        "exact-aborted",
        "transaction_ends.aborted_transactions",
        "aborted_transactions*",
        label="*batch*",
        relation=names_more,
    ),
    Known("exact-aborted", "walk.t*", "aborted_transactions*", seen_in=NOWHERE, relation=names_more),
    Known("order-in-fetch", "fetch.many_partitions", "partitions.order", label="an unknown partition between"),
    Known("order-in-fetch", "fetch.sessions_with_errors", "responses.order", label="unknown topic again"),
    Known("order-in-fetch", "fetch.sessions_with_errors", "responses", relation=same_partitions),
    Known("empty-sessions", "fetch.empty_sessions", "session_id", "SESSION", 0, label="new without partitions"),
    Known("empty-sessions", "fetch.empty_sessions", "session_id", 0, "SESSION", label="the last one forgotten"),
    Known("empty-sessions", "fetch.empty_sessions", ERROR, 70, 0, label="after the last was forgotten"),
    Known("replica-fetch", "fetch.odd_values", ERROR, 0, 31, label="as replica 5"),
    Known("odd-numbers", "fetch.odd_values", ERROR, -1, 0, label="*isolation level 2"),
    Known("odd-numbers", "fetch.odd_values", ERROR, -1, 0, label="*negative *max_bytes"),
    Known("odd-numbers", "log_offsets.list_odd_values", ERROR, -1, 0, label="isolation level 2"),
    Known("odd-numbers", "log_offsets.list_odd_values", ERROR, 74, 0, label="leader epoch -2"),
    Known("odd-numbers", "log_offsets.leader_epochs", ERROR, 74, 0, label="current epoch -2"),
    Known("zstd-for-old-readers", "odd_batches.codecs", ERROR, 0, 76, "Fetch", "*the topic is zstd"),
    Known("named-twice", "log_offsets.list_odd_values", "partitions", label="partition twice"),
    Known("latest-of-nothing", "log_offsets.delete", "timestamp", "now", -1, label="nothing left"),
    Known("latest-of-nothing", "log_offsets.delete", "offset", 8, -1, label="nothing left"),
    Known("latest-of-nothing", "log_offsets.delete", "leader_epoch", 0, -1, label="nothing left"),
    Known("empty-log-epoch", "log_offsets.list_odd_values", "leader_epoch", 0, -1, label="empty log: *"),
    Known("empty-log-epoch", "log_offsets.leader_epochs", "leader_epoch", -2, -1, label="empty log, epoch -2"),
    Known("empty-log-epoch", "log_offsets.leader_epochs", "end_offset", 0, -1, label="empty log, epoch -2"),
    Known("empty-log-epoch", "topics.made_again", "leader_epoch", 0, -1, "ListOffsets"),
)
