"""The event log of a run: each event with its time and machine, in order. The hash of the log shows whether two runs
were identical.

Two runs of one plan have identical timelines, byte for byte. Details are numbers, strings and bytes, never objects
whose text contains a memory address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    """One line of the timeline."""

    at: float
    """Virtual seconds since the world began."""
    actor: str
    """The broker, client or part of the world to which the event belongs."""
    what: str
    details: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        details = "".join(f" {name}={value}" for name, value in self.details)
        return f"{self.at:12.6f} {self.actor:<12} {self.what}{details}"


class Timeline:
    """The events of a run so far."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.events: list[Event] = []

    def note(self, actor: str, what: str, **details: object) -> None:
        """Add an event at the current time."""
        self.events.append(Event(self._now(), actor, what, tuple(details.items())))

    def lines(self) -> Iterator[str]:
        """Yield the timeline as text, one line for each event."""
        return map(str, self.events)

    def digest(self) -> str:
        """Return the sha256 of all lines, in hex."""
        sum_of_all = hashlib.sha256()
        for line in self.lines():
            sum_of_all.update(line.encode())
            sum_of_all.update(b"\n")
        return sum_of_all.hexdigest()
