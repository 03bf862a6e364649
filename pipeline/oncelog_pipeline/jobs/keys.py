"""The keys of a job file, the purpose of each, and the check of a table against them. Pure.

An unknown key is refused, with the purpose of its table and the nearest known key, because a mistyped key must not be
ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

NAMES: Final = 'a list of names, such as ["orders"]'
TEXT: Final = "a text"
FLAG: Final = "true or false"
TABLE: Final = "a table"
TABLES: Final = "a table, or several: [[input]]"

_FITS: Final = {
    NAMES: lambda value: isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value),
    TEXT: lambda value: isinstance(value, str) and bool(value.strip()),
    FLAG: lambda value: isinstance(value, bool),
    TABLE: lambda value: isinstance(value, dict),
    TABLES: lambda value: isinstance(value, dict) or (isinstance(value, list) and bool(value)),
}


class JobError(ValueError):
    """The job cannot run as written; the message says where the error is, why, and what to write."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key. A key of a job file. `kind` is the type of the value (one of the constants above), or the tuple of allowed
    texts; `purpose` completes the sentence "it says ...", which error messages use.
    """

    kind: str | tuple[str, ...]
    purpose: str


VALUE: Final[Mapping[str, Key]] = {
    "format": Key(("binary", "string", "json", "avro"), "says what the bytes contain"),
    "schema": Key(TEXT, "has the columns: Spark's DDL for json (id LONG, name STRING), Avro's JSON for avro"),
    "schema_file": Key(TEXT, "is a file that has the schema"),
    "framing": Key(("none", "confluent"), "says which prefix the bytes have: with confluent the number of a schema"),
    "registry": Key(TEXT, "is where schemas are that values name by number: a folder of NUMBER.avsc, or http://..."),
    "invalid": Key(("fail", "null"), "says how a value of another format is handled"),
}
TABLES_OF_KEYS: Final[Mapping[str, Mapping[str, Key]]] = {
    "": {
        "name": Key(TEXT, "names the query, in Spark and in the output"),
        "input": Key(TABLES, "says which topics are read"),
        "transform": Key(TABLE, "is the query; without it rows go on as they are"),
        "output": Key(TABLE, "says where rows go"),
        "checkpoint": Key(TABLE, "says where the progress is kept"),
        "trigger": Key(TABLE, "says when a batch begins; without it, as soon as there are records"),
        "spark": Key(TABLE, "has Spark's own configuration"),
    },
    "input": {
        "bootstrap": Key(TEXT, "is where the brokers are, host:port with commas between them"),
        "topics": Key(NAMES, "names the topics to read"),
        "pattern": Key(TEXT, "is a regular expression for the whole name of the topics to read"),
        "starting": Key(TEXT, 'says where a new query begins: earliest (the default), latest or {"orders":{"0":5}}'),
        "view": Key(TEXT, "is the name of the table in the query"),
        "headers": Key(FLAG, "says whether there is a column of headers"),
        "key": Key(TABLE, "says how keys are decoded"),
        "value": Key(TABLE, "says how values are decoded"),
        "options": Key(TABLE, 'has further options of format("oncelog")'),
    },
    "input.key": VALUE,
    "input.value": VALUE,
    "transform": {
        "sql": Key(TEXT, "is a query of Spark SQL"),
        "file": Key(TEXT, "is a file that has such a query"),
        "function": Key(TEXT, "is a Python function from DataFrames to a DataFrame, module:function"),
    },
    "output": {
        "topic": Key(TEXT, "is the topic to write to"),
        "parquet": Key(TEXT, "is the directory to write Parquet files to"),
        "bootstrap": Key(TEXT, "names the brokers of the topic, if they are not those of the input"),
        "delivery": Key(
            ("exactly-once", "exactly-once-per-task", "at-least-once"), "is the delivery guarantee for readers"
        ),
        "partition_by": Key(NAMES, "names the columns that make directories of Parquet files"),
        "mode": Key(("append", "update", "complete"), "is Spark's output mode"),
        "value": Key(TABLE, "says how columns become the value of a record"),
        "options": Key(TABLE, 'has further options of format("oncelog"), or of Parquet'),
    },
    "output.value": {
        "format": Key(
            ("binary", "json", "avro"), "says which columns make the value: the column value, or all columns"
        ),
        "schema": VALUE["schema"],
        "schema_file": VALUE["schema_file"],
    },
    "checkpoint": {"location": Key(TEXT, "is the directory in which the progress is kept")},
    "trigger": {
        "interval": Key(TEXT, "is the time between the beginnings of batches, such as 10 seconds"),
        "available_now": Key(FLAG, "says that the job ends when it has read all records that existed at its start"),
    },
}
FREE: Final = ("input.options", "output.options", "spark")
"""Tables of a job file whose keys are not defined in this module: the options of the connector, and the settings of
Spark.
"""


def check_table(path: str, table: Mapping[str, Any], where: Where) -> None:
    """Raise JobError unless every key of the table is known and its value is of the key's kind. Raises JobError."""
    known = TABLES_OF_KEYS[path]
    for name, value in table.items():
        key = known.get(name)
        if key is None:
            raise JobError(where.say(path, name, unknown(path, name)))
        if isinstance(key.kind, tuple):
            if value not in key.kind:
                near = get_close_matches(str(value), key.kind, n=1)
                hint = f": did you mean {near[0]!r}?" if near else ""
                wrong = f"{key.purpose}, and must be one of {', '.join(key.kind)}, not {value!r}{hint}"
                raise JobError(where.say(path, name, wrong))
        elif not _FITS[key.kind](value):
            raise JobError(where.say(path, name, f"{key.purpose}, and must be {key.kind}, not {value!r}"))


def unknown(path: str, name: str) -> str:
    """Return the error text for an unknown key. The text suggests the nearest key of the table, or the table to which
    the key belongs, or lists all keys.
    """
    known = TABLES_OF_KEYS[path]
    near = get_close_matches(name, known, n=1)
    if near:
        return f"is not a key: did you mean {near[0]!r}? It {known[near[0]].purpose}"
    elsewhere = [table for table, keys in TABLES_OF_KEYS.items() if name in keys]
    if elsewhere:
        homes = " or ".join(f"[{table}]" if table else "the top of the file" for table in elsewhere)
        return f"is not a key of this table: it belongs to {homes}"
    return f"is not a key; valid here: {', '.join(known)}"


class Where:
    """Finds the line of a key, for error messages."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines = text.splitlines()

    def say(self, path: str, key: str, what: str) -> str:
        """Return an error text such as `job.toml, line 7: input.topics names the topics to read, ...`."""
        line = self._line(path, key)
        place = f"{self.name}, line {line}" if line else self.name
        return f"{place}: {path}.{key} {what}" if path else f"{place}: {key} {what}"

    def _line(self, path: str, key: str) -> int | None:
        """Return the number of the line that sets a key: either `key = ...` in the table `path`, or the header of the
        table `path.key`, or an inline table `path = {key = ...}`.
        """
        header, table = re.compile(r"\s*\[+\s*([\w.\"-]+)\s*\]+"), ""
        assignment = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        for number, line in enumerate(self._lines, start=1):
            if match := header.match(line):
                table = match[1]
                if table == (f"{path}.{key}" if path else key):
                    return number
            elif table == path and assignment.match(line):
                return number
        parent, _, last = path.rpartition(".")
        return self._line(parent, last) if path else None
