"""The points at which a fault can be injected: steps of a transaction inside the broker, and requests and responses of
each API."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.fail_points.faults import FILTERS
from oncelog_broker.server.dispatch.faulty import api_name, filters_of
from oncelog_broker.server.dispatch.refusals import REFUSABLE
from oncelog_broker.server.served import SERVED

CRASH: Final = "crash"
DROP: Final = "drop"
DELAY: Final = "delay"
REFUSE: Final = "refuse"
TRANSACTION, TOPIC, GROUP = FILTERS


class Point(NamedTuple):
    """A point, with the faults that the point supports and the filters that may restrict these faults."""

    name: str
    what: str
    actions: tuple[str, ...]
    filters: tuple[str, ...]
    has_after: bool = False
    """Whether a crash or a delay is also possible after the step."""


def _step(name: str, what: str, *filters: str, drop: str = "") -> Point:
    actions = (CRASH, DELAY, DROP) if drop else (CRASH, DELAY)
    return Point(name, f"{what}. Dropped: {drop}" if drop else what, actions, filters, has_after=True)


STEPS: Final = (
    _step(
        "register-partitions",
        "the coordinator logs that partitions become part of a transaction",
        TRANSACTION,
        drop="they are not logged, and the client gets COORDINATOR_NOT_AVAILABLE",
    ),
    _step(
        "append",
        "a transactional batch is written to its partition",
        TRANSACTION,
        TOPIC,
        drop="it is not appended, and the client gets NOT_ENOUGH_REPLICAS",
    ),
    _step("replicate", "a follower writes transactional batches", TOPIC),
    _step(
        "offsets-written",
        "the offsets of a TxnOffsetCommit are written, pending",
        TRANSACTION,
        GROUP,
        drop="they are not logged, and the client gets COORDINATOR_NOT_AVAILABLE",
    ),
    _step("prepare-logged", "EndTxn: the decision is written to the coordinator's log", TRANSACTION),
    _step(
        "marker-sent",
        "the coordinator has the marker of one partition written",
        TOPIC,
        drop="it is not written, and tried again",
    ),
    _step("marker-written", "the marker is written to its partition", TOPIC),
    _step("marker-replicated", "a follower writes a marker", TOPIC),
    _step(
        "marker-acknowledged",
        "the coordinator takes in the answer about one marker",
        drop="it does not, and has the marker written again",
    ),
    _step(
        "complete-logged",
        "the end of the transaction is written to the coordinator's log",
        TRANSACTION,
        drop="it is not, until a coordinator loads that log again",
    ),
)
"""The broker's fail points, in the order of a transaction. A delay at one of these points stops the entire broker, like
a long pause of the process."""


def _of_apis() -> list[Point]:
    points = []
    for key in sorted(SERVED):
        served = SERVED[key]
        name = api_name(served.key)
        filters = tuple(each for each in FILTERS if each in filters_of(served.key))
        refuse = (REFUSE,) if served.key in REFUSABLE else ()
        request = f"{name} has arrived and is not handled yet. Dropped: its connection ends"
        answer = f"{name} has been handled. Dropped: its connection ends in place of the answer"
        points.append(Point(f"{name}.request", request, (CRASH, DELAY, DROP, *refuse), filters))
        points.append(Point(f"{name}.answer", answer, (CRASH, DELAY, DROP), filters))
    return points


CATALOGUE: Final = {point.name: point for point in (*STEPS, *_of_apis())}
