"""Idempotent producers that write numbered lines; each producer has its own rate."""

from __future__ import annotations

import itertools
import threading

from recording_clients import RecordingProducer

from oncelog_testing.history.events import Place
from soak.progress import Progress

UNDER_WAY = 50
PATIENCE_SECONDS = 80.0


class LineWriter:
    """Sends records to all given partitions in rotation, in a separate thread. A context manager that starts the
    thread, and ends it with all records flushed.
    """

    def __init__(self, producer: RecordingProducer, places: list[Place], per_second: float, progress: Progress) -> None:
        self.producer = producer
        self.name = producer.name
        self.failure: BaseException | None = None
        self._places = itertools.cycle(places)
        self._pause = 1 / per_second
        self._progress = progress
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=self.name)
        self._acknowledged = 0

    def start(self) -> None:
        self._progress.begins(self.name)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing; return when the outcome of all records is known."""
        self._is_over.set()
        self._thread.join(PATIENCE_SECONDS)
        self.producer.flush()
        self._progress.over(self.name)

    def close(self) -> None:
        self._is_over.set()
        self.producer.close()

    @property
    def given_up(self) -> int:
        """The number of records that the producer has given up."""
        return self.producer.answered - self.producer.acknowledged

    def _work(self) -> None:
        try:
            while not self._is_over.wait(self._pause):
                self.producer.send(next(self._places))
                self._look()
                self.producer.wait_for(self._may_go_on)
        except BaseException as error:
            self.failure = error

    def _may_go_on(self) -> bool:
        self._look()
        return self.producer.sent - self.producer.answered < UNDER_WAY or self._is_over.is_set()

    def _look(self) -> None:
        if self.producer.acknowledged > self._acknowledged:
            self._acknowledged = self.producer.acknowledged
            self._progress.note(self.name)
