"""The interface between the sink's steps and the cluster, and its errors.

The steps are coroutines that use only this interface, so a test can run them against a simulated cluster, and stop,
resume or kill any participant between any two calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import Digest
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import Place, State, Written

NEW_CHECKPOINT: Final = "with the startingOffsets that oncelog pipeline state plan CHECKPOINT tells"
"""How to restart a query that cannot use its checkpoint."""


class SinkError(Exception):
    """A batch cannot be written or decided now. No row is visible unless the batch was decided."""


class TakenOver(SinkError):
    """A newer run of the query has taken over: this one writes and decides nothing more."""


class NotAllOpen(SinkError):
    """A task's transaction is no longer open, or not for long: nothing was decided."""


class TooManyTasks(SinkError):
    """The decision about the batch is larger than a record may be: nothing was decided."""


class DecidedButAborted(SinkError):
    """The coordinator has aborted a decided transaction. The next start of the query writes those partitions again."""


class NotRepairable(SinkError):
    """The replay does not have the rows that were lost of a decided batch."""


class BatchDiffers(SinkError):
    """A replay of a decided batch has other rows than the decided ones: none of them was written."""


class StateLost(SinkError):
    """The query has written before, but its state cannot be found: the state topic was deleted, or the
    option `stateTopic` or `delivery` was changed."""


class SetBack(SinkError):
    """The checkpoint is older than the last decision: the batch was decided long ago, and these rows were not
    written."""


class Superseded(Exception):
    """Another process has become the query's owner: the state was not written, and will not be."""


class Owner(Protocol):
    """The query's own producer. A new owner fences the previous one: a write of the previous owner then is either done
    and visible, or will never be."""

    async def write(self, state: State | None) -> None:
        """Write the state and the offset of its record, in one transaction; None removes the query's state. Raises
        Superseded."""

    async def close(self) -> None: ...


class TaskProducer(Protocol):
    """Writes the rows of one task in one transaction, already begun. Closing aborts it unless it was prepared or
    committed."""

    @property
    def digest(self) -> Digest:
        """Digest of the rows sent so far."""

    async def prepare(self) -> Written | None:
        """Flush, and return the open transaction; None if no row was written."""

    async def commit_with_marker(self, batch: int) -> None:
        """Commit the rows, and with them the marker: that the partition has written `batch`, and their digest."""

    async def close(self) -> None: ...


class Marker(NamedTuple):
    """The last batch that a partition has written with per-task delivery. No `digest` if an older release wrote it."""

    batch: int
    digest: Digest | None = None


P_co = TypeVar("P_co", bound=TaskProducer, covariant=True)


class Cluster(Protocol[P_co]):
    """The cluster. Each call retries until it is answered; an error fails the task, or the commit."""

    async def read_state(self, query: Query) -> State | None:
        """The last one written, all writes of former owners included; None before the first."""

    async def own(self, query: Query) -> Owner:
        """Become the query's owner."""

    async def open_task(self, transactional_id: str) -> P_co:
        """Open a producer with this id, and begin a transaction; an open transaction of an older producer with this id
        is aborted."""

    def counting(self) -> Any:
        """Replaces a task's producer: accepts the rows of a replay, writes nothing, and has their `digest`."""

    async def marker(self, transactional_id: str) -> Marker | None:
        """Return the marker that was committed last under this id; None if there is none. Raises StateLost if it is in
        another state topic."""

    async def has_committed(self, transactional_id: str) -> bool:
        """Whether the coordinator says that the last transaction under this id was committed. False if the broker no
        longer knows that: after the next producer with that id, or after transactional.id.expiration.ms (a week)
        without one."""

    async def target(self, topic: str) -> str | None:
        """Return a text that changes if the topic is deleted and created again, or if records at its beginning are
        deleted; None if the cluster cannot tell."""

    async def is_ongoing(self, transactional_id: str) -> bool:
        """Whether a transaction with this id is open."""

    async def are_open(self, transactions: Sequence[PreparedTransaction], least_left: float) -> list[bool]:
        """Return for each transaction whether it is open, with at least this share of its timeout left."""

    async def keep(self, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction | None]:
        """Take the timeout from these transactions, if the brokers have two-phase commit (KIP-939).

        Returns for each the value to pass to `end`; None if it is no longer open. Without two-phase commit, or without
        the right to it, each transaction keeps its timeout.
        """

    async def end(self, transactions: Sequence[PreparedTransaction], *, commits: bool) -> list[bool]:
        """Commit or abort all these transactions. Returns for each whether it has ended that way, now or before."""

    async def are_visible(self, places: Sequence[Place]) -> list[bool]:
        """Return for each record, whose transaction has ended, whether read_committed readers see it. Raises if the log
        does not go back that far."""

    async def ongoing(self, query: Query) -> list[str]:
        """Return the transactional ids of the query's tasks that have an open transaction."""

    async def fence(self, transactional_ids: Collection[str]) -> None:
        """Abort the open transactions of these ids."""

    async def pause(self, seconds: float) -> None:
        """Wait about this long, with jitter, so that several waiting tasks do not continue at the same moment."""
