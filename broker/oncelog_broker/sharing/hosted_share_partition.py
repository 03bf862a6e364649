"""One share partition at the leader of its partition: provides the clock, and writes changes to the share coordinator.

At most one write is under way; changes that occur meanwhile are combined in the next write. In this way changes are
written in order, and a busy share partition combines many acknowledgements in few records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state_calls import ShareStateCalls
from oncelog_broker.coordinator.share.share_state_machine import StateWrite
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.host import Host
from oncelog_broker.sharing.acknowledgement import AckBatch, AckTerms, acknowledge
from oncelog_broker.sharing.acquisition import Acquired, LogBatch, Terms, acquire
from oncelog_broker.sharing.share_group_settings import ShareGroupSettings
from oncelog_broker.sharing.share_partition import NO_DEADLINE, SharePartition
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

WOKEN_AT_ONCE: Final = 4
"""Number of waiting fetches that are woken when records become available; each fetch that acquires records wakes the
next fetch."""
FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
NO_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def as_told(error: KafkaError) -> KafkaError:
    """Return the error that a member gets for an error of a share coordinator."""
    if error.code in FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if error.code in NO_COORDINATOR:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


class Waiting(Protocol):
    """A waiting ShareFetch. `finish` makes the fetch try to acquire records again; a second call does nothing."""

    enough: asyncio.Future[None]

    def finish(self) -> None: ...


class HostedSharePartition:
    """A share partition with its log. `partition` is the partition with the log, which this broker leads in
    `leader_epoch`; `settings()` returns the present settings of the group. `on_fenced` is called when another broker
    leads the partition, or the state was initialized again."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        share: SharePartition,
        settings: Callable[[], ShareGroupSettings],
        calls: ShareStateCalls,
        host: Host,
        on_fenced: Callable[[HostedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.share = share
        self.settings = settings
        self.last_used = host.clock.monotonic()
        self._calls = calls
        self._clock = host.clock
        self._deadlines = host.deadlines
        self._tasks = host.tasks
        self._on_fenced = on_fenced
        self._waiting: dict[Waiting, None] = {}
        self._transitions: list[tuple[int, asyncio.Future[KafkaError | None]]] = []
        """Acknowledgements that no write contains yet: their transition numbers and futures."""
        self._written = asyncio.Event()
        """An event that is cleared while a write is under way."""
        self._written.set()
        self._wakes_at = NO_DEADLINE
        self.is_retired = False
        self.is_dropped = False

    @property
    def is_current(self) -> bool:
        """Whether members may acquire and acknowledge records with this state."""
        return self.is_led and not self.is_retired

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads the partition in the same leader epoch."""
        return not (self.is_dropped or self.partition.is_resigned or self.partition.leader_epoch != self.leader_epoch)

    # --- records

    def next_offset(self) -> int | None:
        """Return the first offset that can be acquired; None while too many records are in flight."""
        self.last_used = self._clock.monotonic()
        if self.share.move_log_start(self.partition.log.log_start_offset):
            self._wake()
        return self.share.next_offset(self.settings().max_locks)

    def readable_end(self) -> int:
        """Return the offset below which records may be acquired."""
        partition = self.partition
        return partition.last_stable_offset if self.settings().reads_committed else partition.high_watermark

    @property
    def lag(self) -> int:
        """Number of records that the group may read and that are neither acknowledged nor archived."""
        return self.share.undone_below(self.readable_end())

    def acquire(
        self, owner: str, position: int, batches: Sequence[LogBatch], max_records: int, batch_size: int, *, exact: bool
    ) -> list[Acquired]:
        """Acquire records of these batches, which were read from the log from `position` on, for the member `owner`."""
        settings = self.settings()
        deadline = self._clock.monotonic() + settings.lock_seconds
        terms = Terms(owner, deadline, max_records, batch_size, exact, settings.delivery_limit, settings.max_locks)
        acquired = acquire(self.share, position, batches, terms)
        self._write()
        self._wake_in_time()
        if acquired:
            self._wake(1)  # wake the next fetch, because more records may be available
        return acquired

    def acknowledge(self, owner: str, batches: Sequence[AckBatch], *, renews: bool) -> Answer[KafkaError | None]:
        """Apply a member's acknowledgements. Returns None after the acknowledgements are written, or the error for the
        member."""
        self.last_used = now = self._clock.monotonic()
        settings = self.settings()
        self._expire(now)
        deadline = now + settings.lock_seconds
        terms = AckTerms(owner, deadline, settings.delivery_limit, renews, settings.may_renew)
        try:
            transition = acknowledge(self.share, batches, terms)
        except KafkaError as error:
            return error.as_value()
        self._wake_in_time()
        if not transition:
            return None
        kept: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        self._transitions.append((transition, kept))
        self._write()
        return kept

    def release(self, owner: str) -> None:
        """Release the records of a member whose session has ended."""
        if self.share.release(owner, self.settings().delivery_limit):
            self._write()
            self._wake()

    # --- waiting

    def wait(self, waiting: Waiting) -> None:
        """Register a waiting fetch, which is woken when records become available."""
        self._waiting[waiting] = None
        waiting.enough.add_done_callback(lambda _: self._waiting.pop(waiting, None))

    def _wake(self, count: int = WOKEN_AT_ONCE) -> None:
        for waiting in [waiting for waiting in self._waiting if not waiting.enough.done()][:count]:
            waiting.finish()

    def retire(self) -> None:
        """Stop using this state, because the group has no session left at this broker. The next session loads the state
        from the share coordinator again, after all writes have ended.
        """
        self.is_retired = True

    async def written(self) -> None:
        """Wait until no write is under way."""
        await self._written.wait()

    def drop(self) -> None:
        """Stop using this state, because this broker no longer leads the partition or must load the state again, and
        wake all waiting requests."""
        self.is_dropped = True
        transitions, self._transitions = self._transitions, []
        for _, kept in transitions:
            _answer(kept, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._wake(len(self._waiting))

    @property
    def is_idle(self) -> bool:
        """Whether no member has records, and no request waits for records or for a write."""
        return not (self.is_writing or self._transitions or self._waiting or self.share.has_acquired)

    @property
    def is_writing(self) -> bool:
        return not self._written.is_set()

    # --- timers

    def _wake_in_time(self) -> None:
        at = self.share.next_deadline
        if at < self._wakes_at:
            self._wakes_at = at
            self._deadlines.after(max(0.0, at - self._clock.monotonic()), partial(self._on_deadline, at))

    def _on_deadline(self, at: float) -> None:
        if at != self._wakes_at or self.is_dropped:
            # Do nothing if a call for an earlier deadline was scheduled after this call: that call also schedules the
            # following deadline.
            return
        self._wakes_at = NO_DEADLINE
        self._expire(self._clock.monotonic())
        self._wake_in_time()

    def _expire(self, now: float) -> None:
        if self.share.expire(now, self.settings().delivery_limit):
            self._write()
            self._wake()

    # --- writing

    def _write(self) -> None:
        if (self.share.outbox or self._transitions) and not (self.is_writing or self.is_dropped):
            self._written.clear()
            self._tasks.spawn(f"state of share partition {self.key.text}", self._write_all())

    async def _write_all(self) -> None:
        try:
            while True:
                await self._write_once()
                if self.is_dropped or not (self.share.outbox or self._transitions):
                    return
        finally:
            self._written.set()

    async def _write_once(self) -> None:
        share = self.share
        transitions, self._transitions = self._transitions, []
        write = StateWrite(
            share.state_epoch,
            self.leader_epoch,
            share.kept_start_offset,
            share.kept_complete_count,
            share.take_outbox(),
        )
        error: KafkaError | None = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            error = await self._calls.write(self.key, write)
        # If the broker stops, the write is cancelled, and the transitions (changes of state) must be finished in this
        # case, too.
        finally:
            now, limit = self._clock.monotonic(), self.settings().delivery_limit
            for transition, kept in transitions:
                share.finish(transition, is_kept=error is None, now=now, delivery_limit=limit)
                _answer(kept, None if error is None else as_told(error))
        if error is not None:
            logger.warning(
                "state of share partition could not be stored",
                extra={"share_partition": self.key.text, "reason": error},
            )
            if error.code in FENCED:
                self._on_fenced(self)
                return
        self._wake_in_time()
        self._wake()


def _answer(answer: asyncio.Future[KafkaError | None], error: KafkaError | None) -> None:
    if not answer.done():
        answer.set_result(error)
