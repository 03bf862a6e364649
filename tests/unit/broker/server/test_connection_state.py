"""Tests each row of the state table of a connection's lifecycle, and the reasons for which reading pauses (holds)."""

import pytest

from oncelog_broker.server.net.connection_state import (
    HANDLING,
    HOLD_MEANINGS,
    LIFTED_IN_TIME,
    TRANSITIONS,
    Event,
    Hold,
    Lifecycle,
    State,
)

O, LR, CG, D, E = State.OPEN, State.LAST_REQUEST, State.CLIENT_GONE, State.DRAINING, State.ENDED  # noqa: E741

ROWS = {
    #    events of the columns: LAST_REQUEST_TAKEN, CLIENT_LEFT, ALL_DONE, CLOSED, LOST
    O: (LR, CG, O, D, E),
    LR: (LR, LR, D, D, E),
    CG: (LR, CG, D, D, E),
    D: (D, D, D, D, E),
    E: (E, E, E, E, E),
}


def in_state(state: State) -> Lifecycle:
    """Return a lifecycle that events have brought into this state."""
    way = {O: (), LR: (Event.LAST_REQUEST_TAKEN,), CG: (Event.CLIENT_LEFT,), D: (Event.CLOSED,), E: (Event.LOST,)}
    lifecycle = Lifecycle()
    for event in way[state]:
        lifecycle.on(event)
    assert lifecycle.state is state
    return lifecycle


@pytest.mark.parametrize("state", State)
def test_each_row_of_the_state_table_holds(state: State) -> None:
    for event, expected in zip(Event, ROWS[state], strict=True):
        lifecycle = in_state(state)
        lifecycle.on(event)
        assert lifecycle.state is expected, (state, event)


def test_the_table_has_every_state_and_event() -> None:
    assert {state: set(after) for state, after in TRANSITIONS.items()} == {state: set(Event) for state in State}


def test_no_request_is_handled_after_a_final_state() -> None:
    """After a refused login or a closed connection, no event leads back to a state in which requests are handled."""
    for state in set(State) - HANDLING:
        assert not HANDLING & set(TRANSITIONS[state].values()), state


def test_every_state_ends_when_the_transport_is_lost() -> None:
    assert {after[Event.LOST] for after in TRANSITIONS.values()} == {State.ENDED}


@pytest.mark.parametrize("state", State)
def test_the_state_is_a_hold_where_it_handles_nothing(state: State) -> None:
    lifecycle = in_state(state)
    assert lifecycle.holds == (0 if state in HANDLING else Hold.STATE)
    for event in Event:
        lifecycle.on(event)
        assert bool(lifecycle.holds & Hold.STATE) == (lifecycle.state not in HANDLING)


@pytest.mark.parametrize("hold", set(Hold) - {Hold.STATE})
def test_each_single_hold_delays_the_next_request(hold: Hold) -> None:
    lifecycle = Lifecycle()
    lifecycle.put(hold)
    assert lifecycle.holds
    assert hold.name in repr(lifecycle)
    lifecycle.lift(hold)
    assert not lifecycle.holds


def test_a_lifted_hold_leaves_the_other_holds() -> None:
    lifecycle = Lifecycle()
    lifecycle.put(Hold.THROTTLE)
    lifecycle.put(Hold.LARGE_REQUEST)
    lifecycle.put(Hold.THROTTLE)
    lifecycle.lift(Hold.THROTTLE)
    lifecycle.lift(Hold.TURN)
    assert lifecycle.holds == Hold.LARGE_REQUEST


def test_each_hold_is_one_bit_and_has_its_meaning() -> None:
    assert [hold.bit_count() for hold in Hold] == [1] * len(Hold)
    assert sum(Hold) == (1 << len(Hold)) - 1
    assert HOLD_MEANINGS.keys() == set(Hold)
    assert LIFTED_IN_TIME & Hold.EFFECTS == 0
