"""Creates the line that is shown for a batch, from the progress that Spark reports of a query. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from oncelog_pipeline.source.lag import lag_of

HEADINGS: Final = ("Batch", "Begun", "Rows", "Rows/s", "Lag", "Seconds", "Transaction")
NOTHING: Final = "nothing to commit"
LEFT_OUT: Final = "no rows written"
"""Shown for a batch if the query has filtered out all of its rows."""
COMMITTED: Final = "committed"


@dataclass(frozen=True, slots=True)
class Transactions:
    """The number of the last batch that an exactly-once query has decided to commit, and how many transactions of the
    query's tasks are open.
    """

    decided_batch: int
    open: int = 0


@dataclass(frozen=True, slots=True)
class BatchRow:
    """The values that the progress display shows for one batch; `lag` is the number of offsets between the end of the
    batch and the end
    of the log, None if the source does not report it.
    """

    batch: int
    begun: str
    rows: int
    rows_per_second: float
    lag: int | None
    seconds: float
    transaction: str | None

    def cells(self) -> tuple[str, ...]:
        """Return the values as text in the order of HEADINGS."""
        return (
            str(self.batch),
            self.begun,
            str(self.rows),
            f"{self.rows_per_second:.0f}",
            "-" if self.lag is None else str(self.lag),
            f"{self.seconds:.1f}",
            self.transaction or "-",
        )

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def row_of(progress: Mapping[str, Any], transactions: Transactions | None = None) -> BatchRow:
    """Return the row of a batch. `progress` is the JSON of a StreamingQueryProgress; `transactions` is the state of the
    transactions after the batch, None if the query has no transactions.
    """
    batch, rows = int(progress["batchId"]), int(progress.get("numInputRows", 0))
    rate = progress.get("processedRowsPerSecond")
    duration_ms = progress.get("batchDuration", progress.get("durationMs", {}).get("triggerExecution", 0))
    return BatchRow(
        batch,
        str(progress.get("timestamp", ""))[:19].replace("T", " "),
        rows,
        rate if isinstance(rate, (int, float)) and math.isfinite(rate) else 0.0,
        lag_of(progress.get("sources", ())),
        duration_ms / 1000,
        None if transactions is None else said(batch, rows, transactions),
    )


def said(batch: int, rows: int, transactions: Transactions) -> str:
    """Return a text for the state of the transactions of a batch that Spark has reported as completed."""
    what = NOTHING if rows == 0 else LEFT_OUT
    if transactions.decided_batch >= batch:
        what = COMMITTED
    return what if not transactions.open else f"{what}, {transactions.open} of the next batch open"


def total_line(rows: Sequence[BatchRow]) -> str:
    """Return the line that is shown when a job has ended."""
    count, written = len(rows), sum(row.rows for row in rows)
    seconds = sum(row.seconds for row in rows)
    rate = f", {written / seconds:.0f} rows/s" if seconds else ""
    return f"{count} {'batch' if count == 1 else 'batches'}, {written} rows{rate}"
