"""Determines to which query and batch a Spark task belongs, and which attempt of which task it is. Spark reports this
only inside tasks.

The query, its run and its batch are local properties of Spark that no Spark document names. These properties are the
same in PySpark 4.0 to 4.3, which `make test-sparks` tests. If a later version of PySpark renames these properties, the
sink writes nothing, and the error names the version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark import TaskContext

from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.sink.names import Query, unnamed_query
from oncelog_pipeline.sink.state import Batch
from oncelog_pipeline.spark.pyspark_api import PYSPARK

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local property that Spark sets for a stream: the id of the run, which is new with each start of a query."""
DESCRIPTION: Final = "spark.job.description"
"""Local property that Spark sets for a stream: the description of the job, whose text contains the run and the batch.
"""

OF_STREAM: Final = re.compile(r"\brunId = .*\bbatch = ", re.DOTALL)
"""Matches the description of a stream's job."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


NOT_TOLD: Final = f"Spark (PySpark {PYSPARK}) does not tell the task"


class UnknownQuery(Exception):
    """The local properties of this task do not contain its query, run or batch."""


class Attempt(NamedTuple):
    """One attempt of a Spark task to write its rows. `unique` is a number that no other attempt of the
    application has.
    """

    partition: int
    number: int
    unique: int


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """A write with `df.write`. Its name is its writeId; without a writeId, its name is derived from `run`. Each write
    has a new `run`.
    """

    write_id: str | None
    run: str

    @property
    def batch(self) -> Batch:
        return Batch(Query(self.write_id) if self.write_id else unnamed_query(self.run), self.run, 0)


def this_attempt() -> Attempt:
    """Return the attempt that runs in this process. Raises UnknownQuery outside of a task."""
    context = _context()
    return Attempt(context.partitionId(), context.attemptNumber(), context.taskAttemptId())


def stream_batch() -> Batch:
    """Return the batch of a stream that this task writes. Raises UnknownQuery."""
    found = _query_and_number()
    if found is None:
        raise UnknownQuery(
            f"{NOT_TOLD} its query, in the local properties {QUERY_ID} and {BATCH_ID}: was the thread's job group or"
            " context changed? If not, this version of PySpark has other names for them, and is not supported"
        )
    query_id, number = found
    return Batch(Query(query_id), _run(), number)


def this_batch_number() -> int:
    """Return the number of the stream's batch; 0 outside of a stream. Raises UnknownQuery outside of a task."""
    return int(_property(BATCH_ID) or 0)


def batch_of(write: BatchWrite) -> Batch:
    """Return the batch that a task of a `df.write` writes; inside foreachBatch this write is one part of the stream's
    batch.

    Raises UnknownQuery, and OptionError for a write inside foreachBatch without a writeId.
    """
    found = _query_and_number()
    if found is None:
        return write.batch
    query_id, number = found
    if write.write_id is None:
        raise OptionError(
            'inside foreachBatch exactly-once needs .option("writeId", ...), another one for each write of the batch,'
            " by which a replay of the batch finds out which rows are written; or choose delivery=at-least-once"
        )
    return Batch(Query(f"{query_id}.{write.write_id}"), _run(), number)


def _query_and_number() -> tuple[str, int] | None:
    """Return the query and the number of its batch; None outside of a stream.

    Raises UnknownQuery if the job's description is that of a stream, but the properties are missing. Without this
    error, a write inside foreachBatch would be treated as a write outside of it, and a batch with the same rows as the
    previous batch would be skipped.
    """
    query_id, number = _property(QUERY_ID), _property(BATCH_ID)
    if query_id is not None and number is not None:
        return query_id, int(number)
    described = _property(DESCRIPTION) or ""
    if query_id is not None or number is not None or OF_STREAM.search(described):
        raise UnknownQuery(
            f"{NOT_TOLD} its query and batch, in the local properties {QUERY_ID} and {BATCH_ID}, though its job is that"
            f" of a stream ({described!r}): this version of PySpark has other names for them, and is not supported"
        )
    return None


def _run() -> str:
    run = _property(RUN_ID)
    if run is None or not _UUID.fullmatch(run):
        raise UnknownQuery(
            f"the job group is {run!r}, not the run of the stream: do not call setJobGroup inside foreachBatch before"
            " a write, as the run is known by it alone"
        )
    return run


def _property(name: str) -> str | None:
    found: str | None = _context().getLocalProperty(name)
    return found


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise UnknownQuery("this is not a Spark task: only tasks know their query")
    return context
