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
    """A point at which a fault can be injected (a named place in the code), with the faults that the point supports,
    and the filters that may restrict a fault to some requests.
    """

    name: str
    what: str
    actions: tuple[str, ...]
    filters: tuple[str, ...]
    has_after: bool = False
    """Whether a crash or a delay can strike after the step that the point names, and not only before it."""


def _step(name: str, what: str, *filters: str, drop: str = "") -> Point:
    actions = (CRASH, DELAY, DROP) if drop else (CRASH, DELAY)
    return Point(name, f"{what}. Dropped: {drop}" if drop else what, actions, filters, has_after=True)


STEPS: Final = (
    _step(
        "register-partitions",
        "the coordinator logs the partitions that are added to a transaction",
        TRANSACTION,
        drop="they are not logged, and the client gets COORDINATOR_NOT_AVAILABLE",
    ),
    _step(
        "append",
        "the leader appends a transactional batch to its partition",
        TRANSACTION,
        TOPIC,
        drop="the batch is not appended, and the client gets NOT_ENOUGH_REPLICAS",
    ),
    _step("replicate", "a follower appends transactional batches", TOPIC),
    _step(
        "offsets-written",
        "the group coordinator logs the pending offsets of a TxnOffsetCommit",
        TRANSACTION,
        GROUP,
        drop="they are not logged, and the client gets COORDINATOR_NOT_AVAILABLE",
    ),
    _step("prepare-logged", "on EndTxn, the coordinator logs its decision", TRANSACTION),
    _step(
        "marker-sent",
        "the coordinator sends the marker of one partition",
        TOPIC,
        drop="the marker is not written, and the coordinator retries it",
    ),
    _step("marker-written", "the leader appends the marker to its partition", TOPIC),
    _step("marker-replicated", "a follower appends a marker", TOPIC),
    _step(
        "marker-acknowledged",
        "the coordinator handles the response for one marker",
        drop="the response is ignored, and the coordinator sends the marker again",
    ),
    _step(
        "complete-logged",
        "the coordinator logs the end of the transaction",
        TRANSACTION,
        drop="the end is not logged until a coordinator loads that log again",
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
        request = f"{name} has arrived and is not handled yet. Dropped: the broker closes the connection"
        answer = f"{name} has been handled. Dropped: the broker closes the connection instead of responding"
        points.append(Point(f"{name}.request", request, (CRASH, DELAY, DROP, *refuse), filters))
        points.append(Point(f"{name}.answer", answer, (CRASH, DELAY, DROP), filters))
    return points


CATALOGUE: Final = {point.name: point for point in (*STEPS, *_of_apis())}
