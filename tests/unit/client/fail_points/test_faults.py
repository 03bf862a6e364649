"""Faults are injected into functions, methods and coroutine functions. Faults that kill a process are tested in a
separate process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.fail_points.controlled import ControlledFaults
from oncelog.fail_points.faults import Faults
from oncelog.fail_points.specification import InvalidFailPoints, parse_specification


def faults(text: str) -> Faults:
    return Faults(parse_specification(text, ("one", "other")))


def marked(rules: Faults, function: Callable[..., Any], dropped: Callable[[], Any] | None = lambda: "dropped") -> Any:
    return rules.wrap(function, ["one"], lambda *_: "one", dropped)


class Steps:
    """Functions to inject faults into; each records that it ran."""

    def __init__(self, rules: Faults) -> None:
        self.done: list[object] = []
        self.function = marked(rules, self._function)
        self.coroutine = marked(rules, self._coroutine)

    def _function(self, what: object) -> object:
        self.done.append(what)
        return what

    async def _coroutine(self, what: object) -> object:
        await asyncio.sleep(0)
        return self._function(what)


async def call(steps: Steps, is_coroutine: bool, what: object) -> object:
    return await steps.coroutine(what) if is_coroutine else steps.function(what)


KINDS = pytest.mark.parametrize("is_coroutine", [False, True], ids=["function", "coroutine"])


@KINDS
async def test_a_rule_may_apply_to_the_nth_hit_only(is_coroutine: bool) -> None:
    steps = Steps(faults("one@2 = drop; other = drop"))
    assert [await call(steps, is_coroutine, n) for n in (1, 2, 3)] == [1, "dropped", 3]
    assert steps.done == [1, 3]


@KINDS
async def test_a_rule_applies_to_every_hit(is_coroutine: bool) -> None:
    steps = Steps(faults("one = duplicate"))
    assert [await call(steps, is_coroutine, n) for n in (1, 2)] == [1, 2]
    assert steps.done == [1, 1, 2, 2]


@KINDS
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delay_may_come_before_or_after_the_step(
    is_coroutine: bool, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = faults(f"one = {when} delay 50")
    done: list[str | float] = []

    async def coroutine() -> None:
        done.append("step")

    async def pause(_: ControlledFaults, seconds: float, __: object) -> None:
        done.append(seconds)

    monkeypatch.setattr(ControlledFaults, "sleep", lambda _, seconds, __: done.append(seconds))
    monkeypatch.setattr(ControlledFaults, "pause", pause)
    if is_coroutine:
        await marked(rules, coroutine)()
    else:
        marked(rules, lambda: done.append("step"))()
    assert done == ([0.05, "step"] if when == "before" else ["step", 0.05])


def test_a_function_that_comes_later_looks_left_out_until_the_next_one() -> None:
    steps = Steps(faults("one@1 = reorder"))
    buffer = bytearray(b"first")
    assert steps.function(memoryview(buffer)) == "dropped"
    buffer[:] = b"again"  # simulates a receive buffer that is reused
    assert steps.done == []
    assert steps.function(2) == 2
    assert steps.done == [2, b"first"]


async def test_a_coroutine_that_comes_later_waits_for_the_next_one() -> None:
    steps = Steps(faults("one@1 = reorder"))
    first = asyncio.ensure_future(steps.coroutine(1))
    await asyncio.sleep(0)
    assert await steps.coroutine(2) == 2
    assert await first == 1
    assert steps.done == [2, 1]


@KINDS
async def test_a_held_step_comes_after_one_that_fails(is_coroutine: bool) -> None:
    rules = faults("one@1 = reorder")
    done: list[int] = []

    def function(what: int) -> None:
        if what != 1:
            raise ConnectionError
        done.append(what)

    async def coroutine(what: int) -> None:
        function(what)

    step = marked(rules, coroutine if is_coroutine else function)
    if is_coroutine:
        held = asyncio.ensure_future(step(1))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            await step(2)
        await held
    else:
        step(1)
        with pytest.raises(ConnectionError):
            step(2)
    assert done == [1]


def test_methods_keep_their_names_and_what_is_dropped_may_raise() -> None:
    rules = faults("one@2 = drop")

    class Log:
        def refused(self=None) -> None:  # type: ignore[no-untyped-def]
            raise ConnectionError

        def append(self, what: int) -> int:
            """A step that appends a value."""
            return what

        append = marked(rules, append, refused)

    assert (Log.append.__name__, Log.append.__doc__) == ("append", "A step that appends a value.")
    assert Log().append(1) == 1
    with pytest.raises(ConnectionError):
        Log().append(2)


def test_a_step_may_be_at_one_point_or_another_or_none() -> None:
    rules = faults("one = drop; other = duplicate")
    done: list[str | None] = []
    step = rules.wrap(done.append, ["one", "other"], lambda what: what, lambda: None)
    for what in ("one", "other", None):
        step(what)
    assert done == ["other", "other", None]


@pytest.mark.parametrize("action", ["drop", "reorder"])
def test_a_result_that_is_needed_cannot_be_left_out(action: str) -> None:
    def needed() -> int:
        return 1

    with pytest.raises(InvalidFailPoints, match=f"needed cannot {action}: its result is needed"):
        marked(faults(f"one = {action}"), needed, None)


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """A function `answers(path, *texts)` that responds to questions with these texts in order and then disconnects; it
    returns the questions.
    """
    threads = []

    def serve(path: Path, *texts: str) -> list[str]:
        asked: list[str] = []
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()

        def run() -> None:
            connection, _ = listening.accept()
            with listening, connection, connection.makefile("rw") as lines:
                for text in texts:
                    asked.append(lines.readline().strip())
                    lines.write(f"{text}\n")
                    lines.flush()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return asked

    yield serve
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@KINDS
async def test_the_test_decides_when_asked(
    answers: Callable[..., list[str]], tmp_path: Path, is_coroutine: bool
) -> None:
    path = tmp_path / "questions.sock"
    asked = answers(path, "go", "drop", "duplicate", "go", "delay 1")
    steps = Steps(faults(f"one = ask {path}; one@3 = after ask {path}"))
    assert [await call(steps, is_coroutine, n) for n in range(1, 5)] == [1, "dropped", 3, 4]
    assert steps.done == [1, 3, 3, 4]
    assert asked == ["before one 1", "before one 2", "before one 3", "after one 3", "before one 4"]
    assert await call(steps, is_coroutine, 5) == 5  # the test has disconnected, so the step continues


async def test_a_go_answer_does_not_prevent_a_drop(answers: Callable[..., list[str]], tmp_path: Path) -> None:
    path = tmp_path / "questions.sock"
    answers(path, "go")
    steps = Steps(faults(f"one = drop; one = ask {path}; one = delay 0"))
    assert steps.function(1) == "dropped"


async def test_an_impossible_answer_is_refused(answers: Callable[..., list[str]], tmp_path: Path) -> None:
    path = tmp_path / "questions.sock"
    answers(path, "drop")
    with pytest.raises(InvalidFailPoints, match="cannot drop"):
        marked(faults(f"one = ask {path}"), lambda: 1, None)()


CRASHES = """
import asyncio
from oncelog.fail_points.point import fail_point

@fail_point("append")
def function():
    print("done", flush=True)

@fail_point("prepare-logged")
async def coroutine():
    function()

asyncio.run(coroutine())
"""


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("append = crash", ""),
        ("append = after crash", "done\n"),
        ("prepare-logged = crash", ""),
        ("prepare-logged@1 = after crash", "done\n"),
    ],
)
def test_a_crash_may_come_before_or_after_the_step(text: str, printed: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", CRASHES],
        env={**os.environ, "ONCELOG_FAIL_POINTS": text},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (process.returncode, process.stdout) == (-signal.SIGKILL, printed)


def test_a_bad_specification_ends_the_process_with_the_reason() -> None:
    process = subprocess.run(
        [sys.executable, "-c", CRASHES],
        env={**os.environ, "ONCELOG_FAIL_POINTS": "append = burn"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.returncode == 1
    last = process.stderr.splitlines()[-1]
    assert "InvalidFailPoints: ONCELOG_FAIL_POINTS: 'append = burn': unknown action 'burn'" in last
