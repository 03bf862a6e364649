"""Registers known differences: each belongs to a row of docs/differences.md, and names the places where it may
appear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from tests.interop.differential.comparison import Difference
from tests.interop.differential.scenario import Outcome


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
"""Matches any value."""


EVERYWHERE: Final = "*"
NOWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class Known:
    """A known difference between the responses of Apache Kafka and oncelog. Patterns have the syntax of fnmatch. A
    field name without a path matches the field anywhere in a response.

    `scenario` matches the scenarios in which the difference may appear. `seen_in` (by default the same) matches those
    in which it must appear, so that entries of differences that have disappeared are noticed and removed. In a random
    walk a difference appears only
    sometimes, so its `seen_in` is NOWHERE. `relation` is the required relation of Kafka's value to oncelog's value;
    `setting` ("key=value") makes oncelog's broker respond like Kafka.
    """

    row: str
    scenario: str
    field: str
    kafka: Any = ANY
    ours: Any = ANY
    api: str = "*"
    label: str = "*"
    seen_in: str | None = None
    relation: Callable[[Any, Any], bool] | None = None
    setting: str = ""

    @property
    def must_show_in(self) -> str:
        """The pattern of the scenarios in which the difference must appear."""
        return self.scenario if self.seen_in is None else self.seen_in

    def explains(self, difference: Difference) -> bool:
        return (
            fnmatchcase(difference.scenario, self.scenario)
            and fnmatchcase(difference.step.api, self.api)
            and fnmatchcase(difference.step.label, self.label)
            and (fnmatchcase(difference.field, self.field) or fnmatchcase(difference.field, f"*.{self.field}"))
            and self._fits(self.kafka, difference.kafka)
            and self._fits(self.ours, difference.ours)
            and (self.relation is None or self.relation(difference.kafka, difference.ours))
        )

    @staticmethod
    def _fits(wanted: Any, value: Any) -> bool:
        return wanted is ANY or (wanted == value and type(wanted) is type(value))

    def __str__(self) -> str:
        parts = [self.scenario, self.api, self.label, self.field]
        return f"{self.row} ({' '.join(part for part in parts if part != '*')}: Kafka {self.kafka!r}, we {self.ours!r})"


def shares_an_area(scenario: str, known: Iterable[Known]) -> bool:
    """Return whether one of the entries belongs to a scenario of the same area. The whole area counts, because a
    setting may have an effect in any of its scenarios.
    """
    return scenario.partition(".")[0] in {entry.scenario.partition(".")[0] for entry in known}


def unexplained(outcome: Outcome, known: tuple[Known, ...]) -> list[Difference]:
    """Return the differences that no entry explains."""
    return [one for one in outcome.differences if not any(entry.explains(one) for entry in known)]


def stale(scenario: str, outcome: Outcome, known: tuple[Known, ...]) -> list[Known]:
    """Return the entries whose differences should have appeared in this run of a scenario but did not."""
    due = [entry for entry in known if fnmatchcase(scenario, entry.must_show_in)]
    return [entry for entry in due if not any(entry.explains(one) for one in outcome.differences)]
