"""Compares two builds of the broker in turns: `python bench/compare.py --before path/to/oncelog [--after
path/to/oncelog]`.

Both builds run at the same time and get the same raw load in turns A B A B, so that other load on the machine affects
both. The program prints the CPU that each build uses for a request (the median of the turns). It also computes for each
turn the ratio of the new build to the old build, and prints the median of these ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
for folder in (ROOT, ROOT / "bench", *(ROOT / "tests" / "integration" / each for each in ("clients", "programs"))):
    sys.path.insert(0, str(folder))

import broker_cost as cost  # noqa: E402
from broker_process import BrokerProcess  # noqa: E402
from group_load import ClassicMember, ConsumerMember  # noqa: E402
from kept import keep  # noqa: E402
from raw import RawClient  # noqa: E402
from table import Row  # noqa: E402
from transaction_load import (  # noqa: E402
    GROUP,
    ONE_RECORD,
    RawProducer,
    find_coordinator,
    one_after_another,
    side_by_side,
)

SETTINGS: Final = {"log.retention.check.interval.ms": "100"}
TURNS: Final = 12
TOPIC: Final = "load"
WIDE: Final = "wide"
"""The name of the topic with ten partitions."""
MANY: Final = "many"
PRODUCERS: Final = 64
LONG_BATCHES: Final = (64 << 10, 1040 << 10)
"""Sizes in bytes of the batches of the logs that are read 1 MB at a time."""


@dataclass(slots=True)
class Build:
    """One broker under load; `spent` maps each load to the CPU microseconds per request, in each turn."""

    broker: BrokerProcess
    client: RawClient
    reads: dict[int, tuple[list[bytes], int]] = field(default_factory=dict)
    """Maps the size of batches to the requests that read a log of such batches, and their total bytes."""
    spent: dict[str, list[float]] = field(default_factory=dict)
    producers: list[RawProducer] = field(default_factory=list)
    """Transactional producers, each with its own connection and partition; the first load that needs them opens them.
    """


Load = Callable[[Build], cost.Cost]


def produce(size: int, record: int, count: int, window: int) -> Load:
    request = cost.produce_request(TOPIC, cost.batch(size, record))

    def run(build: Build) -> cost.Cost:
        return cost.produce_cost(build.client, build.broker.pid, request, size, count, window)

    return run


def fetch(build: Build) -> cost.Cost:
    requests = [cost.fetch_request("read", offset, 64 << 10) for offset in range(0, 600, 60)]
    return cost.fetch_cost(build.client, build.broker.pid, requests, 0, 60)


def fetch_long(batch_bytes: int) -> Load:
    """Return a load that reads a log of batches of this size, 1 MB at a time."""

    def run(build: Build) -> cost.Cost:
        requests, total_bytes = build.reads[batch_bytes]
        return cost.fetch_cost(build.client, build.broker.pid, requests, total_bytes, 12)

    return run


def member(kind: type[ClassicMember], request: str, count: int) -> Load:
    """Return a load of `count` heartbeats or commits of the only member of a group; `request` names the method of the
    member that creates one.
    """

    def run(build: Build) -> cost.Cost:
        with contextlib.closing(kind(build.broker.port, WIDE)) as joined:
            requests = [getattr(joined, request)() for _ in range(count)]
            return cost.measured(build.broker.pid, lambda: joined.repeat(requests))

    return run


def connections(count: int, rounds: int) -> Load:
    """Return a load that sends one record at a time from each of `count` connections."""
    request = cost.produce_request(TOPIC, cost.batch(100, 100))

    def run(build: Build) -> cost.Cost:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(contextlib.closing(RawClient(build.broker.port))) for _ in range(count)]

            def work() -> tuple[int, int]:
                for _ in range(rounds):
                    for client in clients:
                        client.socket.sendall(request)
                    for client in clients:
                        cost.check_produced(client.read_frame())
                return count * rounds, 0

            return cost.measured(build.broker.pid, work)

    return run


def transactions(version: int, partitions: int, count: int) -> Load:
    """Return a load of `count` transactions over one connection; each transaction writes one record to each of
    `partitions` partitions.
    """

    def run(build: Build) -> cost.Cost:
        name = f"compared-{version}-{partitions}"
        producer = RawProducer(build.client, WIDE, range(partitions), ONE_RECORD, version, name)
        requests = [producer.transaction() for _ in range(count)]

        def work() -> tuple[int, int]:
            one_after_another(build.client, requests)
            return count, 0

        return cost.measured(build.broker.pid, work)

    return run


def transactions_at_once(count: int) -> Load:
    """Return a load of `count` V1 transactions of one record by each of PRODUCERS producers concurrently."""

    def run(build: Build) -> cost.Cost:
        if not build.producers:
            cost.create_topic(build.client, MANY, PRODUCERS)
            build.producers = [
                RawProducer(RawClient(build.broker.port), MANY, [number], ONE_RECORD, 1, f"{MANY}-{number}")
                for number in range(PRODUCERS)
            ]
        requests = [[producer.transaction() for _ in range(count)] for producer in build.producers]

        def work() -> tuple[int, int]:
            side_by_side([producer.client for producer in build.producers], requests)
            return count * PRODUCERS, 0

        return cost.measured(build.broker.pid, work)

    return run


LOADS: Final[dict[str, Load]] = {
    "produce 1 x 100 B, 1 in flight": produce(100, 100, 1500, 1),
    "produce 1 x 100 B, 64 in flight": produce(100, 100, 3000, 64),
    "produce 64 KB of 1 KB records": produce(64 << 10, 1000, 300, 4),
    "produce 64 KB of 100 B records": produce(64 << 10, 100, 300, 4),
    "fetch 64 KB": fetch,
    "fetch 1 MB of 64 KB batches": fetch_long(64 << 10),
    "fetch 1 MB in one batch": fetch_long(1040 << 10),
    "heartbeat": member(ClassicMember, "heartbeat", 1000),
    "heartbeat (KIP-848)": member(ConsumerMember, "heartbeat", 1000),
    "offset commit": member(ClassicMember, "commit", 1000),
    "offset commit (KIP-848)": member(ConsumerMember, "commit", 1000),
    "produce 1 x 100 B, 50 connections": connections(50, 40),
    "transaction of one record (V2)": transactions(2, 1, 300),
    "transaction of one record (V1)": transactions(1, 1, 300),
    "transaction over 10 partitions (V1)": transactions(1, 10, 100),
    "transactions of 64 producers (V1)": transactions_at_once(6),
}


def opened(stack: contextlib.ExitStack, command: str | None) -> Build:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
    broker = stack.enter_context(BrokerProcess(directory, SETTINGS, command=command))
    client = stack.enter_context(contextlib.closing(RawClient(broker.port)))
    cost.recycled_topic(client, TOPIC)
    cost.create_topic(client, "read")
    cost.create_topic(client, WIDE, 10)
    for frame in client.pipeline(cost.produce_request("read", cost.batch(1 << 10, 1000)), 700, 16):
        cost.check_produced(frame)
    find_coordinator(client, "any", GROUP)
    reads = {size: cost.readable_log(client, f"long-{size}", cost.batch(size, 1000)) for size in LONG_BATCHES}
    return Build(broker, client, reads)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--before", required=True, help="the `oncelog` command of the build to compare with")
    arguments.add_argument("--after", default=None, help="by default the one of this environment")
    arguments.add_argument("--only", choices=list(LOADS), nargs="+", help="measure only these loads")
    arguments.add_argument("--turns", type=int, default=TURNS)
    arguments.add_argument("--keep", action="store_true", help="keep the figures as the part `compared`")
    options = arguments.parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        builds = [opened(stack, options.before), opened(stack, options.after)]
        for name, load in LOADS.items():
            if options.only is not None and name not in options.only:
                continue
            for turn in range(options.turns + 1):
                for build in builds if turn % 2 else reversed(builds):
                    with cost.pinned(build.broker.pid, together=True):
                        spent = load(build).cpu_us_per_request
                    if turn:  # the first turn is a warm-up
                        build.spent.setdefault(name, []).append(spent)
            before, after = (build.spent[name] for build in builds)
            ratio = statistics.median(a / b for a, b in zip(after, before, strict=True))
            ratios = sorted(a / b for a, b in zip(after, before, strict=True))
            print(
                f"{name:36} {statistics.median(before):8.2f} -> {statistics.median(after):8.2f} us   {ratio:.3f} "
                f"({ratios[0]:.2f}-{ratios[-1]:.2f})",
                flush=True,
            )
            rows.append(Row(f"{name}: before", statistics.median(before), "CPU us/request"))
            rows.append(Row(f"{name}: after", statistics.median(after), "CPU us/request"))
            rows.append(Row(f"{name}: median of {len(ratios)} turns, after to before", ratio, "ratio"))
            rows.append(Row(f"{name}: lowest turn", ratios[0], "ratio"))
            rows.append(Row(f"{name}: highest turn", ratios[-1], "ratio"))
    if options.keep:
        keep({"compared": rows})


if __name__ == "__main__":
    main()
