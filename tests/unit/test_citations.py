"""Each rule that the source code cites exists in the documents, and nothing outside the project is cited.

S and E are rules of docs/reference/rules.md, T are traps of docs/protocol-traps.md, and K are rows of
docs/design/spark-sink.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from docs_site.reference.rules import all_rules

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("protocol", "client", "broker", "pipeline", "testing", "console", "registry")
LIKE_A_ROW: Final = re.compile(r"(?<![-\w.])([A-Z]\d{1,2})(?![-\w])")
"""Matches a citation, except within a name or a character range such as `[A-Z0-9]`."""
NO_ROWS: Final = {"V1", "V2"}
"""Words that look like citations but are not: V1 and V2 are versions of the transactions protocol."""
A_LAW: Final = re.compile(r"\blaw \d")
OUTSIDE: Final = re.compile(
    r"\b(?:semantics|reliability|performance|style|aesthetics|language)(?:\.md| section \d)|"
    r"/work/|\.\./shared/(?!kafka-messages)"
)


@cache
def texts() -> dict[Path, str]:
    """Return the source files, except for this file, which contains the searched texts."""
    return {
        path.relative_to(ROOT): path.read_text()
        for folder in (*PRODUCT, "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
    }


def rows() -> set[str]:
    rules = {rule.name for rule in all_rules() if rule.name[0] in "SE"}
    traps = re.findall(r"^\| (T\d+) \|", (ROOT / "docs/protocol-traps.md").read_text(), re.MULTILINE)
    return {*rules, *traps, *rows_of_spark((ROOT / "docs/design/spark-sink.md").read_text())}


def rows_of_spark(page: str) -> Iterator[str]:
    """One row of the Spark sink's table may stand for several: `K4 to K7`, `K1, K2`."""
    for named in re.findall(r"^\| (K\d+[^|]*) \|", page, re.MULTILINE):
        for part in named.split(", "):
            first, _, last = part.partition(" to ")
            yield from (f"K{number}" for number in range(int(first[1:]), int((last or first)[1:]) + 1))


def unknown_in(text: str, is_product: bool, known: set[str]) -> list[str]:
    """Return the citations in `text` that no document defines.

    In tests, letters other than S, E and T with numbers are data and not citations.
    """
    cited = {row for row in LIKE_A_ROW.findall(text) if is_product or row[0] in "SET"}
    return sorted(cited - known - NO_ROWS) + A_LAW.findall(text)


def test_every_row_that_is_cited_stands_in_the_documents() -> None:
    known = rows()
    unknown = {
        str(path): found
        for path, text in texts().items()
        if (found := unknown_in(text, is_product=path.parts[0] in PRODUCT, known=known))
    }
    assert unknown == {}


def test_cited_rows_are_recognised() -> None:
    cited = {row for text in texts().values() for row in LIKE_A_ROW.findall(text)} & rows()
    for letter, at_least in (("S", 40), ("E", 15), ("T", 20), ("K", 8)):
        assert len([row for row in cited if row[0] == letter]) > at_least, letter


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as the epoch of its coordinator is older (S40, E3; T7)", []),
        ("which nobody has (S99)", ["S99"]),
        ("a sentence (E34) and (T29)", ["E34", "T29"]),
        ("that would be there twice (C24)", ["C24"]),
        ("of another leader (B8).", ["B8"]),
        ("when it is committed (law 4)", ["law 4"]),
        ("under transactions V2", []),
        ("re.compile('[a-zA-Z0-9]+')", []),
    ],
)
def test_a_citation_without_document_is_found(text: str, found: list[str]) -> None:
    assert unknown_in(text, is_product=True, known=rows()) == found


def test_letters_and_numbers_of_tests_are_data() -> None:
    assert unknown_in("Batch('A1'); S99", is_product=False, known=rows()) == ["S99"]


def test_rows_of_spark_are_told_apart() -> None:
    page = "| K1, K2 | a task |\n| K4 to K6 | the driver |\n| K9 | an executor |\n"
    assert list(rows_of_spark(page)) == ["K1", "K2", "K4", "K5", "K6", "K9"]


def test_nothing_outside_the_project_is_cited() -> None:
    assert {str(path): found for path, text in texts().items() if (found := OUTSIDE.findall(text))} == {}
