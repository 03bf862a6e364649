"""The actions that a step of a coordinator's state machine requests, as values. The runtime carries it out, in this
order:

1. `records` are appended to the log as one batch. If the append fails, none of the other effects happens, the machine
   stays as it was, and the one request that asked gets the error; other requests that waited for this step get it
   through `if_not_logged`. Records that `may_be_divided` are appended, and replayed, in as many batches as it takes.
2. Each record is replayed into the machine: only a replay changes durable state.
3. `changes` to soft state that belong to the records are made.
4. `timers` are set or cancelled, and `jobs` begin.
5. When the records are committed (on all in-sync replicas), `replies` leave, and then `ends` are handed to the
   rim: decided transactions, whose markers are to be written, or share partitions, whose state is to be initialized.

A step that logs records changes no soft state itself: it puts the change into `changes`. Otherwise a failed append
would leave a machine that has removed a waiter from a waiting list, and effects that never answer it (S85).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.errors import ErrorCode, KafkaError

Waiter = Any
"""A request that waits for a reply: an opaque token, which the machine stores and passes back."""
TimerKey = Hashable
"""Names a timer of a machine; it is the argument of `on_timer`."""


class Interruption(Exception):
    """A step that has changed nothing and has to be asked again by its rim: no failure, so it passes the runtime."""


class Encoded(NamedTuple):
    """A record as it lies in the log; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Job(NamedTuple):
    """Work about `key` that takes too long for one step: `steps()` reads the machine in its first step, and the result
    of the steps is passed to `Machine.on_job`. At most one job of a name runs for a key; a second one is not begun, so
    a step may request it again until the result has arrived."""

    key: str
    name: str
    steps: Callable[[], Steps[Any]]


class Effects:
    """The effects of one step. Invariant: a waiter is replied to once in its life."""

    __slots__ = (
        "afterwards",
        "changes",
        "ends",
        "if_not_logged",
        "jobs",
        "may_be_divided",
        "producer",
        "records",
        "replies",
        "timers",
        "too_large",
    )

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.producer: tuple[int, int] | None = None
        """The producer id and epoch in whose transaction the records are; None: no transaction."""
        self.replies: list[tuple[Waiter, Any]] = []
        self.ends: list[Any] = []
        """What the rim does when the records are committed: see `CoordinatorRuntime`."""
        self.changes: list[Callable[[], object]] = []
        """Changes to soft state that are made once the records are replayed. Its functions must not raise."""
        self.timers: list[tuple[TimerKey, float | None]] = []
        self.jobs: list[Job] = []
        self.may_be_divided = False
        """The records are independent: after a crash, or a failure, some of them may be logged and others not."""
        self.too_large = ErrorCode.UNKNOWN_SERVER_ERROR
        """The error code of this API for records that are too large for the log."""
        self.afterwards: Callable[[], Effects] | None = None
        """The step that follows at once after all these effects. It may refuse with a KafkaError."""
        self.if_not_logged: Callable[[KafkaError], Effects] | None = None
        """Run instead if the records cannot be appended; gets the error, and logs no records."""

    def append(self, record: Any) -> None:
        """A record of the machine's own kind, to be logged and then replayed."""
        self.records.append(record)

    def reply(self, waiter: Waiter, response: Any | KafkaError) -> None:
        """Answer `waiter`; a KafkaError becomes the response of its API that carries it."""
        self.replies.append((waiter, response))

    def start_timer(self, key: TimerKey, seconds: float) -> None:
        """Call `on_timer(key)` in so many seconds; replaces an earlier timer of the same key."""
        self.timers.append((key, seconds))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append((key, None))
