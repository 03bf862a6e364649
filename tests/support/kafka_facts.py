"""Facts of Kafka's message definitions: which message has which field, of which type, in which versions, by which tag.

`tests/data/kafka-messages.tsv` holds them, so that every checkout can compare our declarations with Kafka's. They are
made of Kafka's own definitions (JSON), which are not part of the project; where those are at hand, a test holds the
table to them:

    python -m tests.support.kafka_facts [DIRECTORY]     # writes the table; ../shared/kafka-messages by default

A row without a field is a message: its type is `key` and the API key, its versions are those that a broker accepts,
`flexible` is from which version on it is flexible. Each other row is a field, by its path: `Topics.Partitions.Index`.
A dash says that the definition does not name it, or that it goes without saying; `flexible` of a field is there where
it differs from its message's.
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
"""A default that is the empty string; a dash is not a default."""


class Fact(NamedTuple):
    """A row of the table. The names of its cells are the table's second line; a cell with a dash is empty here."""

    message: str
    field: str
    type: str
    versions: str
    nullable: str
    tagged: str
    """The versions in which the field is tagged."""
    tag: str
    default: str
    flexible: str

    @property
    def name(self) -> str:
        """The last part of the field's path."""
        return self.field.rpartition(".")[2]

    @property
    def parent(self) -> str:
        """The path of the struct that has the field; empty for the message itself."""
        return self.field.rpartition(".")[0]


class Facts:
    """The facts of one message."""

    def __init__(self, rows: list[Fact]) -> None:
        self.message, *self.fields = rows

    @property
    def api_key(self) -> int | None:
        """None for a header or a record."""
        return int(self.message.type.removeprefix("key ")) if self.message.type else None

    def fields_of(self, path: str = "") -> list[Fact]:
        """The fields of the message, or of the struct at this path, in order."""
        return [fact for fact in self.fields if fact.parent == path]


def facts_in(text: str) -> dict[str, Facts]:
    """The facts of a table by message name. Raises ValueError for a malformed table."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    if not lines or lines[0].split("\t") != list(Fact._fields):
        raise ValueError(f"no table of facts: its columns are not {', '.join(Fact._fields)}")
    rows: dict[str, list[Fact]] = {}
    for line in lines[1:]:
        fact = Fact(*("" if cell == NOTHING else cell for cell in line.split("\t")))
        rows.setdefault(fact.message, []).append(fact)
    return {name: Facts(of_message) for name, of_message in rows.items()}


def table_of(directory: Path) -> str:
    """The table made from these definitions."""
    definitions = sorted(map(_definition, directory.glob("*/*.json")), key=lambda definition: definition["name"])
    rows = [fact for definition in definitions for fact in _facts_of(definition)]
    return HEADER + "".join("\t".join(cell or NOTHING for cell in row) + "\n" for row in (Fact._fields, *rows))


def _definition(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
    return _with_kind_as_version(definition)


def _with_kind_as_version(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition of a coordinator's record as Kafka wrote it before 4.1: the kind of the record is the version of
    its key. Newer definitions have it as an API key."""
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
