"""Columns of a table of Spark decoded and encoded, as a ValueFormat says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_type

from oncelog_pipeline.values.avro import AvroDecoder, Places, encoded
from oncelog_pipeline.values.format import ValueFormat
from oncelog_pipeline.values.wire import HEADER


def decoded(table: DataFrame, column: str, form: ValueFormat) -> DataFrame:
    """`table`, which has the columns of format("oncelog"), with this one decoded. Raises SchemaError."""
    if form.format == "binary":
        return table
    return table.withColumn(column, _decoded(column, form))


def _decoded(column: str, form: ValueFormat) -> Column:
    if form.format == "avro":
        return _from_avro(form)(F.col(column), F.col("topic"), F.col("partition"), F.col("offset"))
    payload = F.substring(F.col(column), HEADER.size + 1, 2**31 - 1) if form.is_framed else F.col(column)
    if form.format == "string":
        return payload.cast("string")
    mode = "FAILFAST" if form.fails_if_invalid else "PERMISSIVE"
    return F.from_json(payload.cast("string"), form.schema or "", {"mode": mode})


def _from_avro(form: ValueFormat) -> Any:
    decoder = AvroDecoder(form)

    def decode(values: pa.Array, topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        def places() -> Places:
            return zip(topics.to_pylist(), partitions.to_pylist(), offsets.to_pylist(), strict=True)

        return decoder.column(values.to_pylist(), places)

    return F.arrow_udf(decode, from_arrow_type(decoder.type))


def as_value(table: DataFrame, form: ValueFormat, others: Collection[str]) -> DataFrame:
    """A table of records: all columns but `others` (of a record: its key, for one) as `value`, in JSON or Avro."""
    if form.format == "binary":
        return table
    kept = [name for name in table.columns if name in others]
    row = F.struct(*(F.col(f"`{name}`") for name in table.columns if name not in others))
    to_json = F.to_json(row, {"ignoreNullFields": "false"})
    value = to_json if form.format == "json" else _to_avro(form.schema or "")(row)
    return table.select(*kept, value.alias("value"))


def _to_avro(schema: str) -> Any:
    def encode(rows: pa.Array) -> pa.Array:
        return encoded(rows, schema)

    return F.arrow_udf(encode, "binary")
