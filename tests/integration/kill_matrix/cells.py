"""Defines the rows and columns of the matrix: the points at which a fault strikes, and the faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from kill_matrix.questions import Hit
from oncelog_protocol.api import ApiKey


class Fault(StrEnum):
    """The fault that occurs while the process at the point is paused."""

    BROKER_KILLED = "broker killed"
    CLIENT_KILLED = "client killed"
    CONNECTION_CUT = "connection cut"
    REPLY_LOST = "reply lost"
    REQUEST_DUPLICATED = "request duplicated"


class Moment(NamedTuple):
    """Before or after the n-th step of a point in one transaction."""

    hit: Hit
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.hit.when} {self.hit.point}" + (f" #{self.nth}" if self.nth > 1 else "")


def _around(point: str, before: int = 1, after: int = 1) -> list[Moment]:
    return [Moment(Hit("before", point), before), Moment(Hit("after", point), after)]


BROKER_MOMENTS: Sequence[Moment] = [
    *_around("register-partitions", after=2),
    *_around("append", before=2),
    *_around("acknowledge"),
    *_around("offsets-written"),
    *_around("prepare-logged"),
    *_around("marker-sent", before=2, after=3),
    *_around("marker-written", before=1, after=2),
    *_around("marker-acknowledged", before=2, after=2),
    *_around("complete-logged"),
    *_around("reply-sent"),
]
"""The moments in a broker. Of several steps of one kind, a middle one is chosen: one partition has its records or its
marker, another has not.
"""

CLIENT_MOMENTS: Sequence[Moment] = [*_around("drain"), *_around("send")]
"""The moments in oncelog's own client, which also asks at its fail points."""

LIBRARIES: Mapping[str, Sequence[Moment]] = {
    "aiokafka": BROKER_MOMENTS,
    "oncelog": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
    "oncelog-v1": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
}
"""The client libraries, each with the moments that its runs have."""

REQUESTS: Mapping[str, Sequence[ApiKey]] = {
    "register-partitions": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.PRODUCE,  # with transactions V2, these two requests add partitions themselves
        ApiKey.TXN_OFFSET_COMMIT,
    ),
    "drain": (ApiKey.PRODUCE,),
    "send": (ApiKey.PRODUCE,),
    "append": (ApiKey.PRODUCE,),
    "acknowledge": (ApiKey.PRODUCE,),
    "offsets-written": (ApiKey.TXN_OFFSET_COMMIT,),
}
"""The requests that may be in progress at a point; EndTxn at all other points."""


def requests_at(point: str) -> Sequence[ApiKey]:
    return REQUESTS.get(point, (ApiKey.END_TXN,))


class Cell(NamedTuple):
    """One cell: the fault, the moment of the client's second transaction at which it occurs, and whether that
    transaction commits or aborts.
    """

    library: str
    moment: Moment
    fault: Fault
    aborts: bool = False

    def __str__(self) -> str:
        return f"{self.library} {'aborts' if self.aborts else 'commits'}, {self.fault} {self.moment}"


def all_cells() -> list[Cell]:
    return [
        Cell(library, moment, fault, aborts)
        for library, moments in LIBRARIES.items()
        for aborts in (False, True)
        for moment in moments
        for fault in Fault
    ]
