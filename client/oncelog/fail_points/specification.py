"""Parses ONCELOG_FAIL_POINTS. Pure.

rule; rule; ...           with rule:  point[@hit] = [before|after] action

prepare-logged = crash                    kill the process with SIGKILL, before the step; with `after`, after it
marker-sent@2 = after delay 100           wait 100 ms after the second marker is sent; without @number, at every hit
reply-sent = drop                         the step is left out: its caller gets an error or no result
append = duplicate                        the step is done twice
marker-sent@1 = reorder                   the step is done after the next step of its point
append = ask /tmp/questions.sock          ask the test, and apply the action of its response: go, or one of the above
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple


class InvalidFailPoints(ValueError):
    """The specification is invalid, or names an action that the step does not support."""


class Kind(StrEnum):
    """The kinds of actions at a fail point; the module docstring of `specification` describes most of them."""

    GO = "go"
    CRASH = "crash"
    DELAY = "delay"
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    ASK = "ask"
    REFUSE = "refuse"
    """Refuse a request with a Kafka error; only `controlled.py` supports this, because steps have no response."""


OF_THE_STEP: Final = frozenset({Kind.DROP, Kind.DUPLICATE, Kind.REORDER})
"""Actions that change how a step is executed; they are not allowed with `after`."""


class Action(NamedTuple):
    """An action at a fail point: its kind, with the milliseconds of a delay, the path of a socket, or the name of an
    error.
    """

    kind: Kind
    delay_ms: int = 0
    socket_path: str = ""
    error: str = ""


class Rule(NamedTuple):
    """A rule of ONCELOG_FAIL_POINTS: apply `action` when `point` is reached for the time number `hit`; a `hit` of None
    means every time.
    """

    point: str
    hit: int | None
    is_after: bool
    action: Action


_RULE: Final = re.compile(r"(?P<point>[\w-]+)(?:@(?P<hit>\d+))?\s*=\s*(?:(?P<when>before|after)\s+)?(?P<action>.+)")


def parse_specification(text: str, points: Collection[str]) -> list[Rule]:
    """Return the rules of a specification about `points`. Raises InvalidFailPoints."""
    return [_rule(part.strip(), points) for part in text.split(";") if part.strip()]


def _rule(text: str, points: Collection[str]) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidFailPoints(f"{text!r} is not point[@hit] = [before|after] action")
    point = match["point"]
    if point not in points:
        raise InvalidFailPoints(f"{text!r}: unknown fail point {point!r}; known: {', '.join(points)}")
    hit = None if match["hit"] is None else int(match["hit"])
    if hit == 0:
        raise InvalidFailPoints(f"{text!r}: the first hit is 1")
    try:
        action = parse_action(match["action"])
    except InvalidFailPoints as error:
        raise InvalidFailPoints(f"{text!r}: {error}") from None
    is_after = match["when"] == "after"
    if is_after and action.kind in OF_THE_STEP:
        raise InvalidFailPoints(f"{text!r}: after a step it is too late to {action.kind} it")
    return Rule(point, hit, is_after, action)


def parse_action(text: str) -> Action:
    """Return an action with its argument; the function also parses a test's response to `ask`. Raises
    InvalidFailPoints.
    """
    word, *arguments = text.split(maxsplit=1)
    kinds = [kind for kind in Kind if kind is not Kind.REFUSE]
    if word not in kinds:
        raise InvalidFailPoints(f"unknown action {word!r}; known: {', '.join(kinds)}")
    kind = Kind(word)
    argument = arguments[0] if arguments else ""
    if kind is Kind.DELAY:
        if not argument.isdecimal():
            raise InvalidFailPoints(f"delay takes milliseconds, not {argument!r}")
        return Action(kind, delay_ms=int(argument))
    if kind is Kind.ASK:
        if not argument:
            raise InvalidFailPoints("ask takes the path of a unix socket")
        return Action(kind, socket_path=argument)
    if argument:
        raise InvalidFailPoints(f"{kind} takes nothing, not {argument!r}")
    return Action(kind)
