"""Wakes the coordinator runtime when timers of its state machines are due, and passes the due timers to the runtime.

Invariant: while this broker may lead, a wake-up is scheduled for the earliest deadline of all shards, or for an earlier
time. Postponing a timer, as each heartbeat does, keeps the invariant without work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from oncelog_broker.coordinator.effects import TimerKey
from oncelog_broker.coordinator.shard import Shard
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.steps import Steps

TIMER_RETRY_SECONDS: Final = 1.0
"""While this broker may not lead, or after the handler of an expired timer could not append its records, the timers are
handled again after this number of seconds.
"""


class TimerWakes:
    """Runs the timers of all shards (state machines with their partitions) of one runtime."""

    def __init__(
        self,
        host: Host,
        shards: Mapping[int, Shard[Any]],
        may_lead: Callable[[], bool],
        fire: Callable[[Shard[Any], TimerKey], None],
    ) -> None:
        """`shards` are the runtime's current shards by partition index. `may_lead` returns whether timers may be
        handled now; `fire` handles one due timer, and never raises.
        """
        self._clock = host.clock
        self._deadlines = host.deadlines
        self._slices = host.slices
        self._shards = shards
        self._may_lead = may_lead
        self._fire = fire
        self._woken_at = float("inf")
        """The monotonic time, in seconds, of the earliest scheduled wake-up."""
        self._is_firing = False

    def set(self, shard: Shard[Any], key: TimerKey, seconds: float) -> None:
        """Start a timer of a state machine, which expires after `seconds`; replaces an earlier timer with this key."""
        if shard.timers.set(key, self._clock.monotonic() + seconds):
            self.wake_in_time(shard)

    def wake_in_time(self, shard: Shard[Any]) -> None:
        """Schedule a wake-up for the earliest timer of a shard, unless an earlier wake-up is scheduled."""
        due = shard.timers.next_due()
        if due is not None and due < self._woken_at:
            self._woken_at = due
            self._deadlines.after(max(0.0, due - self._clock.monotonic()), lambda: self._wake(due))

    def _wake(self, due: float) -> None:
        """Run the due timers. If an earlier wake-up has been scheduled since, this wake-up is outdated and does
        nothing.
        """
        if due == self._woken_at:
            self.fire_due()

    def fire_due(self) -> None:
        """Run the due timers in slices. Many timers may be due at once, because the session timers of all groups of a
        partition start when the partition is loaded (S87)."""
        if self._is_firing:
            return  # `_fire_each` checks afterwards for timers that became due meanwhile
        if not self._may_lead():
            self._woken_at = self._clock.monotonic() + TIMER_RETRY_SECONDS
            self._deadlines.after(TIMER_RETRY_SECONDS, partial(self._wake, self._woken_at))
            return
        self._is_firing = True
        self._slices.run(self._fire_each())

    def _fire_each(self) -> Steps[None]:
        now = self._clock.monotonic()
        try:
            for shard in list(self._shards.values()):
                due = shard.timers.pop_due(now)
                while self._is_current(shard) and self._may_lead() and (timer := next(due, None)) is not None:
                    self._fire(shard, timer)
                    yield None
        finally:
            self._is_firing = False
            self._woken_at = float("inf")
            for shard in self._shards.values():
                self.wake_in_time(shard)

    def _is_current(self, shard: Shard[Any]) -> bool:
        return self._shards.get(shard.index) is shard
