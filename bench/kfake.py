"""Compares our broker with kfake, the fake broker of franz-go, under librdkafka: `python bench/run.py --only kfake`.

kfake (`kfake/main.go`) keeps all records in memory and answers in Go. Its transactions of one record, one after
another, take turns A B B A with ours. librdkafka itself waits for a millisecond in each transaction, so the CPU of the
broker per transaction tells more than the time.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import broker_cost as cost
from broker_process import BrokerProcess
from maven import BUILD, Unavailable, fetch, need
from one_record_transactions import librdkafka
from table import Add
from transaction_clients import Produced

HERE: Final = Path(__file__).parent
OURS, FAKE = "oncelog", "kfake"
COUNT: Final = 100
RUNS: Final = 3
TURNS: Final = 4
RECORD_BYTES: Final = 100
TOPIC: Final = "one-record"


class Turn(NamedTuple):
    """One turn: what librdkafka did, and the CPU seconds of the broker."""

    produced: Produced
    broker_cpu: float


class Side(NamedTuple):
    """One of the two brokers."""

    name: str
    address: str
    pid: int

    def run(self, number: int, count: int) -> Turn:
        """Run transactions with a new producer; `number` is the number of this turn."""
        with cost.pinned(self.pid, together=False):
            cpu = cost.cpu_seconds(self.pid)
            produced = librdkafka(self.address, f"{TOPIC}-{number % 4}", RECORD_BYTES, count)
            return Turn(produced, cost.cpu_seconds(self.pid) - cpu)


def measure(add: Add, scale: int) -> None:
    """Measure both brokers; the number of transactions is divided by `scale`."""
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            BrokerProcess(Path(directory) / "data") as broker,
            _kfake() as fake,
        ):
            sides = (Side(OURS, broker.address, broker.pid), fake)
            turns: dict[str, list[Turn]] = {side.name: [] for side in sides}
            for number in range(-2, 2 if scale > 1 else RUNS * TURNS):
                for side in sides if number % 2 == 0 else reversed(sides):
                    turn = side.run(number, COUNT // scale)
                    if number >= 0:  # the first turns are a warm-up
                        turns[side.name].append(turn)
    except Unavailable as reason:
        print(f"no comparison with kfake: {reason}")
        return
    what = "librdkafka, transaction of one record"
    for name, mine in turns.items():
        milliseconds = [turn.produced.seconds / turn.produced.records * 1000 for turn in mine]
        add(f"{what}: {name}", statistics.median(milliseconds), "ms")
        add(f"{what}, broker: {name}", statistics.median(_cpus(mine)), "CPU us/txn")
    pairs = list(zip(turns[OURS], turns[FAKE], strict=True))
    ratios = [ours.produced.seconds / fake.produced.seconds for ours, fake in pairs]
    add(f"{what}: {OURS} against {FAKE}", statistics.median(ratios), "time ratio", at_most=1.0)
    add(f"{what}: {OURS} against {FAKE}, lowest", min(ratios), "time ratio")
    add(f"{what}: {OURS} against {FAKE}, highest", max(ratios), "time ratio")


def _cpus(turns: list[Turn]) -> list[float]:
    return [turn.broker_cpu / turn.produced.records * 1e6 for turn in turns]


@contextlib.contextmanager
def _kfake() -> Iterator[Side]:
    """Build kfake and run it until the end of the block. Raises Unavailable."""
    need("go")
    program = BUILD / "kfake"
    BUILD.mkdir(parents=True, exist_ok=True)
    fetch(["go", "build", "-C", str(HERE / "kfake"), "-o", str(program), "."], "kfake")
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Side(FAKE, process.stdout.readline().strip(), process.pid)
        finally:
            process.kill()
