"""Reads a job file (TOML) strictly: returns a Job, or raises an error that says what to write instead. Pure.

    name = "bills"

    [input]
    bootstrap = "127.0.0.1:9092"
    topics = ["orders"]
    value = {format = "json", schema = "customer STRING, amount DOUBLE"}

    [transform]
    sql = "SELECT key, value.customer, value.amount * 1.19 AS gross FROM input"

    [output]
    topic = "bills"
    value = {format = "json"}

    [checkpoint]
    location = "checkpoints/bills"

Paths are relative to the directory of the job file. The function `read` reads the other files that a job file names (a
schema, a query).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from oncelog_pipeline.jobs.ddl import BadDdl, check_ddl
from oncelog_pipeline.jobs.job import DEFAULT_VIEW, UPDATE, Input, Job, Output, Transform, Trigger
from oncelog_pipeline.jobs.keys import FREE, JobError, Where, check_table
from oncelog_pipeline.options.client_settings import SERVERS
from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.options.sink_options import STATE_OPTION, sink_options
from oncelog_pipeline.options.source_options import source_options
from oncelog_pipeline.values.format import ValueFormat

SAID_BY_KEYS: Final = {
    "subscribe": "topics",
    "subscribepattern": "pattern",
    "startingoffsets": "starting",
    "includeheaders": "headers",
    SERVERS: "bootstrap",
    "topic": "topic",
    "delivery": "delivery",
    "checkpointlocation": "location in [checkpoint]",
}
"""Options of the connector for which a job file has keys of its own. They are refused in the `options` table, because
the file could otherwise give an option two different values.
"""
INTERVAL: Final = re.compile(r"\s*\d+\s*(milliseconds?|seconds?|minutes?|hours?|days?)\s*")
IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def read_job(path: Path) -> Job:
    """Read a job file. Raises JobError, also if a file cannot be read."""

    def read(name: str) -> str:
        return Path(name).read_text(encoding="utf-8")

    try:
        text = read(str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path} cannot be read: {_why(error)}") from error
    return job_from_toml(text, path.name, str(path.resolve().parent), read)


def job_from_toml(text: str, name: str, directory: str, read: Callable[[str], str]) -> Job:
    """Return the job that the TOML `text` describes. `name` is the job file's name for messages; `read` returns the
    text of a file, or raises OSError. Raises JobError.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{name} is not TOML: {error}") from error
    return _Reader(document, Where(name, text), directory, read).job()


