"""What the clients of one run note: their history, the topics that are judged in the end, and who made progress when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

if TYPE_CHECKING:
    from oncelog_simulation.world import World

PATIENCE_MS: Final = 60_000
"""How long a client tries one call, in virtual milliseconds: longer than any single fault lasts."""


class Notes:
    """Shared by the workloads and the judges of one run."""

    def __init__(self) -> None:
        self.history = History()
        self.topics: dict[str, int] = {}
        """Topics whose whole content the judge reads in the end, with their number of partitions."""
        self.trimmed: dict[Place, int] = {}
        """Of partitions of which records were deleted on purpose: the largest offset that an administrator asked for.
        Records below it may be there or not."""
        self.tables: dict[str, dict[bytes, set[bytes | None]]] = {}
        """By writer of the compacted topic: what each of its keys may hold in the end; None stands for nothing."""
        self.groups: dict[str, list[Place]] = {}
        """Groups that process each record of these partitions once, by `history.derived`."""
        self.progress: dict[str, int] = {}
        """By client: how many steps it has done."""
        self.complaints: list[str] = []
        """What workloads found wrong by themselves; a judge reports it."""
        self.checks: list[Callable[[], list[str]]] = []
        """Questions that workloads have the judge ask when all is read, each answered with what is wrong."""

    def places(self, *topics: str) -> list[Place]:
        """All partitions of these topics, of all judged topics by default."""
        return [Place(topic, index) for topic in topics or self.topics for index in range(self.topics[topic])]

    def step(self, client: str) -> None:
        """A client has done something that it was meant to do."""
        self.progress[client] = self.progress.get(client, 0) + 1

    def steps(self, client: str) -> int:
        """How many steps a client has done."""
        return self.progress.get(client, 0)

    def complain(self, world: World, client: str, what: str) -> None:
        """A client was answered what no broker may answer."""
        world.note(client, f"complains: {what}")
        self.complaints.append(f"{client}: {what}")
