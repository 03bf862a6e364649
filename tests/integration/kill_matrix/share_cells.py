"""Defines the cells for share groups (a step of a request, the broker that executes the step, and the fault), and
prints their table as Markdown. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple


class ShareFault(StrEnum):
    """The fault at the step; "before" a step the request is not handled yet, and before the answer it is handled."""

    BROKER_KILLED = "broker killed"
    MEMBER_KILLED = "member killed"
    DELAYED = "delayed"
    DROPPED = "dropped"
    ABSENT = "broker killed, absent until the end"
    COORDINATOR_KILLED = "share coordinator killed, absent until the end"
    CONTROLLER_KILLED = "controller killed, absent until the end"


MATRIX_FAULTS = (ShareFault.BROKER_KILLED, ShareFault.MEMBER_KILLED, ShareFault.DELAYED, ShareFault.DROPPED)
"""The faults of the kill matrix. The kill matrix of the cluster has the others, after which other brokers take over."""


class ShareRole(StrEnum):
    """The broker that executes a step."""

    LEADER = "leader of the share partition"
    SHARE_COORDINATOR = "share coordinator"
    GROUP_COORDINATOR = "group coordinator"


ROLES: Mapping[str, ShareRole] = {
    "ShareGroupHeartbeat": ShareRole.GROUP_COORDINATOR,
    "ReadShareGroupState": ShareRole.SHARE_COORDINATOR,
    "ShareFetch": ShareRole.LEADER,
    "ShareAcknowledge": ShareRole.LEADER,
    "WriteShareGroupState": ShareRole.SHARE_COORDINATOR,
}
"""The requests in the order in which a member causes them, each with the broker that handles the request. The leader
sends the requests about the share group's state."""
POINTS = tuple(f"{api}.{step}" for api in ROLES for step in ("request", "answer"))
"""The fail points, as docs/testing.md lists them."""


class ShareCell(NamedTuple):
    """One cell: the fault, and the fail point at which it strikes."""

    point: str
    fault: ShareFault

    @property
    def role(self) -> ShareRole:
        """The broker at which the fault strikes."""
        return ROLES[self.point.partition(".")[0]]

    def __str__(self) -> str:
        return f"{self.fault} at {self.point} of the {self.role}"


class ShareOutcome(NamedTuple):
    """The result of a cell; `problems` is empty if the run was correct."""

    problems: list[str]
    deliveries: int
    """Number of records that members got, again or for the first time."""
    seconds: float


def all_share_cells() -> list[ShareCell]:
    return [ShareCell(point, fault) for point in POINTS for fault in MATRIX_FAULTS]


def table(outcomes: Mapping[ShareCell, ShareOutcome]) -> Iterator[str]:
    """Yield the lines of the table. Failures are listed below the table, by number."""
    wrong: list[str] = []
    yield f"{len(outcomes)} runs, {sum(bool(each.problems) for each in outcomes.values())} of them wrong."
    yield ""
    yield "| | at the | " + " | ".join(MATRIX_FAULTS) + " |"
    yield "|---" * (2 + len(MATRIX_FAULTS)) + "|"
    for point in dict.fromkeys(cell.point for cell in outcomes):
        found = [outcomes.get(ShareCell(point, fault)) for fault in MATRIX_FAULTS]
        entries = " | ".join(_entry(outcome, wrong) for outcome in found)
        yield f"| {point} | {ShareCell(point, ShareFault.DELAYED).role} | {entries} |"
    if wrong:
        yield ""
        yield from (f"{number}. {text}" for number, text in enumerate(wrong, 1))


def _entry(outcome: ShareOutcome | None, wrong: list[str]) -> str:
    if outcome is None:
        return ""
    if outcome.problems:
        wrong.append("; ".join(outcome.problems))
        return f"**wrong: {len(wrong)}**"
    return f"ok {outcome.deliveries}"
