"""Known differences in the APIs of transactions."""

from __future__ import annotations

from typing import Any, Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import NOWHERE, Known
from tests.interop.differential.side import NO_ANSWER

ERROR: Final = "error_code"
PARTITION_ERROR: Final = "partition_error_code"
REPEATED: Final = "transaction version [23], epoch +1"
START_TIME: Final = "transaction_start_time_ms"


def repeats_a_marker(kafka: Any, ours: Any) -> bool:
    """Return whether the two responses differ only in a marker that Kafka's log has twice."""
    return len(kafka) == len(ours) + 1 and kafka[1].split(", ")[1:] == kafka[2].split(", ")[1:]


KNOWN: Final = (
    Known("plain-batch-in-transaction", "transactions.produce_in_one", ERROR, 48, 87, label="plain batch, with the id"),
    Known("zombie-inits", "transactions.init_by_a_predecessor", ERROR, 90, 0, "EndTxn", "* one: the owner"),
    Known("zombie-inits", "transactions.init_by_a_predecessor", ERROR, 48, 0, "EndTxn", "* two: the owner"),
    Known("nothing-to-add", "transactions.verify", "", NO_ANSWER, label="no transactions"),
    Known("verification-code", "transactions.verify", PARTITION_ERROR, 120, 48),
    Known("zombie-ends", "transaction_timeouts.timeouts", ERROR, 48, 90, "EndTxn", "commit first: *"),
    Known("zombie-ends", "transaction_timeouts.timeouts", ERROR, 0, 90, "EndTxn", "abort first: *"),
    Known("zombie-ends", "walk.t*", ERROR, 0, 90, "EndTxn", "* zombie *", NOWHERE),
    Known("zombie-ends", "walk.t*", ERROR, 48, 90, "EndTxn", "* zombie *", NOWHERE),
    Known("start-of-the-ended", "transaction_timeouts.timeouts", START_TIME, "now", -1),
    Known("start-of-the-ended", "inspection.describe", START_TIME, "now", -1, label="ended"),
    Known("start-of-the-ended", "walk.t*", START_TIME, "now", -1, seen_in=NOWHERE),
    Known("start-of-the-ended", "two_phase.transactions", START_TIME, "now", -1, label="* has ended"),
    Known("kept-transactions", "two_phase.init_ids", ERROR, 35, 0, label="keeps nothing"),
    Known("kept-transactions", "two_phase.keeping", ERROR, 35, 0, label="keeps the transaction"),
    Known("named-twice", "inspection.describe", "transaction_states", label="twice"),
    Known("pending-first-offset", "transaction_offsets.commits", "topics.*", kafka=ABSENT, label="pending, stable"),
    Known("offsets-of-nobody", "transaction_offsets.odd_values", ERROR, 0, 42, label="empty transactional id"),
    Known("fenced-marker", "inspection.markers", ERROR, -1, 42, label="epoch before"),
    Known("fenced-marker", "inspection.markers_of_transactions_v2", ERROR, -1, 42, label="transaction version -1"),
    Known("repeated-marker", "inspection.markers_of_transactions_v2", ERROR, 0, 47, label=REPEATED),
    Known("repeated-marker", "inspection.markers_of_transactions_v2", "*.[23].high_watermark", 4, 3),
    Known("repeated-marker", "inspection.markers_of_transactions_v2", "*.[23].last_stable_offset", 4, 3),
    Known("repeated-marker", "inspection.markers_of_transactions_v2", "*.[23].records", relation=repeats_a_marker),
    Known("epoch-of-no-coordinator", "inspection.marker_of_no_coordinator", ERROR, 0, 75),
)
