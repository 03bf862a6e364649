"""Differences that are about to go. To be emptied: nothing here has a row in docs/differences.md."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import NOWHERE, Known

ERROR: Final = "error_code"

PENDING: Final = (
    # coordinators
    Known("pending-offsets", "transaction_offsets.groups_of_pending_offsets", ERROR, 0, 69, label="pending only"),
    Known("internal-in-transaction", "transactions.internal_topics", "*"),
    Known("offsets-of-no-partition", "offsets.partitions", ERROR, 3, 0),
    Known("offsets-of-no-partition", "offsets.partitions", "partitions.*", ABSENT),
    Known("offsets-of-no-partition", "transaction_offsets.odd_values", ERROR, 3, 0),
    Known("offsets-of-no-partition", "transaction_offsets.odd_values", "partitions.*", ABSENT),
    Known("sync-without-protocol", "group_membership.sync_without_protocol", "*"),
    Known("assignment-in-rebalance", "group_rebalance.second_member", "member_assignment", ours=""),
    Known("assignment-in-rebalance", "walk.groups.*", "member_assignment", ours="", seen_in=NOWHERE),
    Known("generation-without-members", "offsets.without_members", ERROR, 25, 22),
    Known("generation-without-members", "transaction_offsets.generations", ERROR, 25, 22),
    Known("generation-without-members", "walk.groups.*", ERROR, 25, 22, seen_in=NOWHERE),
    Known("refused-sequence", "transactions.refused_then_next", ERROR),
    # server
    Known("more-insync-than-replicas", "produce.min_insync_replicas", ERROR, 0, 19),
    Known("empty-list-of-keys", "configs.describing", "configs.*", ours=ABSENT, label="empty list of keys"),
    Known("keys-not-known", "configs.values", ERROR, 0, 40),
    Known("keys-not-known", "configs.of_a_new_topic", "*", ours=ABSENT),
    Known("keys-not-known", "configs.emptying_a_list", ERROR, 0, 40),
    Known("resource-twice", "configs.resource_twice", "*"),
    Known("cluster-metadata", "topics.names", ERROR, 42, 0, label="__cluster_metadata*"),
    Known("last-fetched-epoch", "fetch.epochs", ERROR, label="*last epoch*"),
    # what a batch may hold
    Known("unreadable-records", "odd_batches.records", ERROR),
    Known("unreadable-compression", "odd_batches.compressed_garbage", ERROR, -1, 0),
    Known("header-believed", "odd_batches.record_timestamps", "*"),
    Known("record-errors", "produce.timestamps", "record_errors", ours=[]),
    Known("record-errors", "produce.compacted", "record_errors", ours=[]),
    Known("record-errors", "odd_batches.records", "record_errors", ours=[]),
)
