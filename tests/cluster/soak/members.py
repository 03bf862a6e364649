"""A group whose members come and go."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping

from recording_members import POLL_SECONDS, LibrdkafkaMember, Member, OncelogMember

from oncelog.errors import ConnectionFailed
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History
from soak.progress import Progress

PAUSE_SECONDS = (4.0, 12.0)
MOST = 3


class Noting(Member):
    """A member whose reading counts as progress of the entire group."""

    progress: Progress

    def note(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        super().note(place, records)
        self.progress.note(self.group)

    def perhaps_committed(self, commits: list[object]) -> None:  # type: ignore[override]
        super().perhaps_committed(commits)  # type: ignore[arg-type]
        self.progress.mishap(self.group, "a commit failed")


class OurNotingMember(Noting, OncelogMember):
    async def _read_all(self) -> None:
        """A client that starts while no broker is reachable gets an error immediately, so the start is repeated."""
        while not self.is_over:
            try:
                return await super()._read_all()
            except ConnectionFailed:
                self.progress.mishap(self.group, "oncelog: started while there was no broker")
                self.forget()
                await asyncio.sleep(POLL_SECONDS)
        return None


class LibrdkafkaNotingMember(Noting, LibrdkafkaMember):
    pass


MEMBERS: Mapping[str, type[Noting]] = {"oncelog": OurNotingMember, "librdkafka": LibrdkafkaNotingMember}


class Group:
    """A group that always has at least one member."""

    def __init__(self, name: str, addresses: str, topic: str, history: History, progress: Progress, seed: int) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._addresses = addresses
        self._topic = topic
        self._history = history
        self._progress = progress
        self._rng = random.Random(f"{seed} {name}")
        self._members: list[Noting] = []
        self._made = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)

    def start(self) -> None:
        self._progress.begins(self.name)
        self._come()
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)
        self._progress.over(self.name)
        while self._members:
            self._go()

    def _work(self) -> None:
        try:
            while not self._is_over.wait(self._rng.uniform(*PAUSE_SECONDS)):
                comes = self._rng.random() < 0.5
                if len(self._members) == 1 or (comes and len(self._members) < MOST):
                    self._come()
                else:
                    self._go()
        except BaseException as error:
            self.failure = error

    def _come(self) -> None:
        library = self._rng.choice(sorted(MEMBERS))
        self._made += 1
        instance = f"static-{self._made}" if self._rng.random() < 0.3 else None
        name = f"{self.name}-{self._made}-{library}"
        member = MEMBERS[library](self._addresses, self._history, name, self.name, self._topic, instance)
        member.progress = self._progress
        member.__enter__()
        self._members.append(member)

    def _go(self) -> None:
        member = self._members.pop(self._rng.randrange(len(self._members)))
        member.__exit__()
