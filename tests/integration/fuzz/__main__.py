"""Runs the fuzzer: `make fuzz`, or `python -m fuzz --seed 7 --seconds 600`; the exit code is 1 if a defect was
found.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from broker_memory import BrokerMemory
from broker_process import BrokerProcess
from honest_prober import MAX_WORST_MS, HonestProber, Waits, idle_prober, most_of

from fuzz.cases import cases
from fuzz.run import SETTINGS, Fuzzer, Outcome
from fuzz.world import World

MAX_GROWTH_MB = 64
"""After any number of requests, a broker may keep this much memory in MB: for topics, groups, producers and quotas, for
newly imported modules, and memory that its allocator does not return. A broker usually keeps some 50 MB.
"""


def slowest(waits: Waits, outcome: Outcome) -> Iterator[tuple[float, str]]:
    """Yield for each API the longest wait in ms, and its case."""
    apis: set[str] = set()
    for sample in sorted(waits.samples, key=lambda sample: -sample.net):
        words = outcome.case_during(sample.started, sample.started + sample.wall)
        api = words.split()[1]
        if sample.net / 1e6 <= MAX_WORST_MS:
            return
        if api not in apis:
            apis.add(api)
            yield sample.net / 1e6, words


@click.command()
@click.option("--seed", type=int, default=lambda: secrets.randbelow(1 << 31), help="By default a new one.")
@click.option("--seconds", type=float, default=600.0, show_default=True)
@click.option("--count", type=int, help="Stop after so many requests.")
def main(seed: int, seconds: float, count: int | None) -> None:
    click.echo(f"seed {seed}")
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory) / "data", SETTINGS)
        with idle_prober(Path(directory)) as idle, broker, HonestProber(broker) as prober:
            world = World()
            world.prepare(broker.port)
            memory = BrokerMemory(broker.pid)
            before = memory.now()
            outcome = Fuzzer(broker, world).run(cases(world, seed), count=count, seconds=seconds)
            waits, alone = prober.stop(), idle.stop().net
            after, peak = memory.now(), memory.peak()
    closed = sum(outcome.closed.values())
    click.echo(f"{outcome.cases} requests, {sum(outcome.answered.values())} answers, {closed} connections closed")
    click.echo(f"memory {before} MB before, {peak} at the peak, {after} after")
    click.echo(f"honest client, ms (p50 / p99 / worst): {waits.net}; on the wall {waits.wall}")
    click.echo(f"of an idle broker at the same time: {alone}")
    for milliseconds, words in slowest(waits, outcome):
        click.echo(f"{milliseconds:.0f} ms beside {words}")
    defects = [*outcome.defects, *(f"the honest client's {kind}: {text}" for kind, _, text in waits.failures)]
    if waits.net.worst > MAX_WORST_MS + most_of(alone).worst:
        defects.append(f"an honest client waited {waits.net.worst:.0f} ms")
    if after - before > MAX_GROWTH_MB:
        defects.append(f"the broker took {after - before} MB and kept them")
    for defect in defects:
        click.echo(f"DEFECT {defect}")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
