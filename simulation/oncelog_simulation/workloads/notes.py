"""The notes of all clients of one run: their history, the topics that are judged at the end, and their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_testing.history.events import NOT_YET, Place, Send, Transaction
from oncelog_testing.history.recorder import History

if TYPE_CHECKING:
    from oncelog_simulation.world import World

PATIENCE_MS: Final = 60_000
"""Virtual milliseconds for which a client retries one call; this is longer than any single fault lasts."""
NO_LIMIT: Final = 2**63 - 1
"""Stands for the largest high watermark in a run without the judge `committed`."""


class TimedHistory(History):
    """A history that also stores the virtual seconds at which records were sent and acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: Callable[[], float] = float
        """A function that returns the virtual seconds; it is set when the world exists."""
        self.sent: dict[Send, float] = {}
        self.answered: dict[Send, float] = {}
        self.on_acknowledged: Callable[[Place, int], None] = lambda place, offset: None
        """A function that is called with the partition and the offset of each record as soon as a client has got its
        acknowledgement; the judge `committed` sets it.
        """
        self.exposed: Callable[[Place], int] = lambda place: NO_LIMIT
        """A function that returns the largest high watermark that any replica of a partition has had so far; the judge
        `committed` sets it.
        """

    def send(self, producer: str, place: Place | str, value: bytes, transaction: Transaction | None = None) -> Send:
        send = super().send(producer, place, value, transaction)
        self.sent[send] = self.clock()
        return send

    def acknowledged(self, send: Send, offset: int = NOT_YET, partition: int | None = None) -> None:
        super().acknowledged(send, offset, partition)
        self.answered[send] = self.clock()
        self.on_acknowledged(send.place, offset)

    def failed(self, send: Send) -> None:
        super().failed(send)
        self.answered[send] = self.clock()


class Holder(NamedTuple):
    """The member of a share group that has acquired a record, according to the leader of the record's partition."""

    member_id: str
    leader_epoch: int
    since: float
    """When the judge first saw that the member had the record, in virtual seconds."""


class Owner(NamedTuple):
    """The group member to which a partition was assigned."""

    name: str
    """The name of the client, with the number of its start and the number of its stay in the group."""
    epoch: int
    """The generation or member epoch in which the member got the partition."""


class Notes:
    """The notes that the workloads and the judges of one run share."""

    def __init__(self) -> None:
        self.history = TimedHistory()
        self.topics: dict[str, int] = {}
        """Topics whose entire content the judge reads at the end, with their numbers of partitions."""
        self.trimmed: dict[Place, int] = {}
        """For each partition whose records were deleted on purpose, the largest offset that an administrator requested.
        Records below this offset may or may not exist.
        """
        self.passing: set[Place] = set()
        """Partitions whose oldest records may be deleted at any time."""
        self.careless: dict[str, int] = {}
        """Topics that may lose committed records by unclean elections, with their numbers of partitions."""
        self.tables: dict[str, dict[bytes, set[bytes | None]]] = {}
        """For each writer of the compacted topic, the values that each of its keys may have at the end; None means no
        value.
        """
        self.deleted: set[bytes] = set()
        """Keys of the compacted topic whose last record is a tombstone that must not be removed yet."""
        self.groups: dict[str, list[Place]] = {}
        """For each group whose members process records exactly once, the partitions that it reads; `history.derived`
        records the outputs.
        """
        self.acceptances: set[tuple[Place, bytes]] = set()
        """Partition and value of each record for which a member of the share group has sent an acceptance, even if the
        broker did not receive it.
        """
        self.confirmed: dict[tuple[Place, bytes], int] = {}
        """Number of acceptances of a record that the broker has confirmed, by the record's partition and value."""
        self.holders: dict[tuple[Place, int], Holder] = {}
        """The member of the share group that acquired a record last, by the record's partition and offset."""
        self.share_starts: dict[Place, int] = {}
        """For each partition, the share group's largest start offset (SPSO) so far: the group has finished all records
        below it.
        """
        self.owners: dict[tuple[str, Place], Owner] = {}
        """The member that got each partition last (with the highest epoch), by group and partition."""
        self.streams_tasks: dict[str, frozenset[tuple[str, int]]] = {}
        """For each present member of the streams group, the active tasks (subtopology and partition) of its last
        response.
        """
        self.streams_holders: dict[tuple[tuple[str, int], int], str] = {}
        """The member of the streams group that got an active task in an epoch, by task and epoch."""
        self.streams_offsets: dict[Place, int] = {}
        """The largest offset of each source partition that any member of the streams group has sent in a commit."""
        self.progress: dict[str, int] = {}
        """The number of steps of each client."""
        self.may_hang = False
        """Whether a power cut has destroyed the state of a transaction coordinator, so that transactions that the
        coordinator should end may stay open forever.
        """
        self.complaints: list[str] = []
        """Violations that workloads have found themselves; a judge reports them."""

    def times(self, send: Send) -> tuple[float | None, float | None]:
        """Return the virtual seconds at which a record was sent and at which it was acknowledged; None if that did not
        happen.
        """
        return self.history.sent.get(send), self.history.answered.get(send)

    def places(self, *topics: str) -> list[Place]:
        """Return all partitions of these topics, by default of all judged topics."""
        return [Place(topic, index) for topic in topics or self.topics for index in range(self.topics[topic])]

    def step(self, client: str) -> None:
        """Record that a client has completed one of its intended steps."""
        self.progress[client] = self.progress.get(client, 0) + 1

    def steps(self, client: str) -> int:
        """Return the number of steps of a client."""
        return self.progress.get(client, 0)

    def complain(self, world: World, client: str, what: str) -> None:
        """Record that a client got a response that no broker may send."""
        world.note(client, f"complains: {what}")
        self.complaints.append(f"{client}: {what}")
