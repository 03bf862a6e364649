"""Shows the batches of a running query: in a terminal a table that grows, otherwise a line for each batch."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from oncelog.errors import KafkaError
from oncelog.escaping import visible, visible_json
from oncelog_pipeline.jobs.job import Job
from oncelog_pipeline.jobs.progress import HEADINGS, BatchRow, Transactions, row_of
from oncelog_pipeline.options.sink_options import Delivery, sink_options
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import NO_BATCH

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LOOK_SECONDS: Final = 0.5
SHOWN: Final = 15
"""The maximum number of batches in the table."""
RUN_BATCH: Final = "addBatch"
"""The phase of a trigger whose duration Spark reports only if the trigger ran a batch."""

logger = logging.getLogger(__name__)

Look = Callable[[], Transactions | None]


class Display(Protocol):
    """Shows batches to the user."""

    def add(self, row: BatchRow) -> None: ...

    def say(self, what: str) -> None:
        """Show what the query is doing now."""


def watch(query: StreamingQuery, display: Display, transactions: Look) -> list[BatchRow]:
    """Show the batches of a query until it ends, and return them. Raises the query's exception."""
    rows: list[BatchRow] = []
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            _show_news(query, display, transactions, rows)
            display.say(str(query.status.get("message", "")))
    finally:
        _show_news(query, display, transactions, rows)
    return rows


def _show_news(query: StreamingQuery, display: Display, transactions: Look, rows: list[BatchRow]) -> None:
    last = rows[-1].batch if rows else NO_BATCH
    for each in query.recentProgress:
        progress = _as_dict(each)
        if RUN_BATCH in progress.get("durationMs", {}) and progress["batchId"] > last:
            rows.append(row_of(progress, transactions()))
            display.add(rows[-1])
            last = rows[-1].batch


def _as_dict(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
    return found


def transactions_of(job: Job, query_id: str) -> Look:
    """Return a function that requests the number of the last decided batch and the number of open transactions from the
    output's cluster. The function returns None if the delivery is not exactly once.
    """
    if job.output.parquet is not None:
        return lambda: None
    options = sink_options(job.output.options)
    if options.delivery is not Delivery.EXACTLY_ONCE:
        return lambda: None
    from oncelog_pipeline.spark.connections import connections

    write_id = job.output.write_id
    query = Query(query_id if write_id is None else f"{query_id}.{write_id}")

    async def look() -> Transactions:
        cluster = await connections().cluster(options)
        state = await cluster.read_state(query)
        return Transactions(NO_BATCH if state is None else state.batch, len(await cluster.ongoing(query)))

    def ask() -> Transactions | None:
        try:
            return connections().run(look())
        except (KafkaError, TimeoutError) as error:
            logger.warning("the sink's decision cannot be read: %s", error)
            return None

    return ask


class Lines:
    """Shows batches as lines; `write` outputs one line."""

    def __init__(self, form: str, write: Callable[[str], None]) -> None:
        self._form = form
        self._write = write

    def add(self, row: BatchRow) -> None:
        self._write(visible_json(row.as_json()) if self._form == "json" else "\t".join(map(visible, row.cells())))

    def say(self, what: str) -> None:
        pass


class LiveTable:
    """Shows a table of the last batches, and a line about what the query is doing."""

    def __init__(self, title: str) -> None:
        from rich.live import Live

        self._title = title
        self._rows: deque[BatchRow] = deque(maxlen=SHOWN)
        self._said = "starting"
        self.live = Live(self._drawn(), refresh_per_second=4)

    def add(self, row: BatchRow) -> None:
        self._rows.append(row)
        self.live.update(self._drawn())

    def say(self, what: str) -> None:
        self._said = what
        self.live.update(self._drawn())

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(visible(self._title)), title_justify="left", title_style="bold", header_style="bold")
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading in ("Begun", "Transaction") else "right")
        for row in self._rows:
            table.add_row(*(Text(visible(each)) for each in row.cells()))
        return Group(table, Text(visible(self._said), style="dim"))


@contextmanager
def displayed(form: str, title: str) -> Iterator[Display]:
    """Open the display of a format; `form` is table, plain or json."""
    if form != "table":
        yield Lines(form, click.echo)
        return
    table = LiveTable(title)
    with table.live:
        yield table
