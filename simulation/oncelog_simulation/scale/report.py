"""The tables of the measured sizes, with growth laws, for docs/guides/sizing.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog_simulation.scale.growth import fit
from oncelog_simulation.scale.measuring import RESTARTS, Measured
from oncelog_simulation.scale.size import Size

BEGIN: Final = "<!-- scale -->\n"
END: Final = "<!-- end of scale -->\n"
ESTIMATED: Final = "≈"


class Row(NamedTuple):
    """A figure of the table, and its growth law."""

    episode: str
    figure: str
    what: str
    terms: tuple[str, ...]
    """The terms of the law; empty if there is none that fits."""
    scale: float = 1.0
    """The factor by which the stored figure is multiplied."""
    for_each: str = ""
    """The field of the size by which the stored figure is divided; empty for none."""

    def of(self, measured: Measured) -> float:
        """Return the figure of a measured cluster."""
        figure = measured.episodes[self.episode][self.figure] * self.scale
        return figure / getattr(measured.size, self.for_each) if self.for_each else figure


ROWS: Final[dict[str, list[Row]]] = {
    "All topics are created": [
        Row("topics", "seconds until served", "until every leader serves, s", ("P", "B P", "1")),
        Row("topics", "CPU seconds of the busiest broker", "CPU of the busiest broker, s", ("P", "P/B")),
        Row("topics", "store: MB written", "written to the store, MB", ("P",)),
        Row("topics", "store: MB read", "read from the store, MB", ("B P", "P")),
        Row("topics", "store: watch notifications", "watch notifications", ("B P",)),
    ],
    "The controller is killed": [
        Row("controller killed", "seconds until a controller", "until there is another controller, s", ("1", "B")),
        Row("controller killed", "seconds until served", "until every partition is served again, s", ("P", "P/B", "1")),
        Row("controller killed", "CPU seconds of the controller", "CPU of the new controller, s", ("P", "P/B")),
        Row("controller killed", "store: MB written", "written to the store, MB", ("P/B",)),
        Row("controller killed", "store: MB read", "read from the store, MB", ("P", "B P", "1")),
    ],
    "A rack is lost (a third of the brokers, the controller among them)": [
        Row("rack lost", "seconds until served", "until every partition is served again, s", ("P", "B", "1")),
        Row("rack lost", "seconds until settled", "until the lost brokers have left all ISRs, s", ("P", "B", "1")),
        Row("rack lost", "CPU seconds of the controller", "CPU of the new controller, s", ("P",)),
        Row("rack lost", "store: MB written", "written to the store, MB", ("P",)),
        Row("rack lost", "store: MB read", "read from the store, MB", ("B P", "P")),
        Row("rack lost", "store: watch notifications", "watch notifications", ("B P",)),
    ],
    "The rack returns": [
        Row("rack back", "seconds until in sync", "until all replicas are in sync, s", ("P", "P/B", "1")),
        Row("rack back", "CPU seconds of the busiest broker", "CPU of the busiest broker, s", ("P", "P/B")),
        Row("rack back", "store: MB read", "read from the store, MB", ("B P", "P")),
    ],
    "A rolling restart": [
        Row("rolling restart", "seconds for each controlled shutdown", "a controlled shutdown, s", ()),
        Row("rolling restart", "seconds for each start, until in sync", "a start, until in sync, s", ("P", "P/B", "1")),
        Row("rolling restart", "store: MB read", "read from the store for each broker, MB", ("P", "B P"), 1 / RESTARTS),
        Row("rolling restart", "seconds for all brokers", "all brokers, s", ()),
    ],
    "Transactions of one record each, 20 at a time": [
        Row(
            "producers",
            "CPU seconds of all brokers",
            "CPU of all brokers for each, with InitProducerId, ms",
            ("1", "P/B²"),
            1000,
            "producers",
        ),
    ],
    "An idle cluster": [
        Row("idle", "requests between brokers", "requests between brokers in a second", ("B (B - 1)",), 0.1),
        Row("idle", "CPU seconds of all brokers", "CPU of all brokers in a second, s", ("P", "B (B - 1)"), 0.1),
        Row("idle", "resident MB", "memory of all brokers in the simulation, MB", ("P", "B P", "B (B - 1)")),
        Row("store", "largest node, bytes", "largest node of the store, bytes", ("partitions of a topic",)),
        Row("rack back", "store: largest write, bytes", "largest write to the store, bytes", ("1",)),
    ],
}
"""The rows of the table, by their headings."""


def tables(measured: Sequence[Measured], target: Size) -> str:
    """Return the table of all sizes, with the growth laws, as Markdown. The last column has the figures of the target,
    measured or, with the sign ESTIMATED before them, from the laws.
    """
    if not measured:
        return ""
    sizes = [each.size for each in measured if not _is_like(each.size, target)]
    heads = [f"{size.brokers} / {size.partitions:,}" for size in sizes]
    text = f"| Brokers / partitions | {' | '.join(heads)} | Grows with | Fits within | {target.brokers} / "
    text += f"{target.partitions:,} |\n| --- | {'---: | ' * len(sizes)}--- | ---: | ---: |\n"
    for heading, rows in ROWS.items():
        text += f"| **{heading}** |{' |' * (len(sizes) + 3)}\n"
        text += "".join(_line(row, measured, sizes, target) for row in rows)
    return text


def _is_like(size: Size, target: Size) -> bool:
    return (size.brokers, size.partitions) == (target.brokers, target.partitions)


def _line(row: Row, measured: Sequence[Measured], sizes: Sequence[Size], target: Size) -> str:
    figures = [(each.size, row.of(each)) for each in measured if row.episode in each.episodes]
    by_size = dict(figures)
    cells = " | ".join(shown(by_size[size]) if size in by_size else "" for size in sizes)
    law = fit(row.terms, figures) if row.terms else None
    at_target = next((shown(figure) for size, figure in figures if _is_like(size, target)), "")
    if law is None:
        return f"| {row.what} | {cells} | | | {at_target} |\n"
    terms = ", ".join(law.coefficients)
    at_target = at_target or f"{ESTIMATED} {shown(law.at(target))}"
    return f"| {row.what} | {cells} | {terms} | {law.error:.0%} | {at_target} |\n"


def shown(value: float) -> str:
    """Return a figure with two or three significant digits."""
    if value >= 100:
        return f"{round(value, -max(0, len(str(int(value))) - 3)):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
