"""Prints the measurements as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hostile.run import Measured
from hostile.verdict import problems

HEADER = (
    "client",
    "what it did",
    "honest client: p50 / p99 / worst, ms",
    "the same on the wall, ms",
    "at the same time, of an idle broker, ms",
    "memory: before / peak / after, MB",
    "verdict",
)


def page(outcomes: Iterable[Measured]) -> Iterator[str]:
    """Lines."""
    yield "| " + " | ".join(HEADER) + " |"
    yield "|---" * len(HEADER) + "|"
    for measured in outcomes:
        yield "| " + " | ".join(row(measured)) + " |"


def row(measured: Measured) -> tuple[str, ...]:
    return (
        measured.client.name,
        (measured.seen or measured.trouble).replace("|", "\\|"),
        str(measured.waits.net),
        str(measured.waits.wall),
        str(measured.idle or ""),
        "{} / {} / {}".format(*measured.memory),
        verdict(measured).replace("|", "\\|"),
    )


def verdict(measured: Measured) -> str:
    wrong = problems(measured)
    return f"**{'; '.join(wrong)}**" if wrong else "ok"
