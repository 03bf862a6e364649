"""Defines the rows and columns of the matrix: a point before or after a step of a transaction, and the role that is
killed there. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, StrEnum
from typing import NamedTuple

from oncelog.fail_points.point import FAIL_POINTS, FailPoint

CLIENT = 0
"""Stands for the client process where other victims are broker ids."""


class Victims(StrEnum):
    COORDINATOR = "coordinator killed"
    LEADER = "leader killed"
    BOTH = "both killed"
    ALONE = "killed alone"
    """The leader that executes the step is killed without other victims: it first continues for a while without its
    followers, and then dies with records that the followers do not have.
    """


class Role(Enum):
    """The role of the process that executes a step of the transaction."""

    CLIENT = "the client"
    COORDINATOR = "the coordinator of the transaction"
    LEADER = "the leader of a partition; the coordinator leads one, too"
    FOLLOWER = "a follower of any of its partitions"
    GROUP = "the coordinator of the group"


ROLES: Mapping[FailPoint, Role] = {
    "drain": Role.CLIENT,
    "send": Role.CLIENT,
    "register-partitions": Role.COORDINATOR,
    "append": Role.LEADER,
    "replicate": Role.FOLLOWER,
    "acknowledge": Role.LEADER,
    "offsets-written": Role.GROUP,
    "prepare-logged": Role.COORDINATOR,
    "reply-sent": Role.COORDINATOR,
    "marker-sent": Role.LEADER,
    "marker-written": Role.LEADER,
    "marker-replicated": Role.FOLLOWER,
    "marker-acknowledged": Role.COORDINATOR,
    "complete-logged": Role.COORDINATOR,
}
BROKER_POINTS = tuple(point for point in FAIL_POINTS if ROLES[point] is not Role.CLIENT)
CLIENT_POINTS = tuple(point for point in FAIL_POINTS if ROLES[point] is Role.CLIENT)

LIBRARIES: Mapping[str, Sequence[FailPoint]] = {
    "oncelog": FAIL_POINTS,
    "oncelog-v1": FAIL_POINTS,
    "librdkafka": BROKER_POINTS,
}
"""The client libraries, each with the fail points that it reaches."""


class Cell(NamedTuple):
    """One cell: `victims` are killed when the first of them reaches the point; this happens in the second of three
    transactions.
    """

    library: str
    when: str
    """"before" or "after": whether the kill comes before or after the step."""
    point: FailPoint
    victims: Victims
    aborts: bool = False
    """Whether the second transaction is aborted instead of committed."""

    def __str__(self) -> str:
        return f"{self.library} {'aborts' if self.aborts else 'commits'}, {self.victims} {self.when} {self.point}"


class Cast(NamedTuple):
    """The brokers' roles in a run: the id of the broker with each role."""

    coordinator: int
    leader: int
    """A broker that leads a partition of the transaction and is not the transaction's coordinator."""
    group: int
    """The coordinator of the group whose offsets are in the transaction."""

    def killed(self, cell: Cell) -> Collection[int]:
        match cell.victims:
            case Victims.COORDINATOR:
                return {self.coordinator}
            case Victims.LEADER:
                return {self.leader}
            case Victims.BOTH:
                return {self.coordinator, self.leader}
            case Victims.ALONE:
                return self.asked(cell, ())

    def asked(self, cell: Cell, brokers: Collection[int]) -> Collection[int]:
        """Return the processes that can execute the step; if victims are among them, only these victims."""
        match ROLES[cell.point]:
            case Role.CLIENT:
                return {CLIENT}
            case Role.COORDINATOR:
                return {self.coordinator}
            case Role.LEADER:
                return {self.coordinator if cell.victims is Victims.COORDINATOR else self.leader}
            case Role.FOLLOWER:
                return brokers
            case Role.GROUP:
                return {self.group}


def _is_possible(cell: Cell) -> bool:
    """Return whether the cell is possible: only a leader can be killed without other victims, and the coordinator of a
    librdkafka group must stay alive (see `run`).
    """
    role = ROLES[cell.point]
    if cell.victims is not Victims.ALONE:
        return True
    return role in (Role.COORDINATOR, Role.LEADER) or (role is Role.GROUP and cell.library != "librdkafka")


def all_cells() -> list[Cell]:
    cells = [
        Cell(library, when, point, victims, aborts)
        for library, points in LIBRARIES.items()
        for aborts in (False, True)
        for point in points
        for when in ("before", "after")
        for victims in Victims
    ]
    return [cell for cell in cells if _is_possible(cell)]
