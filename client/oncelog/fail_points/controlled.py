"""Faults that a controller sets and removes while the process runs.

Faults are applied in the process's own thread, while the controller uses another thread; one lock guards the list.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.fail_points.specification import Action

MAX_FAULTS: Final = 1000
"""Maximum number of faults that are set simultaneously, because each time a fail point is reached, all faults are
checked.
"""


class TooManyFaults(Exception):
    """Raised if too many faults are set; remove some."""


@dataclass(slots=True)
class Fault:
    """A fault: `action` is applied at the fail point `point`, to the steps that match the filters. With `is_after`, it
    is applied after the step, otherwise before the step.
    """

    number: int
    point: str
    action: Action
    is_after: bool
    left: int | None
    """How many more times the action is applied; None means at every execution of the step."""
    filters: Mapping[str, str]
    """The keys are `transactional_id`, `topic` and `group_id`; the fault applies only to steps that concern the given
    value.
    """
    struck: int = 0
    """Number of times that the action was applied."""


class ControlledFaults:
    """The faults that are currently set. Each method may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._faults: dict[int, Fault] = {}
        self._last_number = 0
        self._cleared = 0
        self._waiting: dict[Callable[[], object], Fault | None] = {}
        """Callback -> the fault whose removal calls it; each callback ends a delay of a response or of a coroutine
        (other delays block a thread). None means that the callback is called when all faults are removed.
        """

    def add(
        self,
        point: str,
        action: Action,
        *,
        is_after: bool = False,
        times: int | None = 1,
        filters: Mapping[str, str] | None = None,
    ) -> Fault:
        """Set a fault and return it. Raises TooManyFaults."""
        with self._changed:
            if len(self._faults) >= MAX_FAULTS:
                raise TooManyFaults(f"{MAX_FAULTS} faults are set")
            self._last_number += 1
            fault = Fault(self._last_number, point, action, is_after, times, dict(filters or {}))
            self._faults[fault.number] = fault
            return fault

    @property
    def are_set(self) -> bool:
        """Whether any fault is set, including used-up faults."""
        return bool(self._faults)

    def all(self) -> list[Fault]:
        """Return all faults that were not removed, including used-up faults, so that their hit counts can be read."""
        with self._changed:
            return list(self._faults.values())

    def get(self, number: int) -> Fault | None:
        return self._faults.get(number)

    def remove(self, number: int) -> bool:
        """Remove a fault, and end the delays that it currently causes. Returns whether the fault existed."""
        with self._changed:
            fault = self._faults.pop(number, None)
            if fault is None:
                return False
            self._changed.notify_all()
            told = [tell for tell, waits_for in self._waiting.items() if waits_for is fault]
            for tell in told:
                del self._waiting[tell]
        for tell in told:
            tell()
        return True

    def clear(self) -> None:
        """Remove all faults, and end their current delays."""
        with self._changed:
            self._faults.clear()
            self._cleared += 1
            self._changed.notify_all()
            waiting, self._waiting = self._waiting, {}
        for tell in waiting:
            tell()

    def when_taken_back(self, fault: Fault | None, tell: Callable[[], object]) -> Callable[[], None]:
        """Call `tell` once, in the thread that removes `fault`, unless the returned function is called before. If the
        fault was already removed, call `tell` immediately. A `fault` of None means: when all faults are removed.
        """
        with self._changed:
            is_gone = fault is not None and not self._is_set(fault)
            if not is_gone:
                self._waiting[tell] = fault
        if is_gone:
            tell()

        def forget() -> None:
            with self._changed:
                self._waiting.pop(tell, None)

        return forget

    def sleep(self, seconds: float, fault: Fault | None = None) -> None:
        """Block the thread for `seconds`, or until `fault` is removed; a `fault` of None means until all faults are
        removed.
        """
        with self._changed:
            before = self._cleared
            self._changed.wait_for(
                lambda: self._cleared != before or (fault is not None and not self._is_set(fault)), seconds
            )

    async def pause(self, seconds: float, fault: Fault | None = None) -> None:
        """Wait in a coroutine for `seconds`, or until `fault` is removed; the event loop continues."""
        loop = asyncio.get_running_loop()
        is_over = asyncio.Event()
        forget = self.when_taken_back(fault, lambda: loop.call_soon_threadsafe(is_over.set))
        try:
            async with asyncio.timeout(seconds):
                await is_over.wait()
        except TimeoutError:
            pass
        finally:
            forget()

    def _is_set(self, fault: Fault) -> bool:
        return self._faults.get(fault.number) is fault

    def until_struck(self, fault: Fault, times: int, seconds: float) -> bool:
        """Wait until the fault has struck `times` times. Returns False after a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: fault.struck >= times, seconds)

    def taken(
        self, point: str, *, is_after: bool, about: Callable[[], Mapping[str, Collection[str | None]]]
    ) -> Iterator[Fault]:
        """Yield the faults that apply to this execution of the step, one after another; each fault counts the
        execution. `about` returns the topics, groups and transactional ids of the step, and is called only if a filter
        must be compared.
        """
        if not self._faults:
            return
        with self._changed:
            named = None
            due = []
            for fault in self._faults.values():
                if fault.point != point or fault.is_after != is_after or fault.left == 0:
                    continue
                if fault.filters:
                    named = about() if named is None else named
                    if any(wanted not in named.get(name, ()) for name, wanted in fault.filters.items()):
                        continue
                fault.struck += 1
                fault.left = None if fault.left is None else fault.left - 1
                due.append(fault)
            if due:
                self._changed.notify_all()
        for fault in due:
            if self._is_set(fault):  # the fault may have been removed during the delay of the previous fault
                yield fault
