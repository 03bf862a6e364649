"""Implements the command `oncelog pipeline run`, which runs a job from its file until the job ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelog.cli.output import tell
from oncelog_pipeline.jobs.checkpoint import check_checkpoint
from oncelog_pipeline.jobs.job import WRITE_ID_OPTION, Job, Trigger
from oncelog_pipeline.jobs.job_file import URL
from oncelog_pipeline.jobs.progress import BatchRow
from oncelog_pipeline.jobs.session import session
from oncelog_pipeline.jobs.watching import displayed, transactions_of, watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def run(job: Job, *, form: str, log_level: str, metrics: tuple[str, int] | None = None) -> list[BatchRow]:
    """Run a job until it has read all records (available_now) or is stopped. `metrics` is the host and port at which
    /metrics is served; None serves none.

    Raises JobError, Spark's errors, and OSError if the metrics address cannot be bound.
    """
    check(job)
    with (
        session(job.name, job.spark, log_level=log_level, folder=job.directory) as spark,
        _measured(spark, job, metrics),
    ):
        return run_in(spark, job, form=form)


def run_in(spark: SparkSession, job: Job, *, form: str) -> list[BatchRow]:
    """Run a job in an existing Spark session until the job has read all records (available_now) or is stopped."""
    from oncelog_pipeline.jobs.query import start

    query = start(spark, job)
    with _stopping(query), displayed(form, job.name) as display:
        return watch(query, display, transactions_of(job, query.id))


def with_what_there_is(job: Job) -> Job:
    """Return a copy of the job with the trigger available_now."""
    return replace(job, trigger=Trigger(is_available_now=True))


def check(job: Job) -> None:
    """Raise JobError if the checkpoint belongs to another query. Only local checkpoints are checked here; Spark checks
    checkpoints on other file systems.
    """
    if URL.match(job.checkpoint):
        return
    batches = [path for path in (Path(job.checkpoint) / "offsets").glob("*") if path.name.isdecimal()]
    if batches:
        last = max(batches, key=lambda path: int(path.name))
        check_checkpoint(job.checkpoint, last.read_text(encoding="utf-8"), job.inputs)


@contextmanager
def _measured(spark: SparkSession, job: Job, address: tuple[str, int] | None) -> Iterator[None]:
    if address is None:
        yield
        return
    from oncelog_pipeline.metrics import serve_query_metrics

    host, port = address
    write_id = {} if job.output.write_id is None else {WRITE_ID_OPTION: job.output.write_id}
    sink = None if job.output.parquet is not None else {**job.output.options, **write_id}
    server = serve_query_metrics(spark, port, host, sink=sink)
    tell(f"metrics of this job: {server.url}")
    try:
        yield
    finally:
        server.close()


@contextmanager
def _stopping(query: StreamingQuery) -> Iterator[None]:
    """Stop the query when the command is stopped. Spark aborts the batch in progress, so no reader sees any of its
    records.
    """

    def stop(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if query.isActive:
            query.stop()
