"""The shared part of the consume-process-produce pipelines of both libraries.

A pipeline is one of several members of a group that copy a topic, each in its own transactions. A pipeline may end at
any moment: either it stops in the middle of a transaction, or another pipeline with the same transactional id takes
over. The output of the next pair of clients shows whether the end was handled correctly: each line must be copied once.
"""

from __future__ import annotations

import itertools
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from oncelog_testing.history.events import End, Place, Send, Transaction
from oncelog_testing.history.recorder import History
from soak.progress import Progress

PARTITIONS = 3
TRANSACTION_TIMEOUT_MS = 60_000
SESSION_MS = 6_000
RECORDS_PER_TRANSACTION = 20
ABORTS = 0.05
"""The share of transactions that a pipeline aborts on purpose."""
LIVES_SECONDS = (10.0, 40.0)
"""The range of seconds for which a pair of clients lives."""


class Job(NamedTuple):
    addresses: str
    group: str
    source: str
    target: str


class GivenUp(Exception):
    """Raised to abort a transaction on purpose."""


class Notes:
    """Records the transactions of one pipeline in the history. The transactions of a pipeline follow one another and do
    not overlap.
    """

    def __init__(self, name: str, job: Job, history: History, progress: Progress, seed: int) -> None:
        self.name = name
        self.job = job
        self.history = history
        self.progress = progress
        self.rng = random.Random(f"{seed} {name}")
        self._numbers = itertools.count()

    def output(self, source: Place, offset: int, transaction: Transaction) -> Send:
        """Return the output line for an input line in this attempt at a transaction."""
        number = next(self._numbers)
        value = f"{self.name}/{number} {source}@{offset}".encode()
        place = Place(self.job.target, number % PARTITIONS)
        send = self.history.send(self.name, place, value, transaction)
        self.history.derived(send, self.job.group, source, offset)
        return send

    def begin(self) -> Transaction:
        return self.history.transaction(self.name)

    def commit_offsets(self, offsets: Mapping[Place, int], transaction: Transaction) -> None:
        """Record the offsets that the transaction commits; they count as committed if the transaction commits."""
        for place, offset in offsets.items():
            commit = self.history.commit(self.job.group, place, offset, transaction)
            self.history.commit_answered(commit)

    def ended(self, transaction: Transaction, end: End) -> None:
        self.history.ended(transaction, end)
        if end is End.COMMITTED:
            self.progress.note(self.name)
        else:
            self.progress.mishap(self.name, end.value)

    def gives_up(self) -> bool:
        return self.rng.random() < ABORTS

    def lives(self) -> float:
        """Return a random number of seconds for which one pair of clients (producer and consumer) works."""
        return self.rng.uniform(*LIVES_SECONDS)


class Pipeline(ABC):
    """One pipeline; `start` begins its work in a separate thread."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.name = notes.name
        self.failure: BaseException | None = None
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._work_on, daemon=True, name=self.name)

    def start(self) -> None:
        self.notes.progress.begins(self.name)
        self._thread.start()

    def stop(self, patience: float) -> None:
        self.is_over.set()
        self._thread.join(patience)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        self.notes.progress.over(self.name)

    def _work_on(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def work(self) -> None:
        """Until `is_over`."""
