"""The in-flight records of one share partition, at the leader of its partition. Pure: time comes in as a number.

    AVAILABLE --acquire, deliveries + 1--> ACQUIRED --accept--> ACKNOWLEDGED
    ACQUIRED --reject, gap--> ARCHIVED
    ACQUIRED --release, lock ran out, session closed--> AVAILABLE, or ARCHIVED after the last delivery
    ACQUIRED --renew--> ACQUIRED with a new lock

What a member says is a *transition*: the run keeps its state until the share coordinator has the change, and is not
handed out meanwhile. If the change cannot be kept the member has the records still, or the next one gets them if the
lock has run out. What happens without a member's word (a lock that ran out, a closed session) counts at once, and is
kept as well as can be: if that fails, the count of deliveries after a change of leader is lower than it was.

`outbox` has what is to be kept, in order. Source: Kafka's SharePartition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.sharing.record_runs import RecordRuns, Run

NO_DEADLINE: Final = float("inf")


class SharePartition:
    """`runs` are the records in flight, `outbox` the changes that the share coordinator does not have yet."""

    __slots__ = ("_transitions", "outbox", "runs", "state_epoch")

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = (), state_epoch: int = 0) -> None:
        """Begin with what was kept. Records between and below the kept ones were in flight at another leader, and are
        available again; so are those that another implementation has kept as acquired."""
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

    # --- what others ask

    @property
    def start_offset(self) -> int:
        """All records below are done."""
        return self.runs.start

    @property
    def kept_start_offset(self) -> int:
        """The start offset when all that members have asked for is kept."""
        start = self.runs.start
        for run in self.runs.runs:
            if not run.will_be_done:
                break
            start = run.last + 1
        return start

    @property
    def kept_complete_count(self) -> int:
        """How many records from `kept_start_offset` on are done when all is kept."""
        start = self.kept_start_offset
        return sum(len(run) for run in self.runs.runs if run.first >= start and run.will_be_done)

    def next_offset(self, max_locks: int) -> int | None:
        """The first offset to be handed out; None while there is none, since too many are in flight."""
        for run in self.runs.runs:
            if run.is_free:
                return run.first
        return self.runs.end if len(self.runs) < max_locks else None

    @property
    def next_deadline(self) -> float:
        """When the next lock runs out (monotonic seconds)."""
        deadlines = (run.deadline for run in self.runs.runs if run.state is DeliveryState.ACQUIRED)
        return min((deadline for deadline in deadlines if deadline), default=NO_DEADLINE)

    @property
    def has_acquired(self) -> bool:
        """Whether some member has a record."""
        return any(run.state is DeliveryState.ACQUIRED for run in self.runs.runs)

    def take_outbox(self) -> list[StateBatch]:
        """The changes that are to be kept, without those below the start offset that is kept with them."""
        start = self.kept_start_offset
        changes, self.outbox = self.outbox, []
        return [batch._replace(first=max(batch.first, start)) for batch in changes if batch.last >= start]

    # --- transitions

    def new_transition(self) -> int:
        self._transitions += 1
        return self._transitions

    def finish(self, transition: int, *, is_kept: bool, now: float, delivery_limit: int) -> bool:
        """Complete or undo a transition, as its write succeeded or failed. Returns whether waiting fetches should look
        again: records became available, or fewer are in flight."""
        for run in self.runs.runs:
            if run.transition != transition:
                continue
            assert run.becomes is not None
            if is_kept:
                run.settle(run.becomes)
            elif run.deadline <= now:
                run.settle(_released(run, delivery_limit))
                self.outbox.append(run.to_batch())
            else:
                run.becomes, run.transition = None, 0
        return self._settled()

    def release(self, owner: str, delivery_limit: int) -> bool:
        """Release the records of a member whose session has ended; its earlier acknowledgements stay. Returns as
        `finish`."""
        mine = [run for run in self.runs.runs if run.owner == owner and run.becomes is None]
        return self._give_back(mine, delivery_limit)

    def expire(self, now: float, delivery_limit: int) -> bool:
        """Release the records whose locks have run out. Returns as `finish`."""
        over = [
            run
            for run in self.runs.runs
            if run.state is DeliveryState.ACQUIRED and run.deadline <= now and run.becomes is None
        ]
        for run in self.runs.runs:
            if run.becomes is not None and run.deadline <= now:
                run.deadline = 0.0  # the lock is over, and what becomes of the run waits for the share coordinator
        return self._give_back(over, delivery_limit)

    def move_log_start(self, log_start_offset: int) -> bool:
        """Drop records below the start of the log. Returns as `finish`."""
        if log_start_offset <= self.runs.start:
            return False
        self.runs.begin_at(log_start_offset)
        self._settled()
        return True

    def move_log_end(self, log_end_offset: int) -> None:
        """Drop what was kept of records beyond the end of the log, which were lost with it: other records will have
        their offsets. `outbox` then has these offsets as records that were never delivered."""
        end = self.runs.end
        if log_end_offset < end:
            self.runs.end_at(log_end_offset)
            self.outbox.append(StateBatch(log_end_offset, end - 1, DeliveryState.AVAILABLE, 0))

    def _give_back(self, runs: list[Run], delivery_limit: int) -> bool:
        for run in runs:
            run.settle(_released(run, delivery_limit))
            self.outbox.append(run.to_batch())
        return bool(runs) and self._settled()

    def _settled(self) -> bool:
        self.runs.join()
        self.runs.advance()
        return True


def released_state(deliveries: int, delivery_limit: int) -> DeliveryState:
    """The state of records that a member gives back."""
    return DeliveryState.ARCHIVED if deliveries >= delivery_limit else DeliveryState.AVAILABLE


def _released(run: Run, delivery_limit: int) -> DeliveryState:
    return released_state(run.deliveries, delivery_limit)
