"""Facts of Kafka's message definitions: which message has which fields, with their types, versions and tags.

`tests/data/kafka-messages.tsv` has the fields of all messages, so that a test in every checkout can compare the
project's declarations
with Kafka's. The table is generated from Kafka's own JSON definitions, which are not part of the project. On a machine
that has Kafka's definition files, a test compares the table with these files. The following command writes the table
tests/data/kafka-messages.tsv:

    python -m tests.support.kafka_facts [DIRECTORY]     # writes the table; ../shared/kafka-messages by default

A row without a field describes a message: its type is `key` and the API key, its versions are those that a broker
accepts, and `flexible` is the range of flexible versions. Each other row describes a field, which is named by its path:
`Topics.Partitions.Index`.
A dash means that the definition does not state the value. `flexible` of a field is stated only if it differs from that
of its message.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = ROOT / "tests" / "data" / "kafka-messages.tsv"
DEFINITIONS: Final = Path(os.environ.get("KAFKA_MESSAGES", ROOT.parent / "shared" / "kafka-messages"))
HEADER: Final = """\
# Facts of Apache Kafka's message definitions, as of 4.3; written by `python -m tests.support.kafka_facts`.
"""
NOTHING: Final = "-"
EMPTY_TEXT: Final = '""'
"""The text that stands for an empty string as default; a dash means that the definition states no default."""


class Fact(NamedTuple):
    """A row of the table. The attributes of this class have the names of the table's columns; a cell with a dash
    becomes the empty
    string.
    """

    message: str
    field: str
    type: str
    versions: str
    nullable: str
    tagged: str
    """The range of versions in which the field is tagged; empty if it is never tagged."""
    tag: str
    default: str
    flexible: str

    @property
    def name(self) -> str:
        """Return the last part of the field's path."""
        return self.field.rpartition(".")[2]

    @property
    def parent(self) -> str:
        """Return the path of the struct that has the field; empty if the message itself has it."""
        return self.field.rpartition(".")[0]


class Facts:
    """All rows of one message."""

    def __init__(self, rows: list[Fact]) -> None:
        self.message, *self.fields = rows

    @property
    def api_key(self) -> int | None:
        """The message's API key; None for a header or a record."""
        return int(self.message.type.removeprefix("key ")) if self.message.type else None

    def fields_of(self, path: str = "") -> list[Fact]:
        """Return the fields of the message, or of the struct at this path, in their order."""
        return [fact for fact in self.fields if fact.parent == path]


def facts_in(text: str) -> dict[str, Facts]:
    """Parse a table; return the facts by message name. Raises ValueError for a malformed table."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    if not lines or lines[0].split("\t") != list(Fact._fields):
        raise ValueError(f"no table of facts: its columns are not {', '.join(Fact._fields)}")
    rows: dict[str, list[Fact]] = {}
    for line in lines[1:]:
        fact = Fact(*("" if cell == NOTHING else cell for cell in line.split("\t")))
        rows.setdefault(fact.message, []).append(fact)
    return {name: Facts(of_message) for name, of_message in rows.items()}


def table_of(directory: Path) -> str:
    """Generate the table from the JSON definitions in this directory."""
    definitions = sorted(map(_definition, directory.glob("*/*.json")), key=lambda definition: definition["name"])
    rows = [fact for definition in definitions for fact in _facts_of(definition)]
    return HEADER + "".join("\t".join(cell or NOTHING for cell in row) + "\n" for row in (Fact._fields, *rows))


def _definition(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
    return _with_kind_as_version(definition)


def _with_kind_as_version(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition of a coordinator's record as Kafka wrote it before 4.1: the kind of the record is the version of
    its key. Newer definitions have the kind of the record as an API key.
    """
    if definition["type"] not in ("coordinator-key", "coordinator-value"):
        return definition
    kind = str(definition.pop("apiKey"))
    if definition["type"] == "coordinator-key":
        definition["validVersions"] = kind
        definition["fields"] = [{**field, "versions": kind} for field in definition["fields"]]
    return definition


def _facts_of(definition: Mapping[str, Any]) -> Iterator[Fact]:
    name = definition["name"]
    key = definition.get("apiKey")
    yield Fact(
        name,
        field="",
        type="" if key is None else f"key {key}",
        versions=definition["validVersions"],
        nullable="",
        tagged="",
        tag="",
        default="",
        flexible=definition["flexibleVersions"],
    )
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    yield from _fields(name, definition["fields"], common, "")


def _fields(message: str, fields: list[dict[str, Any]], common: Mapping[str, Any], path: str) -> Iterator[Fact]:
    for field in fields:
        here = path + field["name"]
        yield Fact(
            message,
            here,
            type=field["type"],
            versions=field.get("versions") or field["taggedVersions"],
            nullable=field.get("nullableVersions", ""),
            tagged=field.get("taggedVersions", ""),
            tag=str(field.get("tag", "")),
            default=_default(field),
            flexible=field.get("flexibleVersions", ""),
        )
        nested = field.get("fields") or common.get(field["type"].removeprefix("[]"), [])
        yield from _fields(message, nested, common, f"{here}.")


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return ""
    default = field["default"]
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default) or EMPTY_TEXT


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFINITIONS
    if not directory.is_dir():
        print(f"Kafka's message definitions are not at {directory}: name their directory", file=sys.stderr)
        return 1
    TABLE.write_text(table_of(directory))
    print(f"{TABLE.relative_to(ROOT)}: {len(facts_in(TABLE.read_text()))} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
