"""The state of a query, which is its last decision, and the message of a task to its driver. Pure.

Each decision of a query is one record in a compacted topic, with the query's id as the key. The record's value is JSON:

    {"version": 1, "run": RUN, "batch": N, "txns": [{"id", "pid", "epoch", "v2", "part"}], "lost": [PART],
     "former": [RUN]}

Each item of txns also has the position of its first record, "at": [TOPIC, PARTITION, OFFSET], and the digest of its
rows, "digest": [ROWS, TOTAL]. The state also has "digest", the digest of all rows of the batch, and "lost_digests":
[[PART, ROWS, TOTAL]], the digests of the lost partitions as far as they are known. If an operator allows a replay of
the batch to have other rows, the state has "may_differ": true. States without these fields were written by an older
release, and their batches are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import NOTHING, Digest
from oncelog_pipeline.sink.names import Query, short

VERSION: Final = 1
NO_BATCH: Final = -1
MAX_BYTES: Final = 1_000_000
"""Maximum size of a state in bytes, enough for some 6,000 tasks: brokers accept records up to message.max.bytes, by
default 1,048,588.
"""
KEPT_BATCHES: Final = 20
"""The state keeps the digests of this many earlier batches, with which a replay can be compared."""
FORMER_RUNS: Final = 20
"""The state lists at most this many earlier runs as ended. Open transactions of runs that are no longer listed end by
their timeout.
"""


class UnreadableState(ValueError):
    """The state of a query cannot be read, because a newer version or another program has written it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, as a certain run of a query writes it. `run` is the full id of the run; `number` is Spark's batch id."""

    query: Query
    run: str
    number: int

    def __str__(self) -> str:
        return f"query {self.query.name}, run {short(self.run)}, batch {self.number}"


