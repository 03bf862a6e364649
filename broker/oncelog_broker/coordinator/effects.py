"""The actions that a step of a coordinator's state machine requests, as values. The coordinator runtime
(`coordinator/runtime.py`) carries out the actions in this order:

1. `records` are appended to the log as one batch. If the append fails, none of the other effects happens, the state
   machine keeps its state, and the request that caused the step gets the error. The function `if_not_logged`, if it is
   set, runs as a further step, which replies with the error to other waiting requests. If `may_be_divided` is True and
   one batch is too small, the records are appended and replayed as several batches.
2. Each record is replayed, that is, applied to the state machine. Only the replay of a record changes durable state
   (state that is in the log).
3. The functions in `changes` are called; they make the changes of soft state that belong to the records.
4. `timers` are set or cancelled, and `jobs` (long work in slices or threads) begin.
5. When the records are committed (on all in-sync replicas), `replies` are sent. After the replies, the values in `ends`
   are passed to the runtime's `on_end`. A value in `ends` is a committed or aborted transaction that needs its markers,
   or a share partition whose state must be initialized.

A step (one call of the state machine) that logs records does not change soft state (state that is not in the log)
itself: the step puts the change into `changes`. If the step changed soft state itself and the append then failed, a
waiting request could already be missing from the state machine's list, and would never get a reply (S85).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

Waiter = Any
"""A request whose client waits for a reply. State machines treat the waiter as an opaque token, which they store and
pass back.
"""
TimerKey = Hashable
"""The name of a timer of a state machine; also the argument of `Machine.on_timer`."""


class Interruption(Exception):
    """Raised by a step (one call of a state machine) that has changed nothing. The caller must run the step again
    later. The runtime does not treat this exception as a failure of the step."""


class Encoded(NamedTuple):
    """The encoded key and value of a record in the log; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Job(NamedTuple):
    """Work for `key` (a group or transactional id) that takes too long for one step of the state machine. `steps()`
    returns a generator that does the work; it reads the machine's state when it begins. The result of the generator is
    passed to `Machine.on_job` (`coordinator/shard.py`). At most one job with a given name runs for a key. If a step
    requests a job whose name is already running for the key, the job is not started again.
    """

    key: str
    name: str
    steps: Callable[[], Steps[Any]]


class Effects:
    """The actions that one step (one call of a state machine) requests from the runtime. Invariant: each waiter
    (waiting request) gets exactly one reply.
    """

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
        """The producer id and epoch of the transaction that contains the records; None if the records are not part of a
        transaction.
        """
        self.replies: list[tuple[Waiter, Any]] = []
        self.ends: list[Any] = []
        """Values for the runtime's `on_end`, for example committed or aborted transactions. `on_end` is called for each
        value when the records are committed.
        """
        self.changes: list[Callable[[], object]] = []
        """Functions that change soft state (state that is not in the log), called after the records were replayed. The
        functions in `changes` must not raise.
        """
        self.timers: list[tuple[TimerKey, float | None]] = []
        self.jobs: list[Job] = []
        self.may_be_divided = False
        """Whether the records may be appended as several batches. After a crash or a failed append, some of the batches
        may be in the log without the others.
        """
        self.too_large = ErrorCode.UNKNOWN_SERVER_ERROR
        """The error code that the requested API uses for records that are too large for the log."""
        self.afterwards: Callable[[], Effects] | None = None
        """The step (call of the state machine) that runs immediately after these effects were carried out. This step
        may refuse the request by raising a KafkaError.
        """
        self.if_not_logged: Callable[[KafkaError], Effects] | None = None
        """A step (call of the state machine) that runs only if the records cannot be appended. The argument of this
        step is the error; this step must not log records.
        """

    def append(self, record: Any) -> None:
        """Add a record to be logged and then replayed; each state machine has its own type of record."""
        self.records.append(record)

    def reply(self, waiter: Waiter, response: Any | KafkaError) -> None:
        """Reply to `waiter`; a KafkaError is translated into an error response of the requested API."""
        self.replies.append((waiter, response))

    def start_timer(self, key: TimerKey, seconds: float) -> None:
        """Call `on_timer(key)` after `seconds`; replaces an earlier timer with the same key."""
        self.timers.append((key, seconds))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append((key, None))
