"""The names of the fail points, in the order in which a transaction reaches them, and the decorator that marks a step.

    drain                a batch leaves the accumulator (in the client)
    send                 a Produce request goes to its leader (in the client)
    register-partitions  partitions become part of the transaction, in the coordinator's log
    append               a transactional batch is written to its partition
    replicate            a follower writes transactional batches
    acknowledge          the response to a Produce request is sent
    offsets-written      the offsets of a TxnOffsetCommit are written as pending offsets
    prepare-logged       EndTxn: the decision is written to the coordinator's log
    reply-sent           the response to EndTxn is sent
    marker-sent          the coordinator sends the marker of one partition
    marker-written       the marker is written to its partition
    marker-replicated    a follower writes a marker
    marker-acknowledged  the coordinator handles the response about one marker
    complete-logged      the end of the transaction is written to the coordinator's log

The environment variable is read once, when this module is imported. Unless the variable is set, or the process is
`arm`ed for faults at run time, the decorator returns the function unchanged, so production code runs without fail
points.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

if TYPE_CHECKING:
    from oncelog.fail_points.faults import Faults

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE: Final = "ONCELOG_FAIL_POINTS"
FailPoint = Literal[
    "drain",
    "send",
    "register-partitions",
    "append",
    "replicate",
    "acknowledge",
    "offsets-written",
    "prepare-logged",
    "reply-sent",
    "marker-sent",
    "marker-written",
    "marker-replicated",
    "marker-acknowledged",
    "complete-logged",
]
FAIL_POINTS: Final[tuple[FailPoint, ...]] = get_args(FailPoint)


def _faults_of(specification: str | None) -> Faults | None:
    if not specification:
        return None
    from oncelog.fail_points.faults import Faults
    from oncelog.fail_points.specification import InvalidFailPoints, parse_specification

    try:
        return Faults(parse_specification(specification, FAIL_POINTS))
    except InvalidFailPoints as error:
        raise InvalidFailPoints(f"{VARIABLE}: {error}") from None


ACTIVE_FAULTS: Faults | None = _faults_of(os.environ.get(VARIABLE))
_passed: list[FailPoint] = []
"""Fail points for which no function was decorated."""


def arm() -> Faults:
    """Make all steps decorated from now on apply the faults of `Faults.controlled`. Raises RuntimeError if a module
    with decorated steps is already imported.
    """
    global ACTIVE_FAULTS
    if _passed:
        raise RuntimeError(f"too late for {', '.join(_passed)}: their modules are imported")
    if ACTIVE_FAULTS is None:
        from oncelog.fail_points.faults import Faults

        ACTIVE_FAULTS = Faults([])
    return ACTIVE_FAULTS


def obey(specification: str) -> None:
    """Add rules in an armed process, as if ONCELOG_FAIL_POINTS had contained the rules. Raises InvalidFailPoints."""
    from oncelog.fail_points.specification import parse_specification

    assert ACTIVE_FAULTS is not None, "arm first"
    ACTIVE_FAULTS.obey(parse_specification(specification, FAIL_POINTS))


def fail_point(
    *points: FailPoint,
    which: Callable[..., FailPoint | None] | None = None,
    dropped: Callable[[], Any] | None = None,
) -> Callable[[F], F]:
    """Decorate a function, coroutine function or method as the step of one or several points.

    For a step of several points, `which` (called with the step's arguments) returns the point of a call, or None.
    `dropped` returns, or raises, the result for the caller of a dropped or reordered step; None means that dropping and
    reordering are not supported.
    """

    def mark(step: F) -> F:
        if ACTIVE_FAULTS is None:
            _passed.extend(points)
            return step
        return ACTIVE_FAULTS.wrap(step, points, which or (lambda *_, **__: points[0]), dropped)

    return mark
