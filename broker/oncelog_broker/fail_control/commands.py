"""Parses the JSON of a command to the fail control, and creates the JSON of the response. Pure.

Example: {"point": "EndTxn.answer", "drop": true, "times": 1, "transactional_id": "billing"}
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from oncelog.fail_points.controlled import Fault
from oncelog.fail_points.faults import FILTERS
from oncelog.fail_points.specification import Action, Kind
from oncelog_broker.fail_control.catalogue import CATALOGUE, CRASH, DELAY, DROP, REFUSE, Point
from oncelog_protocol.errors import ErrorCode

MAX_DELAY_MS: Final = 600_000
MAX_TIMES: Final = 1_000_000
ACTIONS: Final = (CRASH, DROP, DELAY, REFUSE)
FIELDS: Final = frozenset({"point", "after", "times", *ACTIONS, *FILTERS})


class BadCommand(Exception):
    """The command cannot be executed; the message says which commands are possible."""


class Command(NamedTuple):
    point: str
    action: Action
    is_after: bool
    times: int | None
    filters: dict[str, str]


def command_of(fields: Any) -> Command:
    """Parse a command. Raises BadCommand."""
    if not isinstance(fields, dict):
        raise BadCommand("an object is expected")
    if unknown := fields.keys() - FIELDS:
        raise BadCommand(f"unknown: {_names(unknown)}; known fields: {_names(FIELDS)}")
    point = _point(fields.get("point"))
    asked = [name for name in ACTIONS if fields.get(name) not in (None, False)]
    if len(asked) != 1:
        raise BadCommand(f"one of {', '.join(point.actions)} is expected, but {len(asked)} are given")
    if asked[0] not in point.actions:
        raise BadCommand(f"{point.name} cannot {asked[0]}, only {', '.join(point.actions)}")
    action = _action(asked[0], fields[asked[0]])
    is_after = fields.get("after", False)
    if not isinstance(is_after, bool):
        raise BadCommand("after must be true or false")
    if is_after and not (point.has_after and asked[0] in (CRASH, DELAY)):
        raise BadCommand(f"{point.name} cannot {asked[0]} after it")
    times = fields.get("times", 1)
    if times is not None and (not _is_int(times) or not 1 <= times <= MAX_TIMES):
        raise BadCommand(
            f"times must be a number from 1 to {MAX_TIMES}, or null, which means until the fault is deleted"
        )
    return Command(point.name, action, is_after, times, _filters(point, fields))


def _point(name: Any) -> Point:
    point = CATALOGUE.get(name) if isinstance(name, str) else None
    if point is None:
        near = get_close_matches(name[:100], CATALOGUE, 3) if isinstance(name, str) else []
        hint = f"; perhaps {' or '.join(near)}" if near else ""
        raise BadCommand(f"unknown fail point {str(name)[:100]!r}{hint} (GET /points lists them)")
    return point


def _action(name: str, value: Any) -> Action:
    if name == DELAY:
        if not _is_int(value) or not 0 < value <= MAX_DELAY_MS:
            raise BadCommand(f"delay must be a number of milliseconds from 1 to {MAX_DELAY_MS}")
        return Action(Kind.DELAY, delay_ms=value)
    if name == REFUSE:
        if not isinstance(value, str) or value not in ErrorCode.__members__ or ErrorCode[value] is ErrorCode.NONE:
            raise BadCommand(
                f"refuse must be the name of a Kafka error, such as NOT_COORDINATOR, not {str(value)[:100]!r}"
            )
        return Action(Kind.REFUSE, error=value)
    if value is not True:
        raise BadCommand(f"{name} must be true")
    return Action(Kind(name))


def _filters(point: Point, fields: dict[str, Any]) -> dict[str, str]:
    filters = {name: fields[name] for name in FILTERS if fields.get(name) is not None}
    for name, value in filters.items():
        if not isinstance(value, str):
            raise BadCommand(f"{name} must be a name")
        if name not in point.filters:
            known = f"only {', '.join(point.filters)}" if point.filters else "nothing"
            raise BadCommand(f"{point.name} has no field {name}, {known}")
    return filters


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(names: Any) -> str:
    return ", ".join(sorted(str(name)[:100] for name in names))


def described(fault: Fault) -> dict[str, Any]:
    """Return a fault in the JSON form of the fail control."""
    action = fault.action
    value = {Kind.DELAY: action.delay_ms, Kind.REFUSE: action.error}.get(action.kind, True)
    return {
        "id": fault.number,
        "point": fault.point,
        str(action.kind): value,
        "after": fault.is_after,
        "left": fault.left,
        "struck": fault.struck,
        **fault.filters,
    }


def catalogue() -> list[dict[str, Any]]:
    """Return all points in the JSON form of the fail control."""
    return [point._asdict() for point in CATALOGUE.values()]
