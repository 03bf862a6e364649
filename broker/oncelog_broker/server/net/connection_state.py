"""Decides when a connection handles its next request: by a lifecycle of five states, and a set of holds. Pure.

The lifecycle is a table, TRANSITIONS: every change of a connection's state is caused by an event in this table. `make
reference` draws the lifecycle (docs/reference/connections.md).

A hold is a named reason for not handling the next request. Several holds (reasons to wait) may be set simultaneously,
and the code that sets a hold also removes it: a connection may be throttled and also wait until its large request is
scheduled. In each state that handles no requests, the hold `Hold.STATE` is set. So the code that runs for each request
only tests whether any hold is set, which is a test of one integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class State(Enum):
    """The state of a connection. The value of each member is a description for the reference page."""

    OPEN = "Requests are handled in order."
    LAST_REQUEST = "The request being handled is the last one. When all answers are written the connection drains."
    CLIENT_GONE = (
        "The client sends no more. Requests that arrived completely are handled, but none waits for others; then the "
        "connection drains."
    )
    DRAINING = "No request is handled. The connection is closed when all written bytes have been sent, or is closing."
    ENDED = "The connection is closed and counted out, its answers are cancelled and its buffers given up."


class Event(Enum):
    """An event that changes the state of a connection. The value of each member says when the event happens."""

    LAST_REQUEST_TAKEN = "The request being handled is to be the last: a login was refused."
    CLIENT_LEFT = "The client sends no more, and a request or answer is left to handle or send."
    ALL_DONE = "No request is left to handle, and no pending answer would be sent."
    CLOSED = "The broker closes it: it stops, or the client breaks a rule or a limit. Or its transport is closed."
    LOST = "Its transport is closed, and no request is left to handle."


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
        Event.CLIENT_LEFT: State.LAST_REQUEST,  # no further request is handled anyway
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
"""The next state for each state and event."""


HANDLING: Final = frozenset({State.OPEN, State.CLIENT_GONE})
"""The states in which a connection handles requests."""


class Hold(IntEnum):
    """A reason why the next request is not handled now, as one bit."""

    EFFECTS = 1
    ANSWERS_FULL = 2
    TURN = 4
    LARGE_REQUEST = 8
    THROTTLE = 16
    MEMORY = 32
    STATE = 64


LIFTED_IN_TIME: Final = Hold.TURN | Hold.LARGE_REQUEST | Hold.THROTTLE
"""The holds (reasons to wait) that are removed after a time, whatever the client and the broker do."""

HOLD_MEANINGS: Final[Mapping[Hold, str]] = {
    Hold.EFFECTS: (
        "The effects of the previous request are not complete (T17). Lifted when they are complete, or when its "
        "response is ready."
    ),
    Hold.ANSWERS_FULL: (
        "Too many responses, or too many bytes of responses, have not been sent. Lifted when some of them have "
        "been sent."
    ),
    Hold.TURN: "Other work of the event loop comes first. Lifted in the next iteration of the event loop.",
    Hold.LARGE_REQUEST: (
        "The large request of this connection waits behind large requests of other connections. Lifted when it is "
        "the connection's turn."
    ),
    Hold.THROTTLE: "The client has exceeded a quota (KIP-219). Lifted after the throttle time.",
    Hold.MEMORY: (
        "Other connections use the memory that this connection needs. Lifted after a moment, when the connection "
        "requests the memory again."
    ),
    Hold.STATE: "In this state no requests are handled. Never lifted.",
}


class Lifecycle:
    """The state of one connection, and its holds (reasons not to handle the next request yet)."""

    __slots__ = ("holds", "state")

    def __init__(self) -> None:
        self.state = State.OPEN
        self.holds = 0
        """The bits of the holds (reasons to wait) that are set. If no bit is set, the next request is handled as soon
        as it arrives. Invariant: `Hold.STATE` is set if and only if `state` is not in HANDLING.
        """

    def __repr__(self) -> str:
        return f"Lifecycle({self.state.name}, {', '.join(hold.name for hold in Hold if self.holds & hold)})"

    def on(self, event: Event) -> None:
        """Change the state as the table of transitions says for this event."""
        self.state = TRANSITIONS[self.state][event]
        if self.state not in HANDLING:
            self.holds |= Hold.STATE

    def put(self, hold: Hold) -> None:
        """Set a hold (reason not to handle the next request); does nothing if the hold is already set."""
        self.holds |= hold

    def lift(self, hold: Hold) -> None:
        """Remove a hold (reason not to handle the next request); does nothing if the hold is not set."""
        self.holds &= ~hold
