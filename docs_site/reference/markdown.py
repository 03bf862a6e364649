"""Writes the Markdown of generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown of one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def cell(text: str) -> str:
    """Plain text for a cell: characters that would end it, or be markup, are escaped; lines are joined."""
    return re.sub(r"([|<>])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Text in code, also in a cell."""
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text}{ticks}".replace("|", "\\|")


def with_section(page: str, name: str, content: str) -> str:
    """A page whose part between `<!-- name -->` and `<!-- end of name -->` is replaced by this. Raises ValueError
    without them."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if start not in page or end not in page:
        raise ValueError(f"the page has no {start!r} and {end!r}")
    return page[: page.index(start) + len(start)] + content.rstrip("\n") + "\n" + page[page.index(end) :]
