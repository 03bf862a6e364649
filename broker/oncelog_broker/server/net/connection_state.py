"""When a connection handles its next request: a lifecycle of five states, and the holds that stand. Pure.

The lifecycle is a table, TRANSITIONS: whatever changes the state of a connection is an event of it. `make reference`
draws it (docs/reference/connections.md).

A hold is one named reason to wait. Several may stand at a time, and each is lifted by the code that has put it: a
connection that is throttled while it stands in line with a large request waits for both. The state is one of the
holds, too, where it handles no requests; so the next request is handled if no hold stands, and the hot path is one test
of an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class State(Enum):
    """The state of a connection. Its value says what happens in it."""

    OPEN = "Requests are handled in order."
    LAST_REQUEST = "The request being handled is the last one. When all answers are there the connection drains."
    CLIENT_GONE = (
        "The client sends no more. Requests that have come whole are handled, but none waits for others; then the "
        "connection drains."
    )
    DRAINING = "No request is handled. The connection is closed when what is written has left, or is closing."
    ENDED = "The connection is closed and counted out, its answers are cancelled and its buffers given up."


class Event(Enum):
    """What changes the state of a connection. Its value says when it happens."""

    LAST_REQUEST_TAKEN = "The request being handled is to be the last: a login was refused."
    CLIENT_LEFT = "The client sends no more, and something is left to be handled or sent."
    ALL_DONE = "Nothing is left to be handled, and no answer is awaited that would be sent."
    CLOSED = "The broker closes it: it stops, or the client breaks a rule or a limit."
    LOST = "Its transport is gone, and nothing is left to be handled."


TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.OPEN: {
        Event.LAST_REQUEST_TAKEN: State.LAST_REQUEST,
        Event.CLIENT_LEFT: State.CLIENT_GONE,
        Event.ALL_DONE: State.OPEN,
        Event.CLOSED: State.DRAINING,
        Event.LOST: State.ENDED,
    },
    State.LAST_REQUEST: {
        Event.LAST_REQUEST_TAKEN: State.LAST_REQUEST,
        Event.CLIENT_LEFT: State.LAST_REQUEST,  # frames behind the last request are never handled
        Event.ALL_DONE: State.DRAINING,
        Event.CLOSED: State.DRAINING,
        Event.LOST: State.ENDED,
    },
    State.CLIENT_GONE: {
        Event.LAST_REQUEST_TAKEN: State.LAST_REQUEST,
        Event.CLIENT_LEFT: State.CLIENT_GONE,
        Event.ALL_DONE: State.DRAINING,
        Event.CLOSED: State.DRAINING,
        Event.LOST: State.ENDED,
    },
    State.DRAINING: {
        Event.LAST_REQUEST_TAKEN: State.DRAINING,
        Event.CLIENT_LEFT: State.DRAINING,
        Event.ALL_DONE: State.DRAINING,
        Event.CLOSED: State.DRAINING,
        Event.LOST: State.ENDED,
    },
    State.ENDED: dict.fromkeys(Event, State.ENDED),
}
"""The state after an event, of every state and event."""


HANDLING: Final = frozenset({State.OPEN, State.CLIENT_GONE})
"""The states in which requests are handled."""


class Hold(IntEnum):
    """A reason why the next request is not handled now: one bit."""

    EFFECTS = 1
    ANSWERS_FULL = 2
    TURN = 4
    LARGE_REQUEST = 8
    THROTTLE = 16
    MEMORY = 32
    STATE = 64


LIFTED_IN_TIME: Final = Hold.TURN | Hold.LARGE_REQUEST | Hold.THROTTLE
"""The holds that are lifted whatever client and broker do."""

HOLD_MEANINGS: Final[Mapping[Hold, str]] = {
    Hold.EFFECTS: "The effects of the request before it are not done (T17). Lifted when they are, or it is answered.",
    Hold.ANSWERS_FULL: "Too many answers, or too many bytes of them, have not left. Lifted when some have.",
    Hold.TURN: "The loop's other work comes first. Lifted in the next turn of the loop.",
    Hold.LARGE_REQUEST: "It stands in line with other large requests. Lifted when it is the connection's turn.",
    Hold.THROTTLE: "The client has used more than a quota (KIP-219). Lifted when the time is up.",
    Hold.MEMORY: "Other connections hold the memory that it needs. Lifted after a moment, to ask again.",
    Hold.STATE: "The state is not one in which requests are handled. Never lifted.",
}


class Lifecycle:
    """The state and the holds of one connection."""

    __slots__ = ("holds", "state")

    def __init__(self) -> None:
        self.state = State.OPEN
        self.holds = 0
        """The bits of the holds that stand. The next request is handled as soon as it is there if this is 0.
        Invariant: `Hold.STATE` stands if and only if `state` is not in HANDLING."""

    def __repr__(self) -> str:
        return f"Lifecycle({self.state.name}, {', '.join(hold.name for hold in Hold if self.holds & hold)})"

    def on(self, event: Event) -> None:
        """Take the transition of this event."""
        self.state = TRANSITIONS[self.state][event]
        if self.state not in HANDLING:
            self.holds |= Hold.STATE

    def put(self, hold: Hold) -> None:
        """Harmless for one that stands."""
        self.holds |= hold

    def lift(self, hold: Hold) -> None:
        """Harmless for one that does not stand."""
        self.holds &= ~hold
