"""Applies the rules of ONCELOG_FAIL_POINTS and the controlled faults to the points that are hit."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from oncelog.fail_points.controlled import ControlledFaults, Fault
from oncelog.fail_points.specification import OF_THE_STEP, Action, InvalidFailPoints, Kind, Rule, parse_action

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)


FILTERS: Final = ("transactional_id", "topic", "group_id")
"""The names of the filters that a fault may have."""


class Step:
    """A step: a function that is decorated as a fail point. A step comes with two further functions: one returns the
    fail point of a call, and the other returns the result that the caller gets if the step is dropped.
    """

    __slots__ = ("dropped", "function", "which")

    def __init__(
        self, function: Callable[..., Any], which: Callable[..., str | None], dropped: Callable[[], Any] | None
    ) -> None:
        self.function = function
        self.which = which
        self.dropped = dropped

    @property
    def is_coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def check(self, action: Action) -> None:
        """Raise InvalidFailPoints for an action that the step does not support."""
        can_come_later = self.is_coroutine or self.dropped is not None
        if (action.kind is Kind.DROP and self.dropped is None) or (action.kind is Kind.REORDER and not can_come_later):
            raise InvalidFailPoints(f"{self.function.__qualname__} cannot {action.kind}: its result is needed")

    def left_out(self) -> Any:
        assert self.dropped is not None, "checked before"
        return self.dropped()


class Hit:
    """One call of a function that is a fail point, and the effect of a fault on this call."""

    __slots__ = ("args", "kind", "kwargs", "number", "point", "step")

    def __init__(self, step: Step, point: str, number: int, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.step = step
        self.point = point
        self.number = number
        self.args, self.kwargs = args, kwargs
        self.kind = Kind.GO

    @property
    def times(self) -> int:
        """Number of times that the step is executed in this call: 2 if the fault duplicates the step, otherwise 1."""
        return 2 if self.kind is Kind.DUPLICATE else 1

    def about(self) -> Mapping[str, list[str]]:
        """Return filter name -> subjects of the step: arguments with that name, and attributes with that name of its
        arguments.
        """
        arguments = inspect.signature(self.step.function).bind(*self.args, **self.kwargs).arguments
        found = {}
        for name in FILTERS:
            values = [arguments.get(name), *(getattr(each, name, None) for each in arguments.values())]
            found[name] = [value for value in values if isinstance(value, str)]
        return found


class Faults:
    """The rules of ONCELOG_FAIL_POINTS, the number of times that each fail point was reached, and the reordered steps
    that wait for
    the next step of their fail point.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._hits: Counter[str] = Counter()
        self._held: dict[str, list[Callable[[], None]]] = {}
        self._questions: dict[str, Questions] = {}
        self.controlled = ControlledFaults()
        self.steps: dict[str, Step] = {}
        """Point -> decorated function, for the imported modules."""

    def obey(self, rules: Iterable[Rule]) -> None:
        """Add rules, also for steps that are already decorated. Raises InvalidFailPoints for an unsupported action."""
        rules = list(rules)
        for rule in rules:
            if rule.point in self.steps:
                self.steps[rule.point].check(rule.action)
        self._rules += rules

    def wrap(
        self,
        function: F,
        points: Sequence[str],
        which: Callable[..., str | None],
        dropped: Callable[[], Any] | None,
    ) -> F:
        """Decorate `function` as the step of `points`. Raises InvalidFailPoints if a rule has an unsupported action."""
        step = Step(function, which, dropped)
        for rule in self._rules:
            if rule.point in points:
                step.check(rule.action)
        self.steps.update(dict.fromkeys(points, step))
        wrapper = _coroutine_at(self, step) if step.is_coroutine else _function_at(self, step)
        return cast(F, functools.update_wrapper(wrapper, function))

    def hit(self, step: Step, args: Sequence[Any], kwargs: dict[str, Any]) -> Hit | None:
        """Return a `Hit` if this call of the function reaches a fail point, otherwise None."""
        point = step.which(*args, **kwargs)
        if point is None:
            return None
        self._hits[point] += 1
        return Hit(step, point, self._hits[point], args, kwargs)

    def delays(self, hit: Hit, *, is_after: bool) -> Iterator[tuple[float, Fault | None]]:
        """Apply the faults that were set for the time before the step, or for the time after it. Yields pairs: the
        seconds for which the caller must sleep, and the fault whose removal ends the sleep.
        """
        for action, fault in self._actions(hit, is_after):
            if action.kind is Kind.CRASH:
                crash()
            elif action.kind is Kind.DELAY:
                yield action.delay_ms / 1000, fault
            elif action.kind in OF_THE_STEP:
                hit.kind = action.kind

    def _actions(self, hit: Hit, is_after: bool) -> Iterator[tuple[Action, Fault | None]]:
        """Yield each action with the controlled fault that caused it; None for an action of a rule."""
        for rule in self._rules:
            if rule.point != hit.point or rule.is_after != is_after or rule.hit not in (None, hit.number):
                continue
            action = rule.action
            if action.kind is Kind.ASK:
                action = self._ask(action.socket_path, hit, is_after)
                hit.step.check(action)
            yield action, None
        for fault in self.controlled.taken(hit.point, is_after=is_after, about=hit.about):
            yield fault.action, fault

    def _ask(self, path: str, hit: Hit, is_after: bool) -> Action:
        if path not in self._questions:
            self._questions[path] = Questions(path)
        return self._questions[path].ask(f"{'after' if is_after else 'before'} {hit.point} {hit.number}")

    def hold(self, hit: Hit, later: Callable[[], None]) -> None:
        """Store `later`, to be called when the next step of this point is done."""
        self._held.setdefault(hit.point, []).append(later)

    def release(self, hit: Hit) -> None:
        """Run the steps that a fault has delayed until after the step of `hit`."""
        for later in self._held.pop(hit.point, ()):
            later()


