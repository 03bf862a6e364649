"""The parts that all machines of a world share: loop, network, metadata store, timeline, and the random generators of
the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncelog_simulation.ensemble import Ensemble
from oncelog_simulation.entropy import stream
from oncelog_simulation.loop import SimulatedLoop
from oncelog_simulation.network import Fabric
from oncelog_simulation.timeline import Timeline


class Surroundings:
    """The parts of a world that all machines share."""

    make_loop: Callable[[Random], SimulatedLoop] = SimulatedLoop
    """Creates the loop; a world that measures has a loop of its own (`scale.metered_loop`)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, Random] = {}
        self._processes = 0
        self.power_cuts = 0
        """How often any machine of this world has lost its power."""
        self.loop = self.make_loop(self.random("turns"))
        self.timeline = Timeline(lambda: self.loop.now)
        self.network = Fabric(self.loop, self.random("network"))
        self.network.place(self.loop.director, self.network.add_host("director", "10.0.8.1"))
        self.store = Ensemble(self.loop, self.network, self.random("store"))
        self.store.on_ended = self._note_end_of_session

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.loop.now

    def random(self, purpose: str) -> Random:
        """Return the random generator of this purpose; repeated calls return the same generator."""
        found = self._streams.get(purpose)
        if found is None:
            found = self._streams[purpose] = stream(self._seed, purpose)
        return found

    def next_process_number(self) -> int:
        """Return a number for a new process."""
        self._processes += 1
        return self._processes

    def note(self, actor: str, what: str, **details: object) -> None:
        """Add a line to the timeline."""
        self.timeline.note(actor, what, **details)

    def end(self) -> None:
        """Release all objects of the world."""
        self.network.forget()
        self.store.forget()
        self.loop.end()

    def _note_end_of_session(self, session_id: int, why: str) -> None:
        self.note("store", "a session is over", session=session_id, why=why)
