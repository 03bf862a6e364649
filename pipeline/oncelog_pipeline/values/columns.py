"""Decodes and encodes columns of a Spark table, in the format that a ValueFormat describes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from oncelog_pipeline.values.avro import AvroDecoder, Places, encoded
from oncelog_pipeline.values.avro_types import SchemaError
from oncelog_pipeline.values.format import ValueFormat
from oncelog_pipeline.values.wire import HEADER

CORRUPT: Final = "_oncelog_corrupt"
"""The name of Spark's column for corrupt records, which is added temporarily to the columns of a JSON schema."""
SHOWN: Final = 200
"""The maximum number of characters of an invalid text that a message shows."""


def decoded(table: DataFrame, column: str, form: ValueFormat) -> DataFrame:
    """Return `table`, which has the columns of format("oncelog"), with this column decoded. Raises SchemaError."""
    if form.format == "binary":
        return table
    return table.withColumn(column, _decoded(column, form))


def _decoded(column: str, form: ValueFormat) -> Column:
    if form.format == "avro":
        return _from_avro(form)(F.col(column), F.col("topic"), F.col("partition"), F.col("offset"))
    payload = F.substring(F.col(column), HEADER.size + 1, 2**31 - 1) if form.is_framed else F.col(column)
    if form.format == "string":
        return payload.cast("string")
    return _from_json(payload.cast("string"), form)


def _from_json(text: Column, form: ValueFormat) -> Column:
    """Decode a column of JSON. The error for an invalid text contains its topic, partition and offset, which FAILFAST
    would not report.
    """
    schema = _json_schema(form.schema or "")
    if not form.fails_if_invalid:
        return F.from_json(text, schema)
    if not isinstance(schema, StructType):
        return F.from_json(text, schema, {"mode": "FAILFAST"})
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(text, StructType([*schema.fields, StructField(CORRUPT, StringType())]), options)
    place = F.concat(F.col("topic"), F.lit("-"), F.col("partition"), F.lit(", offset "), F.col("offset"))
    wrong = F.concat(place, F.lit(": is not of the JSON schema: "), F.left(text, F.lit(SHOWN)))
    return F.when(parsed[CORRUPT].isNotNull(), F.raise_error(wrong)).otherwise(parsed.dropFields(CORRUPT))


def _json_schema(text: str) -> DataType:
    """Parse the DDL of a schema. Raises SchemaError."""
    try:
        return DataType.fromDDL(text)
    except ParseException as error:
        raise SchemaError(f"is not Spark DDL: {str(error).strip().splitlines()[0]}") from error


def _from_avro(form: ValueFormat) -> Any:
    decoder = AvroDecoder(form)

    def decode(values: pa.Array, topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        def places() -> Places:
            return zip(topics.to_pylist(), partitions.to_pylist(), offsets.to_pylist(), strict=True)

        return decoder.column(values.to_pylist(), places)

    return F.arrow_udf(decode, from_arrow_type(decoder.type))


def as_value(table: DataFrame, form: ValueFormat, others: Collection[str]) -> DataFrame:
    """Return a table of records: all columns except `others` are encoded together as `value`, in JSON or Avro. `others`
    are the other fields of a record, such as its key.
    """
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
