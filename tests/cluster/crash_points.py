"""Lets brokers stop at their fail points until the test tells them how to continue, so that a test can kill the first
broker that reaches a chosen fail point.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Self

from kill_matrix.questions import GO, Hit, Questions
from recording_clients import Loop

CRASH = "crash"


class CrashPoints:
    """A context manager that listens for brokers which have reached a fail point; `specification` is the value of
    ONCELOG_FAIL_POINTS for the brokers.
    """

    def __init__(self, directory: Path, points: Collection[str]) -> None:
        self._loop = Loop()
        self._questions = Questions(directory / "questions.sock", self._decide)
        self._awaited: Hit | None = None
        self.struck = threading.Event()
        """An event that is set when a broker is being killed at the fail point for which the test last requested a
        kill.
        """
        self.specification = self._questions.specification(points)

    def __enter__(self) -> Self:
        self._loop.run(self._questions.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._questions.close())
        self._loop.close()

    def arm(self, when: str, point: str) -> None:
        """Kill the next broker that reaches this fail point, and only that broker; `when` is "before" or "after" the
        step.
        """
        self.struck.clear()
        self._awaited = Hit(when, point)

    def disarm(self) -> None:
        self._awaited = None

    async def _decide(self, hit: Hit) -> str:
        if hit != self._awaited:
            return GO
        self._awaited = None
        self.struck.set()
        return CRASH
