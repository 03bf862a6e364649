"""Liveness and readiness, for Kubernetes, compose and systemd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Condition = Callable[[], str | None]
"""Returns the reason why the broker is not ready, as text; None if this condition is met."""


@dataclass(slots=True)
class Readiness:
    """Whether this broker is ready to serve all its partitions, from its start to its stop.

    A broker with out-of-sync replicas, or without leadership, is ready: it serves its partitions, and catches up.
    """

    doing: str | None = "the broker starts"
    """The broker's present start-up or shutdown step; None while it serves."""
    conditions: list[Condition] = field(default_factory=list)

    def reasons(self) -> list[str]:
        """Why the broker is not ready; empty if it is."""
        if self.doing is not None:
            return [self.doing]
        return [reason for condition in self.conditions if (reason := condition()) is not None]
