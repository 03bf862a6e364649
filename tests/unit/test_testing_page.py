"""docs/testing.md lists what can be ordered to fail, and what a verdict may find. `python -m` this module writes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncelog_broker.fail_control.catalogue import CATALOGUE, STEPS, Point
from oncelog_testing.history.violation import Kind

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def points() -> str:
    lines = ["| Step | What | can | knows |", "| --- | --- | --- | --- |"]
    lines += [f"| `{step.name}` | {step.what} | {', '.join(step.actions)} | {_filters(step)} |" for step in STEPS]
    lines += [
        "",
        "Of each API there are two points: `EndTxn.request`, before it is done, and `EndTxn.answer`, after.",
        "",
    ]
    lines += ["| API | its request can | its answer can | both know |", "| --- | --- | --- | --- |"]
    for name in (name.removesuffix(".request") for name in CATALOGUE if name.endswith(".request")):
        request, answer = CATALOGUE[f"{name}.request"], CATALOGUE[f"{name}.answer"]
        assert request.filters == answer.filters
        actions = [", ".join(point.actions) for point in (request, answer)]
        lines.append(f"| {name} | {actions[0]} | {actions[1]} | {_filters(request)} |")
    return "\n".join(lines)


def _filters(point: Point) -> str:
    return ", ".join(f"`{name}`" for name in point.filters)


def kinds() -> str:
    lines = ["| Kind | What it says |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{kind.name}` | {kind.value} |" for kind in Kind)])


SECTIONS = {"points": points, "kinds": kinds}


def with_section(page: str, name: str) -> str:
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    return re.sub(f"{start}.*{end}", lambda _: f"{start}\n{SECTIONS[name]()}\n{end}", page, flags=re.DOTALL)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_page_lists_what_there_is(name: str) -> None:
    page = PAGE.read_text()
    assert f"<!-- {name} -->" in page
    assert with_section(page, name) == page, f"python -m {__name__} writes it anew"


def main() -> None:
    page = PAGE.read_text()
    for name in SECTIONS:
        page = with_section(page, name)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
