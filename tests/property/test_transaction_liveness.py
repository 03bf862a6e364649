"""A transaction coordinator responds to every request, and every transaction ends, whichever records could not be
logged.

The walks are seeded. Unlike the clients of `test_transactions.py`, clients mix transactional ids, epochs and versions
here. Appends fail. Completions of transactions fail, too, and are retried as the I/O part of the coordinator retries
them. At the end of each walk, appends succeed and the longest timeout expires. Afterwards no transaction may be open,
or decided but incomplete.

`TransactionDriver` also checks that each request gets exactly one response, and immediately, and that a step whose
records could not be logged changed nothing.
"""

from __future__ import annotations

import random

import pytest
from tests.support.transactions import P0, P1, TIMEOUT_MS, V1, V2, TransactionDriver

from oncelog_broker.coordinator.transaction.states import IDLE
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch

STEPS = 80
NAMES = ("anna", "bert")


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.driver = TransactionDriver()
        self.producers = [ProducerIdAndEpoch(1, 0)]

    def producer(self) -> ProducerIdAndEpoch:
        known = self.rng.choice(self.producers[-3:])
        return known._replace(epoch=known.epoch + self.rng.choice([0, 0, 0, 0, 0, 1, -1]))

    def init(self) -> None:
        shown = self.producer() if self.rng.random() < 0.4 else None
        timeout_ms = self.rng.choice([1000, TIMEOUT_MS])
        self._learn(self.driver.init(shown, timeout_ms=timeout_ms, name=self.rng.choice(NAMES)))

    def add(self) -> None:
        partitions = self.rng.choice([(P0,), (P1,), (P0, P1)])
        version = self.rng.choice([V1, V2])
        self.driver.add(self.producer(), *partitions, version=version, name=self.rng.choice(NAMES))

    def end(self) -> None:
        commits, version = self.rng.random() < 0.6, self.rng.choice([V1, V2])
        self._learn(self.driver.end(self.producer(), commits, version, name=self.rng.choice(NAMES)))

    def _learn(self, answer: object) -> None:
        if isinstance(answer, ProducerIdAndEpoch):
            self.producers.append(answer)

    def complete(self) -> None:
        """Write the markers of some decisions in any order; retry a completion that cannot be logged."""
        ends, self.driver.ends = self.driver.ends, []
        self.rng.shuffle(ends)
        for number, end in enumerate(ends):
            try:
                if number and self.rng.random() < 0.5:
                    self.driver.ends.append(end)
                else:
                    self.driver.carry_out(self.driver.machine.complete(end))
            except KafkaError:
                self.driver.ends.append(end)

    def sweep(self) -> None:
        try:
            self.driver.abort_timed_out()
            self.driver.expire()
        except KafkaError:
            assert self.driver.fail_appends

    def time_passes(self) -> None:
        self.driver.advance(self.rng.choice([0.5, 2.0, TIMEOUT_MS / 1000 + 1, 8 * 24 * 3600]))

    def appends_fail_or_not(self) -> None:
        self.driver.fail_appends = not self.driver.fail_appends

    def clock_jumps(self) -> None:
        self.driver.wall_offset_ms += self.rng.choice([-1, 1]) * 3600_000

    def reload(self) -> None:
        self.driver.reload()

    def run(self) -> None:
        often = [self.init, self.add, self.add, self.add, self.end, self.end, self.complete]
        seldom = [self.sweep, self.time_passes, self.appends_fail_or_not, self.clock_jumps, self.reload]
        for _ in range(STEPS):
            self.rng.choice(often if self.rng.random() < 0.8 else seldom)()
        self.driver.fail_appends = False
        self.driver.advance(TIMEOUT_MS / 1000 + 1)
        self.sweep()
        while self.driver.ends:
            self.complete()
        left = [each for each in self.driver.machine.transactions.values() if each.state not in IDLE]
        assert not left, f"never ended: {left}"


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(300, 6000, 300))])
def test_s85_every_transaction_ends_whatever_could_not_be_logged(first: int) -> None:
    for seed in range(first, first + 300):
        try:
            Walk(seed).run()
        except (AssertionError, KafkaError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
