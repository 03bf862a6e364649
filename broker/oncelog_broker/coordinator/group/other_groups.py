"""What a machine asks of the groups of each protocol other than the classic and the consumer protocol. Pure."""

from __future__ import annotations

from typing import Any, Protocol

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.step import GroupTimer


class OtherGroups(Protocol):
    """All groups of one protocol, in one machine. Each function gets one of them, or one of its records."""

    def has(self, record: object) -> bool:
        """Whether the record is one of this protocol."""

    def replay(self, record: Any) -> None:
        """Apply a logged record."""

    def on_loaded(self, group: Any, effects: Effects) -> None:
        """The group was loaded from the log: start its timers."""

    def on_timer(self, group: Any, timer: GroupTimer, effects: Effects) -> None:
        """A timer of the group has ended."""

    def on_job(self, group: Any, result: object) -> Effects:
        """A job of the group has a result."""

    def on_failed(self, group: Any, effects: Effects) -> None:
        """The records of a step could not be appended."""
