"""What the source cites stands in the documents: each T-row in protocol-traps.md, and nothing outside the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("protocol", "client", "broker", "pipeline", "testing", "console")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
CITED = re.compile(r"\bT(\d{1,2})\b")
OUTSIDE = re.compile(r"\b(?:semantics|reliability|performance|style|aesthetics)(?:\.md| section \d)")


def rows() -> set[str]:
    page = (ROOT / "docs" / "protocol-traps.md").read_text()
    return set(re.findall(r"^\| T(\d+) \|", page, re.MULTILINE))


def test_every_trap_that_is_cited_has_a_row() -> None:
    cited = {(number, path.name) for path in SOURCES for number in CITED.findall(path.read_text())}
    assert len(cited) > 50
    known = rows()
    assert {(number, name) for number, name in cited if number not in known} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outside_the_project_is_cited(path: Path) -> None:
    assert OUTSIDE.findall(path.read_text()) == []
