"""Checks the columns of a table that is to be written."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from oncelog_pipeline.options.reading import OptionError

VALUE: Final = "value"
COLUMNS: Final = ("key", VALUE, "headers", "topic", "partition", "timestamp")
_KINDS: Final = {
    "key": "string or binary",
    VALUE: "string or binary",
    "headers": "array<struct<key: string, value: binary>>",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise OptionError unless the columns are columns of records with valid types. `topic` is the value of the option
    topic.
    """
    for field in schema.fields:
        if field.name not in COLUMNS:
            near = get_close_matches(field.name, COLUMNS, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"column {field.name!r} is none of {', '.join(COLUMNS)}{hint} Select or rename it")
        if not _fits(field.name, field.dataType):
            told = field.dataType.simpleString()
            raise OptionError(f"column {field.name!r} is {told}, and must be {_KINDS[field.name]}: cast it")
    names = schema.fieldNames()
    if VALUE not in names:
        raise OptionError('the column "value" is missing: to_json(struct(*)) AS value, for one, makes it of all others')
    if topic is None and "topic" not in names:
        raise OptionError('no topic: set .option("topic", ...) or give the table a column "topic"')


def _fits(name: str, kind: DataType) -> bool:
    if name in ("key", VALUE):
        return isinstance(kind, (StringType, BinaryType))
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), (VALUE, BinaryType)]
