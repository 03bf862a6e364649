"""One state machine, the partition with its log, and the requests that wait for its answers."""

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
    """The state of one partition of an internal topic. All methods are synchronous and quick; none does I/O."""

    @property
    def records_replace_older(self) -> bool:
        """Whether a record replaces all older ones of its key, so that loading may pass those over."""

    def encode(self, record: Any) -> Encoded:
        """The bytes of a record that this machine made."""

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """A record of the log; None for one of a kind that this version does not know. Raises ValueError."""

    def replay(self, record: Any, offset: int, producer_id: int) -> None:
        """Take in the record logged at `offset`. Only this method changes durable state. `producer_id` is -1 outside
        transactions."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction that wrote records here has ended."""

    def on_loaded(self) -> Iterator[Effects]:
        """All of the log is replayed: timers begin to run. The effects come in several steps, so that other requests
        are served in between: state that has changed or gone meanwhile is skipped."""

    def on_timer(self, timer: TimerKey) -> Effects: ...

    def on_job(self, key: str, result: Any) -> Effects:
        """The result of a job about `key` (`Effects.jobs`)."""

    def key_of(self, timer: TimerKey) -> str:
        """The key of a timer: the group or transactional id that requests would name."""

    def on_failed(self, key: str) -> Effects:
        """A step about `key` raised: drop the changes that were not logged, as a restart would. The runtime answers the
        waiting requests. Records are not allowed."""

    def on_unloaded(self, error: KafkaError) -> Effects:
        """This broker is no longer the coordinator: answer waiting requests with `error`. Records are not allowed."""


M = TypeVar("M", bound=Machine)
R = TypeVar("R")


class Waiter(Generic[R]):
    """A request that waits for its reply; machines see it as an opaque token."""

    __slots__ = ("_failed", "_future", "_reply")

    def __init__(self, failed: Callable[[KafkaError], R]) -> None:
        self._failed = failed
        self._reply: list[R] = []
        self._future: asyncio.Future[R] | None = None

    def answer(self, response: R | KafkaError) -> None:
        """Has no effect if the client has disconnected."""
        reply = self._failed(response) if isinstance(response, KafkaError) else response
        if self._future is None:
            self._reply.append(reply)
        elif not self._future.done():
            self._future.set_result(reply)

    def outcome(self) -> Answer[R]:
        """The reply, or a future of it if it comes later. To be asked once."""
        if self._reply:
            return self._reply[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class Shard(Generic[M]):
    """One machine, its partition and its timers. `is_loaded` is False until the log is replayed."""

    __slots__ = ("_waiting", "failure", "index", "is_loaded", "jobs", "machine", "partition", "timers")

    def __init__(self, index: int, partition: Partition, machine: M) -> None:
        self.index = index
        self.partition = partition
        self.machine = machine
        self.timers: TimerQueue[TimerKey] = TimerQueue()
        self.is_loaded = False
        self.failure: str | None = None
        self.jobs: set[tuple[str, str]] = set()
        """Key and name of the jobs that are under way."""
        self._waiting: dict[str, dict[Waiter[Any], None]] = {}
        """The waiting requests by key, in the order of arrival."""

    def wait(self, key: str, waiter: Waiter[Any], future: asyncio.Future[Any]) -> None:
        """`waiter` is answered in a later step about `key`; `future` is its outcome."""
        self._waiting.setdefault(key, {})[waiter] = None
        future.add_done_callback(lambda _: self._answered(key, waiter))

    def _answered(self, key: str, waiter: Waiter[Any]) -> None:
        waiting = self._waiting.get(key, {})
        waiting.pop(waiter, None)
        if not waiting:
            self._waiting.pop(key, None)

    def waiting(self, key: str) -> Collection[Waiter[Any]]:
        """The requests that wait for an answer about `key`."""
        return tuple(self._waiting.get(key, ()))

    def all_waiting(self) -> Collection[Waiter[Any]]:
        return [waiter for waiting in self._waiting.values() for waiter in waiting]
