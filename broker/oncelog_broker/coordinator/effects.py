"""What a step of a coordinator's state machine asks for, as values. The runtime carries it out, in this order:

1. `records` are appended to the log as one batch. If that fails, nothing of the rest happens, the machine stays as it
   was, and the one request that asked gets the error.
2. Each record is replayed into the machine: that alone changes what is durable.
3. `timers` are set or cancelled.
4. When the records are committed (on all in-sync replicas), `replies` leave.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from oncelog_protocol.errors import KafkaError

Waiter = Any
"""Who waits for a reply: a token from the rim, which the machine keeps and gives back and never looks into."""
TimerKey = Hashable
"""Names a timer of a machine; it comes back in `on_timer`."""


class Encoded(NamedTuple):
    """A record as it lies in the log; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


TOMBSTONE_OVERHEAD: Final = 64
"""Bytes of a tombstone in a batch beside the names in its key, at most; a share of the batch's own header included."""


class Effects:
    """One step. Invariant: a waiter is replied to once in its life."""

    __slots__ = ("producer", "records", "replies", "timers")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.producer: tuple[int, int] | None = None
        """The producer id and epoch in whose transaction the records are; None: in none."""
        self.replies: list[tuple[Waiter, Any]] = []
        self.timers: list[tuple[TimerKey, float | None]] = []

    def append(self, record: Any) -> None:
        """A record of the machine's own kind, to be logged and then replayed."""
        self.records.append(record)

    def reply(self, waiter: Waiter, response: Any | KafkaError) -> None:
        """Answer `waiter`; a KafkaError becomes the response of its API that carries it."""
        self.replies.append((waiter, response))

    def start_timer(self, key: TimerKey, seconds: float) -> None:
        """`on_timer(key)` in so many seconds, instead of when it was set for before."""
        self.timers.append((key, seconds))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append((key, None))
