"""docs/design/connection.md: the states, events and holds of a connection, and the diagram, drawn from the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from docs_site.reference.markdown import table
from oncelog_broker.server.net.connection_state import HANDLING, HOLD_MEANINGS, TRANSITIONS, Event, State

WIDTH: Final = 760
HEIGHT: Final = 380
BOX: Final = (150, 44)
"""Width and height of a state, in pixels."""
PLACES: Final = {
    State.OPEN: (110, 60),
    State.CLIENT_GONE: (380, 60),
    State.LAST_REQUEST: (110, 200),
    State.DRAINING: (380, 200),
    State.ENDED: (640, 330),
}
"""The centre of each state: only these positions are chosen by hand."""


class Edge(NamedTuple):
    """All transitions from one state to another."""

    start: State
    end: State
    events: list[Event]


def edges() -> Iterator[Edge]:
    """The transitions that change the state."""
    for start, after in TRANSITIONS.items():
        for end in State:
            events = [event for event in Event if after[event] is end]
            if events and end is not start:
                yield Edge(start, end, events)


def states() -> str:
    """The table of the states: a description of each, and the next state after each event."""
    head = ["State", "", *(f"`{event.name}`" for event in Event)]
    rows = [
        [f"`{state.name}`", state.value, *(_after(state, TRANSITIONS[state][event]) for event in Event)]
        for state in State
    ]
    return table(head, rows)


def _after(before: State, state: State) -> str:
    return "" if before is state else f"`{state.name}`"


def events() -> str:
    """The table of the events."""
    return table(["Event", "When"], [[f"`{event.name}`", event.value] for event in Event])


def holds() -> str:
    """The table of the holds."""
    return table(
        ["Hold", "Why the next request waits"], [[f"`{hold.name}`", text] for hold, text in HOLD_MEANINGS.items()]
    )


def diagram() -> str:
    """docs/images/connection.svg."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<title>The lifecycle of a connection</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#607d8b"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    lines += [line for edge in edges() for line in _drawn(edge)]
    for state, (x, y) in PLACES.items():
        width, height = BOX
        fill = "#b2dfdb" if state in HANDLING else "#eceff1"
        lines.append(
            f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="8" '
            f'fill="{fill}" stroke="#00796b"/>'
        )
        lines.append(f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-weight="600">{state.name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _drawn(edge: Edge) -> Iterator[str]:
    (x1, y1), (x2, y2) = _at_border(edge.start, edge.end), _at_border(edge.end, edge.start)
    yield f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#607d8b" marker-end="url(#tip)"/>'
    # Labels of edges that cross are placed near their start.
    x, y = x1 + (x2 - x1) * 2 // 5, y1 + (y2 - y1) * 2 // 5
    for number, event in enumerate(edge.events):
        yield (
            f'<text x="{x}" y="{y - 5 - 14 * (len(edge.events) - 1 - number)}" text-anchor="middle" fill="#37474f" '
            f'stroke="#ffffff" stroke-width="4" paint-order="stroke">{event.name}</text>'
        )


def _at_border(state: State, towards: State) -> tuple[int, int]:
    """Where a line to the other state leaves the box of this one."""
    (x, y), (other_x, other_y) = PLACES[state], PLACES[towards]
    dx, dy = other_x - x, other_y - y
    scale = min(BOX[0] / 2 / abs(dx) if dx else 99.0, BOX[1] / 2 / abs(dy) if dy else 99.0)
    return round(x + dx * scale), round(y + dy * scale)