class Place(NamedTuple):
    """Topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int


class Written(NamedTuple):
    """The open transaction of a task, and the position of its first record. If that record is visible to read_committed
    readers later, the transaction was committed.
    """

    transaction: PreparedTransaction
    first: Place


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """The message of a task to the driver.

    `written` is None if the task had no rows, or if its rows were already written and decided. `digest` covers all rows
    of the task, written or not; None means that the rows are not compared.
    """

    batch: Batch
    partition: int
    written: Written | None
    digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """A prepared transaction, and the partition of the batch whose rows the transaction contains."""

    written: Written
    partition: int
    digest: Digest | None = None

    @property
    def identity(self) -> tuple[str, Place, int]:
        """The fields by which the transaction is recognised after the driver has taken it over. The producer epoch is
        not among them, because a takeover changes it.
        """
        return self.written.transaction.transactional_id, self.written.first, self.partition

    def as_json(self) -> dict[str, Any]:
        transactional_id, producer_id, epoch, is_v2 = self.written.transaction
        document = {
            "id": transactional_id,
            "pid": producer_id,
            "epoch": epoch,
            "v2": is_v2,
            "part": self.partition,
            "at": list(self.written.first),
        }
        return document if self.digest is None else {**document, "digest": list(self.digest)}


@dataclass(frozen=True, slots=True)
class State:
    """The last decision of a query (which transactions of a batch are committed), and the run that may make the next
    decision.

    - `run` is the only run that may decide.
    - `batch` is the number of the batch that was decided last; NO_BATCH before the first decision.
    - `transactions` are the transactions that this decision commits.
    - `lost` maps each partition whose transaction was aborted after the decision to the digest of its rows; the replay
      writes these partitions again.
    - `former` has the shortened ids of the runs that may no longer decide, the latest run first.
    - `digest` is the digest of all rows of the batch.
    - `may_differ` is set when an operator has allowed (`reset`) a replay of the batch to be skipped, whatever rows it
      has.
    - `earlier` has the numbers and digests of the previous decisions, the newest first, without a gap.
    - `target` belongs to a batch write without a writeId: the text that `operations.Cluster.target` returned for its
      topic when the batch was decided.
    """

    run: str
    batch: int = NO_BATCH
    transactions: tuple[TaskTransaction, ...] = ()
    lost: Mapping[int, Digest | None] = field(default_factory=dict)
    former: tuple[str, ...] = ()
    digest: Digest | None = None
    may_differ: bool = False
    earlier: tuple[tuple[int, Digest], ...] = ()
    target: str | None = None

    def digest_of(self, batch: int) -> Digest | None:
        """Return the digest of this batch or of an earlier batch; None if that digest is no longer kept. A batch
        without rows is never decided, and has the digest of no rows.
        """
        if batch == self.batch:
            return self.digest
        for number, digest in self.earlier:
            if number <= batch:
                return digest if number == batch else NOTHING
        return None

    def taken_over(self, run: str, lost: Collection[int]) -> State:
        """Return the state after a new run has taken over and has committed this decision, except for the `lost`
        partitions.
        """
        former = tuple(dict.fromkeys((short(self.run), *self.former)))[:FORMER_RUNS]
        digests = dict(self.lost) | {each.partition: each.digest for each in self.transactions}
        missing = {partition: digests.get(partition) for partition in sorted(lost)}
        return replace(self, run=run, transactions=(), lost=missing, former=former)

    def decided(
        self, batch: int, transactions: Iterable[TaskTransaction], digest: Digest | None, target: str | None = None
    ) -> State:
        """Return the state with the next decision of the same run; `digest` covers all rows of the batch."""
        earlier = self.earlier
        if batch != self.batch:
            earlier = () if self.digest is None else ((self.batch, self.digest), *earlier)[:KEPT_BATCHES]
        return State(self.run, batch, tuple(transactions), {}, self.former, digest, earlier=earlier, target=target)

    def as_json(self) -> bytes:
        written: dict[str, Any] = {
            "version": VERSION,
            "run": self.run,
            "batch": self.batch,
            "txns": [each.as_json() for each in self.transactions],
            "lost": sorted(self.lost),
            "former": list(self.former),
        }
        if self.digest is not None:
            written["digest"] = list(self.digest)
        known = [[partition, *digest] for partition, digest in self.lost.items() if digest is not None]
        if known:
            written["lost_digests"] = known
        if self.may_differ:
            written["may_differ"] = True
        if self.earlier:
            written["earlier"] = [[number, *digest] for number, digest in self.earlier]
        if self.target is not None:
            written["target"] = self.target
        return json.dumps(written, separators=(",", ":")).encode()


def state_from_json(value: bytes) -> State:
    """Parse a query's state. Raises UnreadableState."""
    try:
        read: Any = json.loads(value)
        if read["version"] != VERSION:
            raise UnreadableState(f"the state has version {read['version']}, this is for {VERSION}: update the package")
        return State(
            str(read["run"]),
            int(read["batch"]),
            tuple(_transaction_from_json(transaction) for transaction in read["txns"]),
            _lost_from_json(read),
            tuple(str(run) for run in read["former"]),
            _digest_from_json(read.get("digest")),
            bool(read.get("may_differ", False)),
            tuple((int(number), Digest(int(rows), int(total))) for number, rows, total in read.get("earlier", ())),
            None if read.get("target") is None else str(read["target"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, UnreadableState):
            raise
        raise UnreadableState(f"no state of a query: {value[:100]!r}: {error!r}") from error


def _transaction_from_json(read: Any) -> TaskTransaction:
    """Parse a transaction of a state. Raises ValueError, TypeError, KeyError."""
    topic, partition, offset = read["at"]
    prepared = PreparedTransaction(str(read["id"]), int(read["pid"]), int(read["epoch"]), bool(read["v2"]))
    written = Written(prepared, Place(str(topic), int(partition), int(offset)))
    return TaskTransaction(written, int(read["part"]), _digest_from_json(read.get("digest")))


def _lost_from_json(read: Any) -> dict[int, Digest | None]:
    """Parse the lost partitions of a state and the digests of their rows. Raises ValueError, TypeError, KeyError."""
    lost: dict[int, Digest | None] = {int(partition): None for partition in read["lost"]}
    for partition, rows, total in read.get("lost_digests", ()):
        lost[int(partition)] = Digest(int(rows), int(total))
    return lost


def _digest_from_json(read: Any) -> Digest | None:
    """Parse a digest; None if the state has none. Raises ValueError, TypeError."""
    if read is None:
        return None
    rows, total = read
    return Digest(int(rows), int(total))
