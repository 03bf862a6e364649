"""Acquires records of a share partition for a member. Pure.

Records are acquired in the order of their offsets, in entire batches of the log where possible. If a record was
delivered several times and not accepted, the record itself may make its consumers fail (a *poison* record). A poison
record must not use up the deliveries of its neighbours. After half of the allowed deliveries, a run (offsets with the
same state) is acquired separately from other runs, and at most half of the run at a time. For the last delivery,
records are acquired one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncelog_broker.coordinator.share.state_batches import DeliveryState
from oncelog_broker.sharing.record_runs import Run
from oncelog_broker.sharing.share_partition import SharePartition


class LogBatch(NamedTuple):
    """The offsets of a batch that was read from the log. `is_delivered` is False for a marker, and for records of an
    aborted transaction if the group reads only committed records."""

    first: int
    last: int
    is_delivered: bool = True


class Terms(NamedTuple):
    """The member that acquires records, and its limits. `deadline` is in monotonic seconds. If `is_exact` is False, the
    batch in which `max_records` is reached is acquired entirely. An acquired batch has about `batch_size` records.
    """

    owner: str
    deadline: float
    max_records: int
    batch_size: int
    is_exact: bool
    delivery_limit: int
    max_locks: int


class Acquired(NamedTuple):
    """A range of records that a member has acquired; `deliveries` includes this delivery."""

    first: int
    last: int
    deliveries: int


class _Acquisition:
    """One pass (one read) over batches of the log, which acquires records for one member."""

    __slots__ = ("_terms", "_throttle", "count", "partition", "result")

    def __init__(self, partition: SharePartition, terms: Terms) -> None:
        self.partition = partition
        self._terms = terms
        self._throttle = max(2, -(-terms.delivery_limit // 2))
        self.count = 0
        self.result: list[Acquired] = []

    def take(self, batch: LogBatch) -> bool:
        """Acquire the available records of a batch. Returns whether the caller may continue with the next batch."""
        runs, terms = self.partition.runs, self._terms
        last = batch.last
        for run in list(runs.over(batch.first, min(last, runs.end - 1))) if batch.first < runs.end else ():
            if not run.is_free:
                continue
            if terms.is_exact and self.count >= terms.max_records:
                return False
            first_here, last_here = max(run.first, batch.first), min(run.last, last)
            goes_on = True
            if run.deliveries >= self._throttle:
                if self.count:
                    return False
                last_here = min(last_here, first_here + self._alone(run) - 1)
                goes_on = False
            self._acquire(first_here, last_here)
            if not goes_on:
                return False
        if last < runs.end:
            return True
        if len(runs) >= terms.max_locks or (terms.is_exact and self.count >= terms.max_records):
            return False
        if terms.is_exact:
            last = min(last, runs.end + terms.max_records - self.count - 1)
        first = runs.end
        runs.append(Run(first, last, DeliveryState.AVAILABLE))
        self._acquire(first, last)
        return last == batch.last

    def _alone(self, run: Run) -> int:
        """Return the number of records to acquire from a run that was delivered often."""
        limit = self._terms.delivery_limit
        if limit > 2 and run.deliveries == limit - 1:
            return 1
        return max(1, len(run) >> (run.deliveries - self._throttle + 1))

    def _acquire(self, first: int, last: int) -> None:
        terms = self._terms
        if terms.is_exact:
            last = min(last, first + terms.max_records - self.count - 1)
        for run in self.partition.runs.cut(first, last):
            run.state, run.owner, run.deadline = DeliveryState.ACQUIRED, terms.owner, terms.deadline
            run.deliveries += 1
            self.count += len(run)
            self.partition.counts.delivered(len(run), run.deliveries)
            before = self.result[-1] if self.result else None
            if (
                before is not None
                and before.last + 1 == run.first
                and before.deliveries == run.deliveries
                and before.last - before.first + 1 < terms.batch_size
            ):
                self.result[-1] = before._replace(last=run.last)
            else:
                self.result.append(Acquired(run.first, run.last, run.deliveries))

    def archive(self, first: int, last: int) -> None:
        """Archive the offsets in this range that no member has acquired, because these offsets have no records to
        deliver.
        """
        partition = self.partition
        runs = partition.runs
        if last >= runs.end and first <= runs.end:
            runs.append(Run(runs.end, last, DeliveryState.AVAILABLE))
        for run in runs.cut(first, min(last, runs.end - 1)) if first < runs.end else ():
            if run.is_free:
                run.settle(DeliveryState.ARCHIVED)
                partition.outbox.append(run.to_batch())


def acquire(partition: SharePartition, position: int, batches: Iterable[LogBatch], terms: Terms) -> list[Acquired]:
    """Acquire records of these batches, which were read from `position` on; the first batch may begin below `position`.
    Offsets between the batches have no records and are archived, because otherwise the start offset would never move
    beyond them."""
    pass_ = _Acquisition(partition, terms)
    for batch in batches:
        if batch.last < position:
            continue
        if pass_.count >= terms.max_records:
            break
        if batch.first > position:
            pass_.archive(position, batch.first - 1)
        first = max(batch.first, position)
        position = batch.last + 1
        if not batch.is_delivered:
            pass_.archive(first, batch.last)
        elif not pass_.take(LogBatch(first, batch.last)):
            break
    partition.runs.join()
    partition.runs.advance()
    return pass_.result
