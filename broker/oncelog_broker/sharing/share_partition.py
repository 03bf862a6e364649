"""The in-flight records of one share partition, at the leader of its partition. This module has no I/O: the time is an
argument.

    AVAILABLE --acquire, deliveries + 1--> ACQUIRED --accept--> ACKNOWLEDGED
    ACQUIRED --reject, gap--> ARCHIVED
    ACQUIRED --release, lock expired, session closed--> AVAILABLE, or ARCHIVED after the last delivery
    ACQUIRED --renew--> ACQUIRED with a new lock

An acknowledgement by a member starts a *transition*: the run (offsets with the same state) keeps its state until the
share coordinator has written the new state. During a transition the records are not delivered. If the write fails and
the member's lock has expired, the records become available. If the lock has not expired, the member still has the
records. A change without an acknowledgement (an expired lock, a closed session) takes effect immediately, before the
change is written. If the write of such an immediate change fails, a new leader may have a delivery count that is too
low.

`outbox` has the changes to be written, in order. The counterpart in Kafka is SharePartition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.sharing.record_runs import RecordRuns, Run
from oncelog_broker.sharing.share_counts import ShareCounts

NO_DEADLINE: Final = float("inf")


class SharePartition:
    """The state of one share partition. `runs` are the records in flight, `outbox` the changes that have not been
    written to the share coordinator yet; `counts` counts deliveries and their ends.
    """

    __slots__ = ("_transitions", "counts", "outbox", "runs", "state_epoch")

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        state_epoch: int = 0,
        counts: ShareCounts | None = None,
    ) -> None:
        """Start with the state that the share coordinator has stored. Records outside the stored batches may have been
        acquired at another leader; they are available again. Records that a broker of Apache Kafka has stored as
        acquired are also available again. Without `counts`, the share partition has counts of its own.
        """
        self.counts = ShareCounts() if counts is None else counts
        self.state_epoch = state_epoch
        self.runs = RecordRuns(start_offset)
        self.outbox: list[StateBatch] = []
        self._transitions = 0
        for first, last, state, deliveries in batches:
            if last < self.runs.end:
                continue
            first = max(first, self.runs.end)
            if first > self.runs.end:
                self.runs.append(Run(self.runs.end, first - 1, DeliveryState.AVAILABLE))
            kept = DeliveryState.AVAILABLE if state == DeliveryState.ACQUIRED else DeliveryState(state)
            self.runs.append(Run(first, last, kept, deliveries))
        self.runs.advance()

    # --- queries

    @property
    def start_offset(self) -> int:
        """The start offset: all records below it are acknowledged or archived."""
        return self.runs.start

    @property
    def kept_start_offset(self) -> int:
        """The start offset that results when all requested transitions are written."""
        start = self.runs.start
        for run in self.runs.runs:
            if not run.will_be_done:
                break
            start = run.last + 1
        return start

    @property
    def kept_complete_count(self) -> int:
        """Number of records at or above `kept_start_offset` that will be acknowledged or archived when all requested
        transitions are written.
        """
        start = self.kept_start_offset
        return sum(len(run) for run in self.runs.runs if run.first >= start and run.will_be_done)

    def next_offset(self, max_locks: int) -> int | None:
        """Return the first offset that can be acquired; None while too many records are in flight."""
        for run in self.runs.runs:
            if run.is_free:
                return run.first
        return self.runs.end if len(self.runs) < max_locks else None

    @property
    def next_deadline(self) -> float:
        """The time at which the next lock expires (monotonic seconds); NO_DEADLINE if there is no lock."""
        deadlines = (run.deadline for run in self.runs.runs if run.state is DeliveryState.ACQUIRED)
        return min((deadline for deadline in deadlines if deadline), default=NO_DEADLINE)

    @property
    def has_acquired(self) -> bool:
        """Whether any member has a record."""
        return any(run.state is DeliveryState.ACQUIRED for run in self.runs.runs)

    @property
    def acquired_records(self) -> int:
        """Number of records that members have, and have not acknowledged."""
        runs = self.runs.runs
        return sum(len(run) for run in runs if run.state is DeliveryState.ACQUIRED and run.becomes is None)

    def undone_below(self, end: int) -> int:
        """Return the number of offsets below `end` that are neither acknowledged nor archived."""
        done = sum(max(0, min(run.last + 1, end) - run.first) for run in self.runs.runs if run.is_done)
        return max(0, end - self.runs.start - done)

    def take_outbox(self) -> list[StateBatch]:
        """Empty `outbox`, and return the changes to be written. Offsets below `kept_start_offset` are left out, because
        `kept_start_offset` is written together with the changes.
        """
        start = self.kept_start_offset
        changes, self.outbox = self.outbox, []
        return [batch._replace(first=max(batch.first, start)) for batch in changes if batch.last >= start]

    # --- transitions

    def new_transition(self) -> int:
        self._transitions += 1
        return self._transitions

    def finish(self, transition: int, *, is_kept: bool, now: float, delivery_limit: int) -> bool:
        """Complete a transition whose write succeeded (`is_kept`), or undo a transition whose write failed. Returns
        whether waiting fetches should try to acquire records again, because records became available or fewer records
        are in flight.
        """
        for run in self.runs.runs:
            if run.transition != transition:
                continue
            assert run.becomes is not None
            if is_kept:
                run.settle(run.becomes)
            elif run.deadline <= now:
                self.counts.lock_timeouts += len(run)
                self._release(run, delivery_limit)
            else:
                run.becomes, run.transition = None, 0
        return self._settled()

    def release(self, owner: str, delivery_limit: int) -> bool:
        """Release the records of a member whose session has ended; the member's earlier acknowledgements stay. Returns
        whether waiting fetches should try to acquire records again.
        """
        mine = [run for run in self.runs.runs if run.owner == owner and run.becomes is None]
        return self._give_back(mine, delivery_limit)

    def expire(self, now: float, delivery_limit: int) -> bool:
        """Release the records whose locks have expired. Returns whether waiting fetches should try to acquire records
        again.
        """
        over = [
            run
            for run in self.runs.runs
            if run.state is DeliveryState.ACQUIRED and run.deadline <= now and run.becomes is None
        ]
        self.counts.lock_timeouts += sum(len(run) for run in over)
        for run in self.runs.runs:
            if run.becomes is not None and run.deadline <= now:
                # Although the lock has expired, the run is not released here: the outcome of its pending write decides
                # its state.
                run.deadline = 0.0
        return self._give_back(over, delivery_limit)

    def move_log_start(self, log_start_offset: int) -> bool:
        """Drop records below the start of the log. Returns whether waiting fetches should try to acquire records
        again."""
        if log_start_offset <= self.runs.start:
            return False
        self.runs.begin_at(log_start_offset)
        self._settled()
        return True

    def move_log_end(self, log_end_offset: int) -> None:
        """Drop the states of records beyond the end of the log. Records beyond the end of the log were lost, and new
        records will get the same offsets. After the call, `outbox` (the changes to be written) states that the records
        with these offsets were never delivered.
        """
        end = self.runs.end
        if log_end_offset < end:
            self.runs.end_at(log_end_offset)
            self.outbox.append(StateBatch(log_end_offset, end - 1, DeliveryState.AVAILABLE, 0))

    def _give_back(self, runs: list[Run], delivery_limit: int) -> bool:
        for run in runs:
            self._release(run, delivery_limit)
        return bool(runs) and self._settled()

    def _release(self, run: Run, delivery_limit: int) -> None:
        """Take the records of a run from their member, without an acknowledgement."""
        state = released_state(run.deliveries, delivery_limit)
        if state is DeliveryState.ARCHIVED:
            self.counts.used_up += len(run)
        run.settle(state)
        self.outbox.append(run.to_batch())

    def _settled(self) -> bool:
        self.runs.join()
        self.runs.advance()
        return True


def released_state(deliveries: int, delivery_limit: int) -> DeliveryState:
    """Return the state of records that a member releases: ARCHIVED at the delivery limit, otherwise AVAILABLE."""
    return DeliveryState.ARCHIVED if deliveries >= delivery_limit else DeliveryState.AVAILABLE
