"""What the steps of the sink ask of the cluster, and what may go wrong.

The steps are coroutines over these and nothing else, so that a test can play them against a cluster of its own, with
whoever takes part stopped, woken or killed between any two of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import Digest
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import Place, State, Written

NEW_CHECKPOINT: Final = "with the startingOffsets that oncelog pipeline state plan CHECKPOINT tells"
"""How a query goes on where its checkpoint cannot."""


class SinkError(Exception):
    """A batch cannot be written or decided now; nothing of it is visible that is not decided."""


class TakenOver(SinkError):
    """A newer run of the query has taken over: this one writes and decides nothing more."""


class NotAllOpen(SinkError):
    """A task's transaction is not open any more, or not for long: nothing was decided."""


class TooManyTasks(SinkError):
    """The decision about the batch is larger than a record may be: nothing was decided."""


class DecidedButAborted(SinkError):
    """The coordinator has aborted what was decided. The next start of the query writes those partitions again."""


class NotRepairable(SinkError):
    """What was lost of a decided batch is not what the replay brings."""


class BatchDiffers(SinkError):
    """A replay of a decided batch brings other rows than were decided: none of them was written."""


class StateLost(SinkError):
    """The query has written before, and what it has decided cannot be found: another state topic, another delivery."""


class SetBack(SinkError):
    """The checkpoint is older than the last decision: the batch is long over, and what it brings was not written."""


class Superseded(Exception):
    """Somebody has become the query's owner since: the state was not written, and will not be."""


class Owner(Protocol):
    """The query's own producer. Who becomes owner fences the one before: of a write of that one it is certain from then
    on that it was done, and shows, or never will be."""

    async def write(self, state: State | None) -> None:
        """The record, and where it is, in one transaction; None removes the query's state. Raises Superseded."""

    async def close(self) -> None: ...


class TaskProducer(Protocol):
    """Writes the rows of one task in one transaction, which is begun. What is neither prepared nor committed when it is
    closed is aborted."""

    @property
    def digest(self) -> Digest:
        """Of the rows that were sent so far."""

    async def prepare(self) -> Written | None:
        """Flush, and hand the transaction over, open; None where there were no rows."""

    async def commit_with_marker(self, batch: int) -> None:
        """Commit the rows, and with them the marker: that the partition has written `batch`, and their digest."""

    async def close(self) -> None: ...


class Marker(NamedTuple):
    """What a partition has written last, where each task writes by itself. No `digest`: an older release wrote it."""

    batch: int
    digest: Digest | None = None


P_co = TypeVar("P_co", bound=TaskProducer, covariant=True)


class Cluster(Protocol[P_co]):
    """Each call is asked again until it is answered; what it raises then fails the task, or the commit."""

    async def read_state(self, query: Query) -> State | None:
        """The last one written, all writes of former owners included; None before the first."""

    async def own(self, query: Query) -> Owner:
        """Become the query's owner."""

    async def open_task(self, transactional_id: str) -> P_co:
        """A producer with this id; what an older one with it has open is aborted. A transaction is begun."""

    def counting(self) -> Any:
        """In the place of a task's producer: takes the rows of a replay, writes nothing, and has their `digest`."""

    async def marker(self, transactional_id: str) -> Marker | None:
        """Return the marker that was committed last under this id; None if there is none. Raises StateLost if it is in
        another state topic."""

    async def has_committed(self, transactional_id: str) -> bool:
        """Whether the coordinator says that the last transaction under this id was committed. False if it does not know
        that any more: after the next producer with that id, or after transactional.id.expiration.ms (a week) without
        one."""

    async def target(self, topic: str) -> str | None:
        """Return a text that changes if the topic is deleted and created again, or if records at its beginning are
        deleted; None if the cluster cannot tell."""

    async def is_ongoing(self, transactional_id: str) -> bool:
        """Whether a transaction with this id is open."""

    async def are_open(self, transactions: Sequence[PreparedTransaction], least_left: float) -> list[bool]:
        """Return for each transaction whether it is open, with at least this share of its timeout left."""

    async def keep(self, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction | None]:
        """Take the timeout from these transactions, if the brokers have two-phase commit (KIP-939).

        Returns for each what `end` needs from now on; None if it is not open any more. Where the brokers do not offer
        it, or this client lacks a right for it, each stays as it is, with its timeout.
        """

    async def end(self, transactions: Sequence[PreparedTransaction], *, commits: bool) -> list[bool]:
        """Commit or abort all of them. Returns for each whether it has ended that way, now or before."""

    async def are_visible(self, places: Sequence[Place]) -> list[bool]:
        """Return for each record, whose transaction has ended, whether read_committed readers see it. Raises if the log
        does not go back that far."""

    async def ongoing(self, query: Query) -> list[str]:
        """Return the transactional ids of the query's tasks that have an open transaction."""

    async def fence(self, transactional_ids: Collection[str]) -> None:
        """Abort the open transactions of these ids."""

    async def pause(self, seconds: float) -> None:
        """Wait about this long, with jitter, so that several waiting tasks do not go on at the same moment."""
