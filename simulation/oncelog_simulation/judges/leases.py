"""A broker whose session with the metadata store has expired must not act as leader.

The reason: the controller may have elected another leader since the session expired. Only sessions that expire by their
timeout count: a broker cannot foresee that a fault ends its session, or that the store is restored from a backup. In a
restored store, a session that had expired may be alive again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog_simulation.judges.running import running

if TYPE_CHECKING:
    from oncelog_simulation.world import World

EXPIRED: Final = "expired"
"""The reason that the metadata store gives when it expires a session from which it got no packet in time."""


class Leases:
    """Compares the brokers' leases with the sessions of the metadata store."""

    name = "leases"

    def __init__(self, world: World) -> None:
        self._expired: set[int] = set()
        """The sessions that have expired."""
        self._told: set[int] = set()
        others = world.store.on_ended

        def on_ended(session_id: int, why: str) -> None:
            if why == EXPIRED:
                self._expired.add(session_id)
            if others is not None:
                others(session_id, why)

        world.store.on_ended = on_ended

    def look_closely(self, world: World) -> Iterable[str]:
        """Yield the brokers that act as leaders although their sessions have expired."""
        wrong = []
        for broker in running(world):
            session_id = broker.parts.storage.store.session_id
            has_expired = session_id in self._expired and session_id not in world.store.sessions
            if session_id in self._told or not has_expired or not broker.machine.is_serving:
                continue
            if broker.parts.membership.member.may_lead():
                self._told.add(session_id)
                wrong.append(f"broker {broker.number} may lead although its session has expired")
        return wrong

    async def conclude(self, world: World) -> Iterable[str]:
        return ()
