"""Whether the broker lives, and whether clients should be sent to it: what Kubernetes, compose and systemd ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Condition = Callable[[], str | None]
"""What keeps the broker from being ready, in words; None: this does not."""


@dataclass(slots=True)
class Readiness:
    """Whether this broker serves all that it has. `begins` with the start, and ends when it is told to stop.

    A broker whose replicas are not in sync, or that leads nothing, is ready: it serves what it has, and catches up.
    """

    doing: str | None = "the broker starts"
    """What the broker does instead of serving."""
    conditions: list[Condition] = field(default_factory=list)

    def reasons(self) -> list[str]:
        """Why it is not ready; empty where it is."""
        if self.doing is not None:
            return [self.doing]
        return [reason for condition in self.conditions if (reason := condition()) is not None]
