"""docs/exactly-once.md tells the truth: every row is there, what it names exists, and every test of a row is named."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = REPOSITORY / "docs" / "exactly-once.md"
RULES = [f"S{number}" for number in (*range(1, 15), *range(20, 47), *range(50, 68))]
SCENARIOS = [f"E{number}" for number in range(1, 33)]
TABLE_ROW = re.compile(r"^\| ([SET]\d+) \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
ROW_IN_NAME = re.compile(r"[set]\d+")


class Test(NamedTuple):
    """`file::name`; a class around it is left out."""

    __test__ = False

    file: str
    name: str

    def __str__(self) -> str:
        return f"[{self.name}](../{self.file})"


class Row(NamedTuple):
    name: str
    words: str
    modules: list[str]
    tests: list[Test]


def rows() -> list[Row]:
    found = []
    for name, line in TABLE_ROW.findall(DOCUMENT.read_text()):
        *words, modules, tests = line.split(" | ")
        linked = [Test(file, text) for text, file in LINK.findall(tests)]
        found.append(Row(name, " ".join(words), [path for _, path in LINK.findall(modules)], linked))
    return found


@cache
def all_tests() -> frozenset[Test]:
    return frozenset(
        Test(str(path.relative_to(REPOSITORY)), name)
        for path in (REPOSITORY / "tests").rglob("*.py")
        for name in names_of(ast.parse(path.read_text()).body)
    )


def names_of(body: list[ast.stmt]) -> Iterator[str]:
    """Of test functions, also in classes, and of the classes that Hypothesis makes of state machines."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from names_of(statement.body)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name.startswith("test_"):
            yield statement.name
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id


def rows_in_name(name: str) -> list[str]:
    """What a test is named after: `test_s34_e17_...`, `test_s7_to_s13_...`."""
    found = []
    for part in name.split("_")[1:]:
        if ROW_IN_NAME.fullmatch(part):
            found.append(part.upper())
        elif part != "to":
            break
    return found


def test_every_row_is_there_once() -> None:
    counts = Counter(row.name for row in rows())
    assert [name for name, count in counts.items() if count > 1] == []
    assert [name for name in counts if name[0] == "S"] == RULES
    assert [name for name in counts if name[0] == "E"] == SCENARIOS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_row_says_what_holds_where_and_how_that_is_shown(row: Row) -> None:
    assert row.words.strip(" |")
    assert row.modules
    assert row.tests


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_what_a_row_names_exists(row: Row) -> None:
    assert [path for path in row.modules if not (REPOSITORY / path).is_file()] == []
    assert [str(test) for test in row.tests if test not in all_tests()] == []


def test_every_test_of_a_row_is_in_the_table() -> None:
    named = {(row.name, test) for row in rows() for test in row.tests}
    missing = [
        f"{row}: {test}" for test in sorted(all_tests()) for row in rows_in_name(test.name) if (row, test) not in named
    ]
    assert not missing, "\n".join(["not in docs/exactly-once.md:", *missing])


def test_the_rows_in_a_name() -> None:
    assert rows_in_name("test_s34_e17_the_s5_is_no_row") == ["S34", "E17"]
    assert rows_in_name("test_s7_to_s13_as_a_model") == ["S7", "S13"]
    assert rows_in_name("test_every_row") == []
