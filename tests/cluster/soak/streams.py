"""Runs Kafka Streams applications with exactly_once_v2; one instance after another is killed and restarted."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from exact_counts import LineWriter, Reader, check
from streams_app import StreamsInstance

from soak.progress import Progress

PREFIX = "app"
TOPICS = tuple(f"{PREFIX}-{name}" for name in ("lines", "copies", "counts"))
LINE_EVERY_SECONDS = 0.2
LIVES_SECONDS = (25.0, 60.0)
STARTS_SECONDS = 5.0
JOIN_SECONDS = 60.0
STANDSTILL_SECONDS = 30.0
"""New consumers replace the readers of the copies and counts after this many seconds, because a librdkafka consumer may
stop reading permanently (`readers`).
"""


class Streams:
    """Two instances of the applications, a writer of the applications' input, and a reader of their copies and
    counts.
    """

    name = "streams"

    def __init__(self, class_path: str, address: str, directory: Path, progress: Progress, seed: int) -> None:
        self.failure: BaseException | None = None
        self._address = address
        self._progress = progress
        self._rng = random.Random(f"{seed} streams")
        self._writer = LineWriter(address, TOPICS[0], LINE_EVERY_SECONDS)
        self._readers = [Reader(address, topic) for topic in TOPICS[1:]]
        self._instances = [
            StreamsInstance(class_path, address, PREFIX, directory / f"streams{number}") for number in (1, 2)
        ]
        self._is_over = threading.Event()
        self._are_whole = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True, name="reader of streams")
        self._killing = threading.Thread(target=self._kill, daemon=True, name="killer of streams")

    def start(self) -> None:
        self._progress.begins(self.name)
        self._writer.start()
        for instance in self._instances:
            instance.start()
        self._reading.start()
        self._killing.start()

    def finish(self) -> None:
        """Stop writing, and stop killing instances."""
        self._are_whole.set()
        self._killing.join(JOIN_SECONDS)
        self._writer.stop()

    def has_finished(self) -> bool:
        copies, counts = self._readers
        return (
            copies.total >= sum(map(len, self._writer.lines.values())) and counts.total >= self._writer.counts.total()
        )

    def stop(self) -> None:
        """Raises AssertionError if a count is wrong."""
        self._end_reading()
        for instance in self._instances:
            instance.stop()
        check(self._address, self._writer)

    def close(self) -> None:
        """Stop all instances and clients, in whatever state they are."""
        self._are_whole.set()
        self._writer.give_up()
        if self._killing.is_alive():
            # the thread may be about to start an instance, and that instance must be stopped, too
            self._killing.join(JOIN_SECONDS)
        self._end_reading()
        for instance in self._instances:
            if instance.is_running:
                instance.kill()
        for reader in self._readers:
            reader.close()

    def _end_reading(self) -> None:
        self._is_over.set()
        if self._reading.is_alive():
            self._reading.join(JOIN_SECONDS)
        self._progress.over(self.name)

    def _read(self) -> None:
        read_at = dict.fromkeys(self._readers, time.monotonic())
        try:
            while not self._is_over.is_set():
                for reader in self._readers:
                    before = reader.total
                    if reader.read_on() > before:
                        self._progress.note(self.name)
                        read_at[reader] = time.monotonic()
                    elif time.monotonic() > read_at[reader] + STANDSTILL_SECONDS:
                        reader.read_anew()
                        read_at[reader] = time.monotonic()
        except BaseException as error:
            self.failure = error

    def _kill(self) -> None:
        try:
            while not self._are_whole.wait(self._rng.uniform(*LIVES_SECONDS)):
                instance = self._rng.choice(self._instances)
                instance.kill()
                self._progress.mishap(self.name, "an instance was killed")
                time.sleep(self._rng.uniform(0.0, STARTS_SECONDS))
                instance.start()
        except BaseException as error:
            self.failure = error
