"""All open connections: each admitted connection is counted once, and all are drained at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.limits import Limits

HOST = "10.0.0.1"


@pytest.fixture
def connections() -> Connections:
    return Connections(Limits(2, 2, 1 << 20, -1, -1, 600.0), LoopBudget(lambda: 0.0))


def test_limits_count_exactly_the_connections_that_are_open(connections: Connections) -> None:
    first, second, third = (object() for _ in range(3))
    made: list[Any] = [first, second, third]
    assert [connections.admit(each, HOST) for each in made] == [None, None, "max.connections=2 reached"]
    assert (len(connections), connections.limits.connections, set(connections)) == (2, 2, {first, second})
    connections.release(made[2], HOST)
    connections.release(made[0], HOST)
    connections.release(made[0], HOST)
    assert (len(connections), connections.limits.connections) == (1, 1)


async def test_draining_ends_with_the_last_connection(connections: Connections) -> None:
    await connections.drained(0.0)
    connection: Any = object()
    connections.admit(connection, HOST)
    waiting = asyncio.ensure_future(connections.drained(600.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    connections.release(connection, HOST)
    await waiting
    connections.admit(connection, HOST)
    await connections.drained(0.001)
    assert len(connections) == 1, "nobody waits longer than that"


async def test_no_connection_is_refused_without_rate_limits(connections: Connections) -> None:
    assert not connections.refuse_if_over_rate(None, HOST, "PLAINTEXT")  # type: ignore[arg-type]
