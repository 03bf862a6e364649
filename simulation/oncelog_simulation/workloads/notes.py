"""The notes of the clients of one run: their history, the topics that are judged at the end, and their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from oncelog_testing.history.events import NOT_YET, Place, Send, Transaction
from oncelog_testing.history.recorder import History

if TYPE_CHECKING:
    from oncelog_simulation.world import World

PATIENCE_MS: Final = 60_000
"""How long a client tries one call, in virtual milliseconds: longer than any single fault lasts."""


class TimedHistory(History):
    """A history that also knows, in virtual seconds, when records were sent and answered."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: Callable[[], float] = float
        """Virtual seconds; set when the world exists."""
        self.sent: dict[Send, float] = {}
        self.answered: dict[Send, float] = {}

    def send(self, producer: str, place: Place | str, value: bytes, transaction: Transaction | None = None) -> Send:
        send = super().send(producer, place, value, transaction)
        self.sent[send] = self.clock()
        return send

    def acknowledged(self, send: Send, offset: int = NOT_YET, partition: int | None = None) -> None:
        super().acknowledged(send, offset, partition)
        self.answered[send] = self.clock()

    def failed(self, send: Send) -> None:
        super().failed(send)
        self.answered[send] = self.clock()


class Notes:
    """Shared by the workloads and the judges of one run."""

    def __init__(self) -> None:
        self.history = TimedHistory()
        self.topics: dict[str, int] = {}
        """Topics whose whole content the judge reads in the end, with their number of partitions."""
        self.trimmed: dict[Place, int] = {}
        """Partition whose records were deleted on purpose -> the largest offset that an administrator asked for.
        Records below it may be there or not."""
        self.passing: set[Place] = set()
        """Partitions whose oldest records may be deleted at any time."""
        self.tables: dict[str, dict[bytes, set[bytes | None]]] = {}
        """By writer of the compacted topic: the values that each of its keys may have at the end; None means no
        value."""
        self.groups: dict[str, list[Place]] = {}
        """Groups that process each record of these partitions once, by `history.derived`."""
        self.acceptances: set[tuple[Place, bytes]] = set()
        """Values of records that a member of the share group has accepted, whether the acceptance arrived or not."""
        self.confirmed: dict[tuple[Place, bytes], int] = {}
        """Values of records -> how many acceptances were confirmed."""
        self.progress: dict[str, int] = {}
        """Client -> the number of steps it has done."""
        self.may_hang = False
        """A power cut destroyed a coordinator's state: transactions that it should end may stay open for ever."""
        self.complaints: list[str] = []
        """Violations that workloads found themselves; a judge reports them."""

    def times(self, send: Send) -> tuple[float | None, float | None]:
        """When a record was sent, and when it was answered, in virtual seconds; None where it was not."""
        return self.history.sent.get(send), self.history.answered.get(send)

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
        """A client got an answer that no broker may give."""
        world.note(client, f"complains: {what}")
        self.complaints.append(f"{client}: {what}")
