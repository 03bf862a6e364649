"""Starts a job as a streaming query of Spark: decodes the inputs, applies the transform, encodes the output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from oncelog_pipeline.jobs.job import WRITE_ID_OPTION, Input, Job
from oncelog_pipeline.jobs.keys import JobError
from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.values.avro_types import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

FORMAT: Final = "oncelog"
BESIDE_THE_VALUE: Final = ("key", "headers", "topic", "partition", "timestamp")
"""The columns of a record that are not part of its value."""
COPIED: Final = ("key", "value", "headers")
"""The columns that are written if the job has no transform."""


def start(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start the streaming query of a job. Raises JobError for faults that Spark finds before the query runs, and
    Spark's AnalysisException.
    """
    tables = [_table(spark, each) for each in job.inputs]
    for each, table in zip(job.inputs, tables, strict=True):
        table.createOrReplaceTempView(each.view)
    writer = _writer(_transformed(spark, job, tables), job)
    if job.trigger.is_available_now:
        writer = writer.trigger(availableNow=True)
    elif job.trigger.interval is not None:
        writer = writer.trigger(processingTime=job.trigger.interval)
    return writer.queryName(job.name).option("checkpointLocation", job.checkpoint).outputMode(job.output.mode).start()


def _table(spark: SparkSession, job_input: Input) -> DataFrame:
    from oncelog_pipeline.values.columns import decoded

    table = spark.readStream.format(FORMAT).options(**job_input.options).load()
    for column, form in (("key", job_input.key), ("value", job_input.value)):
        try:
            table = decoded(table, column, form)
        except SchemaError as error:
            raise JobError(f"input {job_input.view!r}: the schema of {column} {error}") from error
    return table


def _transformed(spark: SparkSession, job: Job, tables: list[DataFrame]) -> DataFrame:
    if job.transform.sql is not None:
        return spark.sql(job.transform.sql)
    if job.transform.function is not None:
        return _called(spark, job.transform.function, tables)
    (table,) = tables
    if job.output.parquet is not None:
        return table
    return table.select(*(name for name in COPIED if name in table.columns))


def _called(spark: SparkSession, name: str, tables: list[DataFrame]) -> DataFrame:
    """Call the user's function with a DataFrame for each input, in the order of the inputs, and return the DataFrame
    that the function returns.
    """
    from pyspark.sql import DataFrame

    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    if (source := inspect.getsourcefile(module)) is not None:
        spark.sparkContext.addPyFile(source)  # Spark's executors on other machines need the user's Python file, too
    function = getattr(module, attribute, None)
    if not callable(function):
        raise JobError(f"[transform] function: {module_name} has no function {attribute!r}")
    made: Any = function(*tables)
    if not isinstance(made, DataFrame):
        raise JobError(f"[transform] function: {name} returned {type(made).__name__}, and must return a DataFrame")
    return made


def _writer(table: DataFrame, job: Job) -> DataStreamWriter:
    from oncelog_pipeline.spark.sink_columns import check_columns
    from oncelog_pipeline.values.columns import as_value

    output = job.output
    if output.parquet is not None:
        writer = table.writeStream.format("parquet").options(**output.options).option("path", output.parquet)
        return writer.partitionBy(*output.partition_by) if output.partition_by else writer
    if output.value.format == "binary" and "value" not in table.columns:
        raise JobError(
            '[output] needs value = {format = "json"}, which makes the value of all columns: the query has no column'
            f" value, but {', '.join(table.columns)}"
        )
    table = as_value(table, output.value, BESIDE_THE_VALUE)
    try:
        check_columns(table.schema, output.options.get("topic"))
    except OptionError as error:
        raise JobError(f"[output]: {error}") from error
    if output.write_id is not None:
        return table.writeStream.foreachBatch(_writing({**output.options, WRITE_ID_OPTION: output.write_id}))
    return table.writeStream.format(FORMAT).options(**output.options)


def _writing(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls for each batch (foreachBatch). The function writes the changed rows of a
    batch once: the sink identifies the write by query, batch and writeId.
    """

    def write(batch: DataFrame, _number: int) -> None:
        batch.write.format(FORMAT).options(**options).mode("append").save()

    return write
