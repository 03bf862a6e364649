"""The functions that share groups and streams groups offer to a machine. Pure."""

from __future__ import annotations

from typing import Any, Protocol

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.step import GroupTimer


class OtherGroups(Protocol):
    """All groups of one protocol in one machine. Each function gets one of these groups, or one record of this
    protocol."""

    def has(self, record: object) -> bool:
        """Whether the record belongs to this protocol."""

    def replay(self, record: Any) -> None:
        """Apply a logged record."""

    def on_loaded(self, group: Any, effects: Effects) -> None:
        """Start the timers of a group that was loaded from the log."""

    def on_timer(self, group: Any, timer: GroupTimer, effects: Effects) -> None:
        """Handle an expired timer of the group."""

    def on_job(self, group: Any, result: object) -> Effects:
        """Handle the result of a job of the group."""

    def on_failed(self, group: Any, effects: Effects) -> None:
        """Reset the soft state of the group after the records of a step could not be appended."""
