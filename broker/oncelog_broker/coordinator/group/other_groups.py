"""The interface through which the state machine of all groups (`machine.py`) uses share groups and streams groups.
Pure."""

from __future__ import annotations

from typing import Any, Protocol

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.step import GroupTimer


class OtherGroups(Protocol):
    """All groups of one protocol in one state machine (partition of `__consumer_offsets`). The argument `group` is
    always a group of this protocol.
    """

    def has(self, record: object) -> bool:
        """Whether the record belongs to this group protocol."""

    def replay(self, record: Any) -> None:
        """Apply a logged record to the groups of this protocol."""

    def on_loaded(self, group: Any, effects: Effects) -> None:
        """Start the timers of a group that was loaded from the log."""

    def on_timer(self, group: Any, timer: GroupTimer, effects: Effects) -> None:
        """Handle an expired timer of the group."""

    def on_job(self, group: Any, result: object) -> Effects:
        """Handle the result of a background job of the group."""

    def on_failed(self, group: Any, effects: Effects) -> None:
        """Reset the soft state of the group after an append of the group's records has failed."""
