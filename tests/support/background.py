"""Runs work in its own thread for the length of a `with` block, and re-raises the exception that ended the work."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self


class Background(ABC):
    """A thread that repeats its work until the `with` block ends.

    Leaving the block raises the exception of the work, or AssertionError if the thread does not end in time.
    """

    def __init__(self, patience_seconds: float) -> None:
        """`patience` limits every wait of this object, in seconds."""
        self._patience_seconds = patience_seconds
        self._is_over = threading.Event()
        self._progress = threading.Condition()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(self._patience_seconds)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"

    @property
    def is_over(self) -> bool:
        """True when the `with` block is ending, so that the work must stop."""
        return self._is_over.is_set()

    @abstractmethod
    def _work(self) -> None:
        """Repeat the work until `is_over` is true; each subclass implements its work in this method."""

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            with self._progress:
                self._failure = error
                self._progress.notify_all()

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until `condition` is true. The work notifies the condition variable `_progress` of each change.

        Raises the exception that ended the work, and AssertionError if the wait takes longer than `patience`.
        """
        with self._progress:
            is_done = self._progress.wait_for(lambda: is_so() or self._failure is not None, self._patience_seconds)
            if not is_so() and self._failure is not None:
                raise self._failure
        assert is_done, f"not within {self._patience_seconds:g} s: {what}"