class Questions:
    """A client of the socket on which a test decides about each action. The process waits for the test's response."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._answers = self._socket.makefile("r")

    def ask(self, question: str) -> Action:
        """Ask the test what to do at this fail point. If the test does not respond, for example because it has ended,
        the process continues.
        """
        try:
            self._socket.sendall(f"{question}\n".encode())
            answer = self._answers.readline()
        except OSError:
            answer = ""
        return parse_action(answer.strip() or Kind.GO)


def crash() -> None:
    """Kill this process with SIGKILL, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _function_at(faults: Faults, step: Step) -> Callable[..., Any]:
    """Return the wrapper of a plain function: a delay blocks the process, and a reordered step looks dropped to its
    caller.
    """

    def at_point(*args: Any, **kwargs: Any) -> Any:
        hit = faults.hit(step, args, kwargs)
        if hit is None:
            return step.function(*args, **kwargs)
        for seconds, fault in faults.delays(hit, is_after=False):
            faults.controlled.sleep(seconds, fault)
        if hit.kind is Kind.REORDER:
            faults.hold(hit, functools.partial(_do_late, step.function, [_kept(value) for value in args], kwargs))
            return step.left_out()
        result = None
        try:
            if hit.kind is Kind.DROP:
                return step.left_out()
            for _ in range(hit.times):
                result = step.function(*args, **kwargs)
        finally:
            faults.release(hit)
        for seconds, fault in faults.delays(hit, is_after=True):
            faults.controlled.sleep(seconds, fault)
        return result

    return at_point


def _coroutine_at(faults: Faults, step: Step) -> Callable[..., Any]:
    """Return the wrapper of a coroutine function: a delay, or the wait of a reordered step for the next step, makes
    only the caller wait.
    """

    async def at_point(*args: Any, **kwargs: Any) -> Any:
        hit = faults.hit(step, args, kwargs)
        if hit is None:
            return await step.function(*args, **kwargs)
        for seconds, fault in faults.delays(hit, is_after=False):
            await faults.controlled.pause(seconds, fault)
        if hit.kind is Kind.REORDER:
            next_is_done = asyncio.Event()
            faults.hold(hit, next_is_done.set)
            await next_is_done.wait()
        result = None
        try:
            if hit.kind is Kind.DROP:
                return step.left_out()
            for _ in range(hit.times):
                result = await step.function(*args, **kwargs)
        finally:
            faults.release(hit)
        for seconds, fault in faults.delays(hit, is_after=True):
            await faults.controlled.pause(seconds, fault)
        return result

    return at_point


def _kept(value: Any) -> Any:
    """Return a copy, because records may lie in a receive buffer that is reused before a held step runs."""
    return memoryview(bytearray(value)) if isinstance(value, memoryview) else value


def _do_late(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    try:
        function(*args, **kwargs)
    except Exception:
        logger.info("a held step failed, after its caller had stopped waiting", exc_info=True)
