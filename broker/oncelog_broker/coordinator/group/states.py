"""The states of a group of the classic protocol, and the table of legal transitions.

- Empty: the group has no members; it may have committed offsets.
- PreparingRebalance: members are requested to join (again); JoinGroup requests wait for a response.
- CompletingRebalance: the generation is formed. While the leader computes the assignment, SyncGroup requests wait.
- Stable: the assignment is logged and sent to the members.
- Dead: the group is removed; code that has this object must find the group again by its id.

Only the states Empty and Stable are logged. The states of a rebalance are not logged. So when a record is replayed, a
group in any state except Dead may become Empty or Stable. In Kafka, a group whose last member leaves is briefly in
PreparingRebalance before it becomes Empty; no client can observe whether a group does so.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class GroupState(Enum):
    """The state of a classic group; the value is the name in the protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_LIVING: Final = frozenset(GroupState) - {GroupState.DEAD}

LEGAL_PREVIOUS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: _LIVING,
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: _LIVING,
    GroupState.DEAD: frozenset(GroupState),
}
"""State of a group -> the states from which a group may change to this state."""


class IllegalTransition(AssertionError):
    """The state machine attempted a transition that is not in the table of legal transitions, which is a bug."""


def check_transition(group_id: str, before: GroupState, after: GroupState) -> None:
    """Raises IllegalTransition if the state `after` must not follow the state `before`."""
    if before not in LEGAL_PREVIOUS[after]:
        raise IllegalTransition(f"group {group_id}: {after.value} must not follow {before.value}")
