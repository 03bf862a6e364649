"""A shard: one state machine, the partition with its log, and the requests that wait for replies of the state
machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, Protocol, TypeVar

from oncelog_broker.coordinator.effects import Effects, Encoded, TimerKey
from oncelog_broker.coordinator.timers import TimerQueue
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import Answer
from oncelog_protocol.errors import KafkaError


class Machine(Protocol):
    """The state machine of one partition of an internal topic. All methods of a state machine are synchronous, quick,
    and without I/O.
    """

    @property
    def records_replace_older(self) -> bool:
        """Whether a record replaces all older records with the same key, so that loading may skip the older records."""

    def encode(self, record: Any) -> Encoded:
        """Return the bytes (key and value) of a record of this state machine."""

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """Decode a record of the log; returns None for a kind of record that this version does not know. Raises
        ValueError."""

    def replay(self, record: Any, offset: int, producer_id: int) -> None:
        """Apply the record logged at `offset` to the state of the state machine. Only `replay` changes durable state.
        `producer_id` is -1 outside transactions."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply the end of a transaction that wrote records to this partition."""

    def on_loaded(self) -> Iterator[Effects]:
        """Yield the effects that start the timers, after the entire log was replayed. The effects are yielded one by
        one, and other requests may be served in between. No effects are yielded for state that a request has changed or
        removed in between.
        """

    def on_timer(self, timer: TimerKey) -> Effects: ...

    def on_job(self, key: str, result: Any) -> Effects:
        """Handle the result of a job for `key` (`Effects.jobs`)."""

    def key_of(self, timer: TimerKey) -> str:
        """Return the key that a timer belongs to: the group id or transactional id."""

    def on_failed(self, key: str) -> Effects:
        """Called after the handling of a request for `key` raised an exception: drop the changes of `key` that were not
        logged, as a restart would. The runtime (not this method) replies to the waiting requests. The effects must not
        contain records.
        """

    def on_unloaded(self, error: KafkaError) -> Effects:
        """Reply to waiting requests with `error`, because this broker is no longer the coordinator. The effects must
        not contain records."""


M = TypeVar("M", bound=Machine)
R = TypeVar("R")


class Waiter(Generic[R]):
    """A request that waits for its reply; state machines treat the waiter as an opaque token."""

    __slots__ = ("_failed", "_future", "_reply")

    def __init__(self, failed: Callable[[KafkaError], R]) -> None:
        self._failed = failed
        self._reply: list[R] = []
        self._future: asyncio.Future[R] | None = None

    def answer(self, response: R | KafkaError) -> None:
        """Set the reply to the waiting request. Setting the reply has no effect if the client has disconnected."""
        reply = self._failed(response) if isinstance(response, KafkaError) else response
        if self._future is None:
            self._reply.append(reply)
        elif not self._future.done():
            self._future.set_result(reply)

    def outcome(self) -> Answer[R]:
        """Return the reply, or a future of the reply if the reply is not set yet. Call this method only once."""
        if self._reply:
            return self._reply[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class Shard(Generic[M]):
    """One state machine with its partition and its timers. `is_loaded` is False until the log has been replayed
    completely.
    """

    __slots__ = ("_waiting", "failure", "index", "is_loaded", "jobs", "machine", "partition", "timers")

    def __init__(self, index: int, partition: Partition, machine: M) -> None:
        self.index = index
        self.partition = partition
        self.machine = machine
        self.timers: TimerQueue[TimerKey] = TimerQueue()
        self.is_loaded = False
        self.failure: str | None = None
        self.jobs: set[tuple[str, str]] = set()
        """The (key, name) pairs of the running jobs (background work)."""
        self._waiting: dict[str, dict[Waiter[Any], None]] = {}
        """The waiting requests by key, in the order of arrival."""

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition with an online log. A leader whose log has failed gives up the
        leadership, so another coordinator may exist already, and know newer members, epochs and offsets.
        """
        partition = self.partition
        return not (partition.is_resigned or partition.log.is_offline)

    @property
    def is_committed(self) -> bool:
        """Whether all records of the partition are committed (on all in-sync replicas)."""
        partition = self.partition
        return partition.high_watermark >= partition.log.local.log_end_offset

    @property
    def commits_at_once(self) -> bool:
        """Whether all records of the partition are committed, and the next record will be committed as soon as it is
        appended, because it need not wait for other replicas or for the disk.
        """
        partition = self.partition
        return partition.is_alone and not partition.waits_for_disk and self.is_committed

    def wait(self, key: str, waiter: Waiter[Any], future: asyncio.Future[Any]) -> None:
        """Store `waiter`, which gets its reply from a later request or timer for `key`; `future` completes when the
        reply is set.
        """
        self._waiting.setdefault(key, {})[waiter] = None
        future.add_done_callback(lambda _: self._answered(key, waiter))

    def _answered(self, key: str, waiter: Waiter[Any]) -> None:
        waiting = self._waiting.get(key, {})
        waiting.pop(waiter, None)
        if not waiting:
            self._waiting.pop(key, None)

    def waiting(self, key: str) -> Collection[Waiter[Any]]:
        """Return the requests that wait for a reply from a later request or timer for `key`."""
        return tuple(self._waiting.get(key, ()))

    def all_waiting(self) -> Collection[Waiter[Any]]:
        return [waiter for waiting in self._waiting.values() for waiter in waiting]