class _Reader:
    def __init__(self, document: Mapping[str, Any], where: Where, directory: str, read: Callable[[str], str]) -> None:
        self._document = document
        self._where = where
        self._directory = Path(directory)
        self._read = read

    def job(self) -> Job:
        document = self._document
        check_table("", document, self._where)
        for table, what in (("input", "which topics are read"), ("output", "where rows go")):
            if table not in document:
                raise JobError(f"{self._where.name}: [{table}] is missing, which says {what}")
        inputs = self._inputs()
        transform = self._transform(len(inputs))
        output = self._output(inputs)
        name = document.get("name", Path(self._where.name).stem)
        return Job(
            name,
            tuple(_without_state(each, output) for each in inputs),
            transform,
            output,
            self._checkpoint(),
            self._trigger(),
            self._spark(),
            str(self._directory),
        )

    # input

    def _inputs(self) -> tuple[Input, ...]:
        tables = self._document["input"]
        tables = tables if isinstance(tables, list) else [tables]
        inputs = tuple(self._input(table) for table in tables)
        views = [each.view for each in inputs]
        if len(set(views)) != len(views):
            raise self._wrong("input", "view", f"names the table in the query: two are called {_twice(views)!r}")
        return inputs

    def _input(self, table: Any) -> Input:
        if not isinstance(table, dict):
            raise self._wrong("", "input", f"must be a table, not {table!r}")
        check_table("input", table, self._where)
        self._one_of("input", table, ("topics", "pattern"), "which topics are read")
        if "bootstrap" not in table:
            raise self._missing("input", "bootstrap", 'where the brokers are, such as "127.0.0.1:9092"')
        view = table.get("view", DEFAULT_VIEW)
        if not IDENTIFIER.fullmatch(view):
            raise self._wrong("input", "view", f"must be a name of letters, digits and _, not {view!r}")
        options = self._options("input", table) | {
            SERVERS: table["bootstrap"],
            "startingOffsets": table.get("starting", "earliest"),
        }
        if "topics" in table:
            options["subscribe"] = ",".join(table["topics"])
        else:
            options["subscribePattern"] = table["pattern"]
        if table.get("headers", False):
            options["includeHeaders"] = "true"
        self._checked("input", lambda: source_options(options, is_stream=True))
        return Input(view, options, self._format("input.key", table), self._format("input.value", table))

    def _format(self, path: str, of: Mapping[str, Any]) -> ValueFormat:
        """Return the encoding of a key or a value that the table at `path` of the job file declares."""
        table = of.get(path.rpartition(".")[2], {})
        check_table(path, table, self._where)
        self._one_of(path, table, ("schema", "schema_file"), "", least=0)
        kind = table.get("format", "json" if "schema" in table and path != "output.value" else "binary")
        schema = table.get("schema")
        if "schema_file" in table:
            schema = self._text(path, "schema_file", table["schema_file"])
        if schema is None and (kind == "avro" or (kind == "json" and path != "output.value")):
            raise self._missing(path, "schema", f"which columns there are, as the format is {kind}")
        if schema is not None and kind in ("binary", "string"):
            raise self._wrong(path, "schema", f"has the columns of json or avro, but the format is {kind}")
        if schema is not None and kind == "json":
            try:
                check_ddl(schema)
            except BadDdl as error:
                raise self._wrong(path, "schema" if "schema" in table else "schema_file", str(error)) from error
        registry = table.get("registry")
        if registry is not None and not URL.match(registry):
            registry = self._path(registry)
        framing = table.get("framing", "none" if registry is None else "confluent")
        if registry is not None and (kind != "avro" or framing == "none"):
            raise self._wrong(path, "registry", "has the schemas of avro with the framing confluent")
        return ValueFormat(kind, schema, framing == "confluent", registry, table.get("invalid", "fail") == "fail")

    # transform

    def _transform(self, count: int) -> Transform:
        table = self._document.get("transform", {})
        check_table("transform", table, self._where)
        self._one_of("transform", table, ("sql", "file", "function"), "what is done with the rows", least=0)
        if "file" in table:
            return Transform(sql=self._text("transform", "file", table["file"]))
        function = table.get("function")
        if function is not None and not FUNCTION.fullmatch(function):
            raise self._wrong("transform", "function", f'must be "module:function", not {function!r}')
        if not table and count > 1:
            raise JobError(f"{self._where.name}: [transform] is missing, which says how {count} inputs are combined")
        return Transform(table.get("sql"), function)

    # output

    def _output(self, inputs: tuple[Input, ...]) -> Output:
        table = self._document["output"]
        check_table("output", table, self._where)
        self._one_of("output", table, ("topic", "parquet"), "where rows go")
        value = self._format("output.value", table)
        options = self._options("output", table)
        mode = table.get("mode", "append")
        if "parquet" in table:
            for key in ("delivery", "bootstrap", "value"):
                if key in table:
                    raise self._wrong("output", key, "is for topics: Parquet files are written exactly once anyway")
            if mode != "append":
                raise self._wrong("output", "mode", f"must be append: files are never changed, so {mode} cannot be")
            location = self._path(table["parquet"])
            return Output(options, location, tuple(table.get("partition_by", ())), mode)
        if "partition_by" in table:
            raise self._wrong(
                "output",
                "partition_by",
                "is for Parquet: a column partition has the partition of a record, else its key",
            )
        servers = {each.options[SERVERS] for each in inputs}
        if "bootstrap" not in table and len(servers) > 1:
            raise self._missing("output", "bootstrap", "where the brokers are, as the inputs are not all in one place")
        options |= {SERVERS: table.get("bootstrap", min(servers)), "topic": table["topic"]}
        if mode == UPDATE and "transform" not in self._document:
            raise self._wrong(
                "output", "mode", "update is for a query that aggregates: without [transform] it is append"
            )
        if "delivery" in table:
            options["delivery"] = table["delivery"]
        self._checked("output", lambda: sink_options(options))
        return Output(options, None, (), mode, value)

    # the rest

    def _checkpoint(self) -> str:
        table = self._document.get("checkpoint", {})
        check_table("checkpoint", table, self._where)
        if "location" not in table:
            raise self._missing("checkpoint", "location", "where the progress is kept: exactly once depends on it")
        return self._path(table["location"])

    def _trigger(self) -> Trigger:
        table = self._document.get("trigger", {})
        check_table("trigger", table, self._where)
        self._one_of("trigger", table, ("interval", "available_now"), "", least=0)
        interval = table.get("interval")
        if interval is not None and not INTERVAL.fullmatch(interval):
            raise self._wrong(
                "trigger", "interval", f"must be such as 10 seconds or 500 milliseconds, not {interval!r}"
            )
        return Trigger(interval, table.get("available_now", False))

    def _spark(self) -> dict[str, str]:
        table = self._document.get("spark", {})
        flat = dict(_flat(table))
        for name in flat:
            if not name.startswith("spark."):
                raise self._wrong("spark", name, 'is not a configuration of Spark\'s: those begin with "spark."')
        return flat

    # checks

    def _options(self, path: str, table: Mapping[str, Any]) -> dict[str, str]:
        """Return the table as options of format("oncelog"), which are strings; `kafka.x = 1` may be written in TOML
        without quotes.
        """
        options = dict(_flat(table.get("options", {})))
        assert f"{path}.options" in FREE
        for name in options:
            if (key := SAID_BY_KEYS.get(name.lower())) is not None:
                raise self._wrong(f"{path}.options", name, f"is set with the key {key}")
        return options

    def _checked(self, path: str, check: Callable[[], object]) -> None:
        try:
            check()
        except OptionError as error:
            raise JobError(f"{self._where.name}: [{path}]: {error}") from error

    def _one_of(self, path: str, table: Mapping[str, Any], keys: tuple[str, ...], what: str, *, least: int = 1) -> None:
        found = [key for key in keys if key in table]
        if len(found) > 1:
            raise self._wrong(path, found[1], f"and {found[0]} mean the same: use only one")
        if len(found) < least:
            raise JobError(f"{self._where.name}: [{path}] must have {' or '.join(keys)}, which says {what}")

    def _missing(self, path: str, key: str, what: str) -> JobError:
        return JobError(f"{self._where.name}: [{path}] needs {key}, which says {what}")

    def _wrong(self, path: str, key: str, what: str) -> JobError:
        return JobError(self._where.say(path, key, what))

    # files

    def _path(self, location: str) -> str:
        """Resolve a location against the directory of the job file; a URL is returned unchanged."""
        return location if URL.match(location) else str(self._directory / location)

    def _text(self, path: str, key: str, location: str) -> str:
        try:
            return self._read(self._path(location))
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong(path, key, f"names {location}, which cannot be read: {_why(error)}") from error


def _without_state(job_input: Input, output: Output) -> Input:
    """Return the input with the output's `stateTopic` option, so that the input's topic pattern does not match the
    topic in which this job's sink keeps its state.
    """
    told = [value for name, value in output.options.items() if name.lower() == STATE_OPTION.lower()]
    if not told or any(name.lower() == STATE_OPTION.lower() for name in job_input.options):
        return job_input
    return replace(job_input, options={**job_input.options, STATE_OPTION: told[-1]})


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Join the names of nested TOML tables with dots, because TOML parses `kafka.fetch.max.bytes = 1` as nested tables
    although it is a single option name.
    """
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, str(value).lower() if isinstance(value, bool) else str(value)))
    return found


def _twice(names: list[str]) -> str:
    return next(name for name in names if names.count(name) > 1)


def _why(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
