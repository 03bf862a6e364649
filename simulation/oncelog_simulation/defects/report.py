"""The table of seeded defects, for a terminal and for docs/simulation.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oncelog_simulation.defects.catalogue import DEFECTS
from oncelog_simulation.defects.hunt import Found

BEGIN: Final = "<!-- defects -->\n"
END: Final = "<!-- end of defects -->\n"
HEAD: Final = "| Defect | Wrong behaviour | Found by seed | Seconds | By what | \n|---|---|---:|---:|---|\n"


def line_of(found: Found) -> str:
    """Return one line for a terminal."""
    if not found.seed:
        why = f": {found.violation}" if found.violation else ""
        return f"{found.name:<36} NOT FOUND in {found.tried} seeds, {found.seconds:g} s{why}"
    return f"{found.name:<36} seed {found.seed:>4} {found.seconds:7.1f} s  {found.judge}: {found.violation}"


def table(results: Sequence[Found], before: str = "") -> str:
    """Return a Markdown table, in the order of the catalogue. `before` is an earlier table, whose rows remain for the
    defects that `results` does not contain.
    """
    rows = {line.split("`")[1]: line for line in before.splitlines(keepends=True) if line.startswith("| `")}
    for found in results:
        seed = str(found.seed) if found.seed else f"none of {found.tried}"
        what = DEFECTS[found.name].what
        rows[found.name] = f"| `{found.name}` | {what} | {seed} | {found.seconds:.0f} | {found.judge} |\n"
    return HEAD.replace("| \n", "|\n") + "".join(rows[name] for name in DEFECTS if name in rows)


def write_into(path: Path, results: Sequence[Found]) -> None:
    """Write the table between the marks of a page. The rows of defects that were not hunted remain unchanged."""
    before = path.read_text().split(BEGIN)[1].split(END)[0]
    put_between(path, BEGIN, END, table(results, before))


def put_between(path: Path, begin: str, end: str, table: str) -> None:
    """Write a table between two marks of a page."""
    before, rest = path.read_text().split(begin)
    _, after = rest.split(end)
    path.write_text(before + begin + table + end + after)
