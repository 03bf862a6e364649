"""The sweep over all connections does not block the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.hosts import host_of

from oncelog_broker.server.dispatch.listener import SWEPT_PER_TURN, Listeners


class Swept:
    def __init__(self, turns: list[int], turn: list[int]) -> None:
        self._turns, self._turn = turns, turn

    def sweep(self, now: float) -> None:
        self._turns.append(self._turn[0])


async def test_s87_a_sweep_looks_at_some_connections_in_each_turn() -> None:
    turns: list[int] = []
    turn = [0]
    connections: Any = [Swept(turns, turn) for _ in range(3 * SWEPT_PER_TURN + 1)]
    network: Any = None
    sweeping = asyncio.ensure_future(Listeners(host_of(network=network), connections).sweep())
    while not sweeping.done():
        turn[0] += 1
        await asyncio.sleep(0)
    await sweeping
    assert len(turns) == len(connections)
    assert max(turns.count(each) for each in turns) == SWEPT_PER_TURN
