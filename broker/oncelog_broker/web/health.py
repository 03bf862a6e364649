"""Liveness and readiness, for Kubernetes, compose and systemd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from oncelog_protocol.light_classes import dataclass

Condition = Callable[[], str | None]
"""Type of a readiness condition: a function that returns the reason why the broker is not ready, as text; None if the
condition is met.
"""


@dataclass(slots=True)
class Readiness:
    """The readiness of this broker to serve its partitions, from the broker's start to its stop.

    A broker with out-of-sync replicas, or without leaderships, counts as ready, because the broker serves requests
    while it catches up.
    """

    doing: str | None = "the broker starts"
    """The broker's present start-up or shutdown step; None while the broker serves."""
    conditions: list[Condition] = field(default_factory=list)

    def reasons(self) -> list[str]:
        """Return the reasons why the broker is not ready; empty if the broker is ready."""
        if self.doing is not None:
            return [self.doing]
        return [reason for condition in self.conditions if (reason := condition()) is not None]
