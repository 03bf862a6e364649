"""The table that a benchmark prints and stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Row:
    what: str
    value: float
    unit: str
    target: str = ""
    reached: bool | None = None


class Add(Protocol):
    """The type of the function that adds a row to the table."""

    def __call__(
        self, what: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
    ) -> None: ...


@dataclass
class Table:
    rows: list[Row] = field(default_factory=list)

    def add(
        self, what: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        target, reached = "", None
        if at_most is not None:
            target, reached = f"<= {at_most:g}", value <= at_most
        if at_least is not None:
            target, reached = f">= {at_least:g}", value >= at_least
        row = Row(what, value, unit, target, reached)
        self.rows.append(row)
        print(self.line(row), flush=True)

    @staticmethod
    def line(row: Row) -> str:
        verdict = "" if row.reached is None else ("yes" if row.reached else "NO")
        return f"| {row.what:<66} | {row.value:>12,.2f} | {row.unit:<14} | {row.target:<8} | {verdict:<7} |"

    def markdown(self) -> str:
        head = Table.line(Row("what", 0, "unit")).replace("0.00", "value").split("|")
        head[4], head[5] = " target   ", " reached "
        rule = "|".join("-" * len(cell) if cell else "" for cell in head)
        return "\n".join(["|".join(head), rule, *map(self.line, self.rows)])


def counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
