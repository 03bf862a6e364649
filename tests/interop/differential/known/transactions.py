"""Known differences in the APIs of transactions."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import NOWHERE, Known
from tests.interop.differential.side import NO_ANSWER

ERROR: Final = "error_code"
PARTITION_ERROR: Final = "partition_error_code"
START_TIME: Final = "transaction_start_time_ms"

KNOWN: Final = (
    Known("plain-batch-in-transaction", "transactions.produce_in_one", ERROR, 48, 87, label="plain batch, with the id"),
    Known("nothing-to-add", "transactions.verify", "", NO_ANSWER, label="no transactions"),
    Known("verification-code", "transactions.verify", PARTITION_ERROR, 120, 48),
    Known("zombie-ends", "transaction_timeouts.timeouts", ERROR, 48, 90, "EndTxn", "commit first: *"),
    Known("zombie-ends", "transaction_timeouts.timeouts", ERROR, 0, 90, "EndTxn", "abort first: *"),
    Known("zombie-ends", "walk.transactions.*", ERROR, 0, 90, "EndTxn", "* zombie *", NOWHERE),
    Known("zombie-ends", "walk.transactions.*", ERROR, 48, 90, "EndTxn", "* zombie *", NOWHERE),
    Known("start-of-the-ended", "transaction_timeouts.timeouts", START_TIME, "now", -1),
    Known("start-of-the-ended", "inspection.describe", START_TIME, "now", -1, label="ended"),
    Known("start-of-the-ended", "walk.transactions.*", START_TIME, "now", -1, seen_in=NOWHERE),
    Known("named-twice", "inspection.describe", "transaction_states", label="twice"),
    Known("pending-first-offset", "transaction_offsets.commits", "topics.*", kafka=ABSENT, label="pending, stable"),
    Known("offsets-of-nobody", "transaction_offsets.odd_values", ERROR, 0, 42, label="empty transactional id"),
    Known("fenced-marker", "inspection.markers", ERROR, -1, 42, label="epoch before"),
    Known("epoch-of-no-coordinator", "inspection.marker_of_no_coordinator", ERROR, 0, 75),
)
