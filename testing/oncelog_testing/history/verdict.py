"""The verdict on a history, as text: the number of checked actions, and the violations by kind."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from oncelog_testing.history.events import End
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test

SHOWN: Final = 10
"""Maximum number of violations of each kind that the text lists."""


class Verdict:
    """The result of the checks. In a boolean context, the verdict is False if there are violations; `str(verdict)`
    lists them.
    """

    def __init__(self, history: History, violations: list[Violation]) -> None:
        self.violations = violations
        ends = [transaction.end for transaction in history.transactions]
        found = sum(map(len, history.final.values()))
        self._looked_at = (
            f"{_many(len(history.sends), 'record')} sent, {_many(len(ends), 'transaction')} "
            f"({ends.count(End.COMMITTED)} committed, {ends.count(End.ABORTED)} aborted, {ends.count(End.UNKNOWN)} of "
            f"unknown end), {_many(found, 'record')} found in {_many(len(history.final), 'partition')}"
        )

    @property
    def is_exactly_once(self) -> bool:
        return not self.violations

    def __bool__(self) -> bool:
        return self.is_exactly_once

    @property
    def kinds(self) -> set[Kind]:
        return {violation.kind for violation in self.violations}

    def __str__(self) -> str:
        if not self.violations:
            return f"exactly once: {self._looked_at}"
        by_kind: defaultdict[Kind, list[str]] = defaultdict(list)
        for violation in self.violations:
            by_kind[violation.kind].append(violation.what)
        lines = [f"not exactly once, {_many(len(self.violations), 'violation')}: {self._looked_at}"]
        for kind, those in by_kind.items():
            lines.append(f"  {kind.name}: {kind.value} ({len(those)})")
            lines += [f"    {what}" for what in those[:SHOWN]]
            if len(those) > SHOWN:
                lines.append(f"    ... and {len(those) - SHOWN} more")
        return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
