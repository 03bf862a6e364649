"""Sessions are limited in number and duration, and end with all of their resources."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oncelog_console.console import Console
from oncelog_console.limits import IDLE_SECONDS, MAX_SESSION_SECONDS, MAX_SESSIONS, MAX_SESSIONS_OF_USER
from oncelog_console.login.sessions import Session, Sessions


class FakeConsole:
    """Replaces the console; records whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def begun(sessions: Sessions, user: str, before: str | None = None) -> tuple[str, Session, Any]:
    token, session = await sessions.begin(user, before)
    console = FakeConsole()
    session.consoles["test"] = cast(Console, console)
    return token, session, console


async def test_a_session_is_known_by_its_token_alone(clock: Clock) -> None:
    sessions = Sessions(clock)
    token, session, console = await begun(sessions, "alice")
    assert len(token) > 40
    assert sessions.get(token) is session
    assert [sessions.get(other) for other in (None, "", token[:-1], "alice")] == [None] * 4
    await sessions.end(token)
    assert (sessions.get(token), console.is_closed) == (None, True)


async def test_a_further_login_of_the_same_user_gives_the_session_a_new_token(clock: Clock) -> None:
    sessions = Sessions(clock)
    first, session, console = await begun(sessions, "alice")
    second, again = await sessions.begin("alice", first)
    assert again is session
    assert (sessions.get(first), sessions.get(second)) == (None, session)
    third, other = await sessions.begin("bob", second)
    assert other is not session
    assert console.is_closed, "what was alice's ends when bob logs in"
    assert (sessions.get(second), sessions.get(third)) == (None, other)


@pytest.mark.parametrize(("seconds", "step"), [(IDLE_SECONDS, IDLE_SECONDS), (MAX_SESSION_SECONDS, IDLE_SECONDS / 2)])
async def test_a_session_ends_in_time(clock: Clock, seconds: float, step: float) -> None:
    sessions = Sessions(clock)
    token, session, console = await begun(sessions, "alice")
    while clock.now + step <= seconds:
        clock.now += step
        assert sessions.get(token) is session
    clock.now += step + 1
    assert sessions.get(token) is None
    await sessions.sweep()
    assert (len(sessions), console.is_closed) == (0, True)


async def test_there_are_few_sessions_and_those_in_use_stay(clock: Clock) -> None:
    sessions = Sessions(clock)
    kept, _, of_kept = await begun(sessions, "alice")
    others = [await begun(sessions, f"user-{number}") for number in range(MAX_SESSIONS - 1)]
    assert sessions.get(kept)
    await begun(sessions, "one more")
    assert len(sessions) == MAX_SESSIONS
    assert (of_kept.is_closed, others[0][2].is_closed) == (False, True), "the one that was not used for longest ends"


async def test_a_user_has_few_sessions(clock: Clock) -> None:
    sessions = Sessions(clock)
    other, _, _ = await begun(sessions, "bob")
    mine = [await begun(sessions, "alice") for _ in range(MAX_SESSIONS_OF_USER + 2)]
    assert [console.is_closed for _, _, console in mine] == [True, True] + [False] * MAX_SESSIONS_OF_USER
    assert sessions.get(other)
    await sessions.close()
    assert all(console.is_closed for _, _, console in mine)
