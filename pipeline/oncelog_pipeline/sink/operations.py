"""The interface between the sink's steps and the cluster, and its errors.

The steps are coroutines that use only this interface. A test can therefore run them against a simulated cluster, and
stop, resume or kill any participant between two calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import Digest
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import Place, State, Written

NEW_CHECKPOINT: Final = "with the startingOffsets that oncelog pipeline state plan CHECKPOINT tells"
"""Part of error messages that says how to restart a query which cannot use its checkpoint."""


class SinkError(Exception):
    """A batch cannot be written now, or its commit cannot be decided now. No row of the batch is visible, unless the
    driver has decided to commit the batch.
    """


class TakenOver(SinkError):
    """A newer run of the query has taken over: this run writes and decides nothing more."""


class NotAllOpen(SinkError):
    """A task's transaction is no longer open, or has too little time left until its timeout: no commit was decided."""


class TooManyTasks(SinkError):
    """The decision about the batch would be larger than a record may be, so no commit was decided."""


class DecidedButAborted(SinkError):
    """The coordinator has aborted a transaction that the driver had decided to commit. The next start of the query
    writes the partitions of such
    transactions again.
    """


class NotRepairable(SinkError):
    """The replay of a batch whose commit was decided does not have the lost rows of the batch."""


class BatchDiffers(SinkError):
    """A replay has other rows than the batch whose commit was decided: none of the replay's rows was written."""


class StateLost(SinkError):
    """The query has written before, but its state cannot be found: the state topic was deleted, or the
    option `stateTopic` or `delivery` was changed."""


class SetBack(SinkError):
    """The checkpoint is older than the last decision: the batch was decided long ago, and these rows were not
    written."""


class Superseded(Exception):
    """Another process has become the query's owner, so the state was not written and will not be written later."""


class Owner(Protocol):
    """The producer of the query itself, which writes the state. A new owner fences the previous owner: a write of the
    previous owner is then either completed and visible, or will never be visible.
    """

    async def write(self, state: State | None) -> None:
        """Write the state and commit the offset of its record, in one transaction; None removes the query's state.
        Raises Superseded."""

    async def close(self) -> None: ...


class TaskProducer(Protocol):
    """Writes the rows of one task in one transaction, which has already begun. Closing the producer aborts the
    transaction unless it was prepared or committed.
    """

    @property
    def digest(self) -> Digest:
        """The digest of the rows that were sent so far."""

    async def prepare(self) -> Written | None:
        """Flush the rows, and return the transaction, which stays open; None if no row was written."""

    async def commit_with_marker(self, batch: int) -> None:
        """Commit the rows and a marker in one transaction; the marker says that the partition has written `batch`, and
        has the digest of the rows.
        """

    async def close(self) -> None: ...


class Marker(NamedTuple):
    """The number of the last batch that a partition has written with per-task delivery. `digest` is None if an older
    release wrote the marker.
    """

    batch: int
    digest: Digest | None = None


P_co = TypeVar("P_co", bound=TaskProducer, covariant=True)


class Cluster(Protocol[P_co]):
    """The cluster. The operations on the cluster. Each call retries until the cluster responds; an error fails the task
    or the commit.
    """

    async def read_state(self, query: Query) -> State | None:
        """Return the last written state of the query, including all writes of former owners; None before the first
        write.
        """

    async def has_had_state(self, query: Query) -> bool:
        """Return whether a state of the query was ever written, even if it was removed since; after pending writes and
        removals of the state have ended. This is known for offsets.retention.minutes (a week) after the last write.
        """

    async def own(self, query: Query) -> Owner:
        """Make this process the query's owner."""

    async def open_task(self, transactional_id: str) -> P_co:
        """Open a producer with this id, and begin a transaction; the coordinator aborts an open transaction of an older
        producer with this id.
        """

    def counting(self) -> Any:
        """Return a replacement for a task's producer. It accepts the rows of a replay, computes their `digest`, and
        writes nothing.
        """

    async def marker(self, transactional_id: str) -> Marker | None:
        """Return the last committed marker of this id; None if there is none. Raises StateLost if the marker is in
        another state topic.
        """

    async def has_committed(self, transactional_id: str) -> bool:
        """Return whether the coordinator says that the last transaction of this id was committed. Returns False if the
        coordinator no longer knows that, because a new producer with that id was started, or because
        transactional.id.expiration.ms (a week) has passed.
        """

    async def target(self, topic: str) -> str | None:
        """Return a text that identifies the topic's present content. The text changes if the topic is deleted and
        created again, or if records at its beginning are deleted. Returns None if the cluster cannot report such
        changes.
        """

    async def is_ongoing(self, transactional_id: str) -> bool:
        """Return whether a transaction with this id is open."""

    async def are_open(self, transactions: Sequence[PreparedTransaction], least_left: float) -> list[bool]:
        """Return for each transaction whether it is open and at least the share `least_left` (0 to 1) of its timeout is
        left.
        """

    async def keep(self, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction | None]:
        """Remove the timeout from these transactions, if the brokers have two-phase commit (KIP-939).

        Returns for each transaction the value to pass to `end`; None if the transaction is no longer open. Without
        two-phase commit, or without the right to use it, each transaction keeps its timeout.
        """

    async def end(self, transactions: Sequence[PreparedTransaction], *, commits: bool) -> list[bool]:
        """Commit or abort all these transactions. Returns for each transaction whether it was committed, or aborted, as
        wanted: by this call or earlier.
        """

    async def are_visible(self, places: Sequence[Place]) -> list[bool]:
        """Return for each record, whose transaction has ended, whether read_committed consumers see it. Raises an error
        if the log no longer has that offset.
        """

    async def ongoing(self, query: Query) -> list[str]:
        """Return the transactional ids of the query's tasks that have an open transaction."""

    async def fence(self, transactional_ids: Collection[str]) -> None:
        """Abort the open transactions with these ids."""

    async def pause(self, seconds: float) -> None:
        """Wait for about this many seconds, with random variation (jitter), so that waiting tasks do not all continue
        at the same moment.
        """
