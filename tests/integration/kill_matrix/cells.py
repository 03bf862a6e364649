"""Defines the rows and columns of the matrix: the points at which a fault strikes, and the faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from kill_matrix.questions import Hit
from oncelog_protocol.api import ApiKey


class Fault(StrEnum):
    """The fault that the test causes while the process that has reached the fail point is paused."""

    BROKER_KILLED = "broker killed"
    CLIENT_KILLED = "client killed"
    CONNECTION_CUT = "connection cut"
    REPLY_LOST = "reply lost"
    REQUEST_DUPLICATED = "request duplicated"


class Moment(NamedTuple):
    """A moment in a transaction: just before or after the n-th execution of the step that a fail point names."""

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
"""The moments of a transaction at which the fault occurs while a broker is paused. If a transaction executes a step
several times, the fault occurs at one of the middle executions: by then one partition has its records or its marker,
and another partition does not.
"""

CLIENT_MOMENTS: Sequence[Moment] = [*_around("drain"), *_around("send")]
"""The moments at which the fault occurs while oncelog's own client is paused at one of its fail points."""

LIBRARIES: Mapping[str, Sequence[Moment]] = {
    "aiokafka": BROKER_MOMENTS,
    "oncelog": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
    "oncelog-v1": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
    "oncelog-consumer": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
    "oncelog-2pc": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
    "oncelog-streams": [*CLIENT_MOMENTS, *BROKER_MOMENTS],
}
"""The client libraries; for each of them, the moments that occur in its runs. In `oncelog-consumer` the consumer is a
member of a group of the consumer protocol (KIP-848), in `oncelog-2pc` transactions are prepared (KIP-939), and in
`oncelog-streams` two members of a streams group (KIP-1071) process the tasks of two source partitions.
"""

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
"""Fail point -> the requests that may be in progress at that point; at all other fail points EndTxn may be in progress.
"""


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
