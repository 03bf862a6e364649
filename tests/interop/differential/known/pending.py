"""What work under way is about to change; to be emptied with it. Until then nobody asks whether it still shows itself.

GOING are defects; when they are mended their entries are taken out. COMING are entries of rows of docs/differences.md
that are not true yet; when they are, they move to their area and lose `seen_in`.
"""

from __future__ import annotations

from typing import Any, Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import ANY, NOWHERE, Known

ERROR: Final = "error_code"


def _now_and_then(
    row: str, scenario: str, field: str, kafka: Any = ANY, ours: Any = ANY, *, api: str = "*", label: str = "*"
) -> Known:
    return Known(row, scenario, field, kafka, ours, api, label, NOWHERE)


_going = _coming = _now_and_then

GOING: Final = (
    # coordinators
    _going("pending-offsets", "transaction_offsets.groups_of_pending_offsets", ERROR, 0, 69, label="pending only"),
    _going("internal-in-transaction", "transactions.internal_topics", "*"),
    _going("offsets-of-no-partition", "offsets.partitions", ERROR, 3, 0),
    _going("offsets-of-no-partition", "offsets.partitions", "partitions.*", ABSENT),
    _going("offsets-of-no-partition", "transaction_offsets.odd_values", ERROR, 3, 0),
    _going("offsets-of-no-partition", "transaction_offsets.odd_values", "partitions.*", ABSENT),
    _going("sync-without-protocol", "group_membership.sync_without_protocol", "*"),
    _going("assignment-in-rebalance", "group_rebalance.second_member", "member_assignment"),
    _going("assignment-in-rebalance", "walk.groups.*", "member_assignment"),
    _going("generation-without-members", "offsets.without_members", ERROR, 25, 22),
    _going("generation-without-members", "transaction_offsets.generations", ERROR, 25, 22),
    _going("generation-without-members", "walk.groups.*", ERROR, 25, 22),
    _going("refused-sequence", "transactions.refused_then_next", ERROR),
    _going("leaving-no-group", "group_membership.leaving", ERROR, 0, 25, label="unknown group"),
    _going("leaving-no-group", "walk.groups.*", ERROR, 0, 25, api="LeaveGroup"),
    _going("unnamed-group", "group_membership.*", ERROR, 24, 25, label="empty group"),
    _going("unnamed-group", "offsets.unnamed_group", ERROR, 24, 0, api="OffsetDelete"),
    _going("refused-join-protocol", "*", "protocol_name", None, "", api="JoinGroup"),
    # server
    _going("more-insync-than-replicas", "produce.min_insync_replicas", ERROR, 0, 19),
    _going("empty-list-of-keys", "configs.describing", "configs.*", label="empty list of keys"),
    _going("keys-not-known", "configs.values", ERROR, 0, 40),
    _going("keys-not-known", "configs.of_a_new_topic", "compression.*"),
    _going("keys-not-known", "configs.of_a_new_topic", "*remote.*"),
    _going("keys-not-known", "configs.of_a_new_topic", "*local.*"),
    _going("keys-not-known", "configs.of_a_new_topic", "*throttled.replicas"),
    _going("keys-not-known", "configs.emptying_a_list", ERROR, 0, 40),
    _going("resource-twice", "configs.resource_twice", "*"),
    _going("cluster-metadata", "topics.names", ERROR, 42, 0, label="__cluster_metadata*"),
    _going("last-fetched-epoch", "fetch.epochs", ERROR, label="*last epoch*"),
    # what a batch may hold
    _going("garbage", "odd_batches.records", ERROR, -1, 0),
    _going("garbage", "odd_batches.records", ERROR, -1, 2, label="compacted: *"),
    _going("garbage", "odd_batches.records", ERROR, 87, 0),
    _going("garbage", "odd_batches.records", ERROR, 87, 2, label="compacted: *"),
    _going("record-errors", "produce.timestamps", "record_errors"),
    _going("record-errors", "produce.compacted", "record_errors"),
    _going("record-errors", "odd_batches.records", "record_errors", label="compacted: good"),
)

COMING: Final = (
    _coming("named-twice", "inspection.describe", "transaction_states", label="twice"),
    _coming("named-twice", "offsets.many_groups", "groups", label="twice"),
    _coming("named-twice", "offsets.groups_described", "groups", label="twice"),
    _coming("named-twice", "cluster.find_coordinators", "coordinators", label="*, twice"),
    # with setting="record.validation=full", once the broker knows that key
    _coming("records-unread", "odd_batches.records", ERROR, 87, 0, label="record: value longer than the record"),
    _coming("records-unread", "odd_batches.compressed_garbage", ERROR, -1, 0),
    _coming("records-unread", "odd_batches.record_timestamps", ERROR, 32, 0),
    _coming("records-unread", "odd_batches.record_timestamps", "", 0, -1),
    _coming("records-unread", "produce.timestamps", "record_errors", label="limits, gzip: *"),
    _coming("unreadable-code", "odd_batches.records", ERROR, -1, 87, label="*: garbage"),
    _coming("first-fault", "odd_batches.records", "record_errors", label="compacted: *"),
    _coming("own-keys", "configs.of_a_new_topic", "record.validation", ABSENT),
)

PENDING: Final = (*GOING, *COMING)
