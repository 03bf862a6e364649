"""Measures the CPU that the fast lanes save: brokers with and without fast lanes get the same load in turns. `python
bench/lanes.py [--keep]`.

Both brokers run at the same time and get the same raw load A B B A, so that other load on the machine affects both. The
program prints the brokers' CPU per request (the median of the turns), and the ratio of the CPU with lanes to the CPU
without lanes (the median of the turns). With three brokers (`--cluster`, which needs Java for ZooKeeper) the CPU is the
total of all three.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parent.parent
for folder in (
    ROOT, ROOT / "bench", ROOT / "tests" / "cluster",
    *(ROOT / "tests" / "integration" / each for each in ("clients", "programs")),
):  # fmt: skip
    sys.path.insert(0, str(folder))

import broker_cost as cost  # noqa: E402
import cluster as replicated  # noqa: E402
from broker_process import BrokerProcess  # noqa: E402
from kept import keep  # noqa: E402
from raw import RawClient, prepared  # noqa: E402
from table import Row  # noqa: E402
from transaction_load import GROUP, ONE_RECORD, RawProducer, find_coordinator, one_after_another  # noqa: E402

from oncelog_broker.server.net.lane import VARIABLE  # noqa: E402
from oncelog_protocol.api import ApiKey  # noqa: E402
from oncelog_protocol.messages.fetch import FetchRequest  # noqa: E402

SETTINGS: Final = {"log.retention.check.interval.ms": "100"}
TURNS: Final = 8
TOPIC, READ, WIDE, LONG, WAITED = "load", "read", "wide", "long", "waited"
SESSION_ID_AT: Final = 14
"""The position of the session id in a Fetch response, v12, without its size: after correlation id, tags, throttle time
and error code.
"""
REPLICATED_RECORDS: Final = 300


@dataclass(slots=True)
class Side:
    """One broker, or one cluster, under load. `client` is connected to the broker or to the cluster's leader; `spent`
    has the CPU microseconds per request of each load, in each turn.
    """

    pids: list[int]
    client: RawClient
    reads: list[bytes] = field(default_factory=list)
    read_bytes: int = 0
    spent: dict[str, list[float]] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    """Maps each load to the milliseconds until the response; there is one number for each turn, the median."""


Load = Callable[[Side], cost.Cost]


@contextlib.contextmanager
def lanes(*, open: bool) -> Iterator[None]:
    """Context manager: brokers that are started in its block have fast lanes if `open` is true, and none otherwise."""
    before = os.environ.pop(VARIABLE, None)
    if not open:
        os.environ[VARIABLE] = "off"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def produce(size: int, count: int, window: int) -> Load:
    request = cost.produce_request(TOPIC, cost.batch(size, size))
    return lambda side: cost.produce_cost(side.client, side.pids[0], request, size, count, window)


def fetch(side: Side) -> cost.Cost:
    requests = [cost.fetch_request(READ, offset, 64 << 10) for offset in range(0, 600, 60)]
    return cost.fetch_cost(side.client, side.pids[0], requests, 0, 60)


def fetch_long(side: Side) -> cost.Cost:
    return cost.fetch_cost(side.client, side.pids[0], side.reads, side.read_bytes, 12)


def waiting(side: Side) -> cost.Cost:
    """Send one record at a time, for which a consumer waits in its fetch session."""
    topic = FetchRequest.FetchTopic
    with contextlib.closing(RawClient(_port(side))) as consumer:

        def asked(offset: int, session: int, epoch: int) -> bytes:
            wanted = topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            return prepared(
                FetchRequest(
                    max_wait_ms=5000, min_bytes=1, session_id=session, session_epoch=epoch,
                    topics=[topic(topic=WAITED, partitions=[wanted])],
                ),
                ApiKey.FETCH, cost.FETCH_VERSION,
            )  # fmt: skip

        record = cost.produce_request(WAITED, cost.batch(100, 100))

        def produced() -> int:
            for frame in side.client.pipeline(record, 1, 1):
                cost.check_produced(frame)
                return int.from_bytes(frame[_BASE_OFFSET_AT : _BASE_OFFSET_AT + 8], "big")
            raise AssertionError

        end = produced() + 1
        consumer.socket.sendall(asked(end - 1, 0, 0))
        session = int.from_bytes(consumer.read_frame()[SESSION_ID_AT - 3 : SESSION_ID_AT + 1], "big")

        def work() -> tuple[int, int]:
            for number in range(300):
                consumer.socket.sendall(asked(end + number, session, number + 1))
                produced()
                consumer.read_frame()
            return 300, 0

        return cost.measured(side.pids[0], work)


_BASE_OFFSET_AT: Final = 4 + 1 + 1 + 1 + len(WAITED) + 1 + 4 + 2
"""The position of the base offset in a Produce response, v9."""


def _port(side: Side) -> int:
    port: int = side.client.socket.getpeername()[1]
    return port


def transactions(partitions: int, count: int) -> Load:
    """Return a load of `count` transactions V1 over one connection; each transaction writes one record to each of
    `partitions` partitions.
    """

    def run(side: Side) -> cost.Cost:
        producer = RawProducer(side.client, WIDE, range(partitions), ONE_RECORD, 1, f"lanes-{partitions}")
        requests = [producer.transaction() for _ in range(count)]

        def work() -> tuple[int, int]:
            one_after_another(side.client, requests)
            return count, 0

        return cost.measured(side.pids[0], work)

    return run


LOADS: Final[dict[str, Load]] = {
    "produce 1 x 100 B, 1 in flight": produce(100, 1500, 1),
    "produce 1 x 100 B, 64 in flight": produce(100, 3000, 64),
    "fetch 64 KB of 1 KB batches": fetch,
    "fetch 1 MB of 64 KB batches": fetch_long,
    "1 record, and a consumer that waits for it": waiting,
    "transaction of one record (V1)": transactions(1, 200),
    "transaction over 10 partitions (V1)": transactions(10, 80),
}


def acknowledged(side: Side) -> cost.Cost:
    """Send one record of 1 KB at a time with acks=all and three replicas."""
    request, waits = cost.produce_request(TOPIC, cost.batch(1000, 1000)), []
    spent = sum(map(cost.cpu_seconds, side.pids))
    began = time.perf_counter()
    for _ in range(REPLICATED_RECORDS):
        sent = time.perf_counter()
        for frame in side.client.pipeline(request, 1, 1):
            cost.check_produced(frame)
        waits.append((time.perf_counter() - sent) * 1000)
    seconds = time.perf_counter() - began
    side.waits.setdefault(REPLICATED, []).append(statistics.median(waits))
    return cost.Cost(REPLICATED_RECORDS, 0, seconds, sum(map(cost.cpu_seconds, side.pids)) - spent)


REPLICATED: Final = "three brokers, acks=all, 1 record of 1 KB, 1 in flight"


def opened(stack: contextlib.ExitStack, *, has_lanes: bool) -> Side:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
    with lanes(open=has_lanes):
        broker = stack.enter_context(BrokerProcess(directory, SETTINGS))
    client = stack.enter_context(contextlib.closing(RawClient(broker.port)))
    cost.recycled_topic(client, TOPIC)
    for topic, partitions in ((READ, 1), (WAITED, 1), (WIDE, 10)):
        cost.create_topic(client, topic, partitions)
    for frame in client.pipeline(cost.produce_request(READ, cost.batch(1 << 10, 1000)), 700, 16):
        cost.check_produced(frame)
    reads, read_bytes = cost.readable_log(client, LONG, cost.batch(64 << 10, 1000))
    find_coordinator(client, "any", GROUP)
    return Side([broker.pid], client, reads, read_bytes)


def opened_cluster(stack: contextlib.ExitStack, *, has_lanes: bool) -> Side:
    with lanes(open=has_lanes):
        cluster = stack.enter_context(replicated.running())
    cluster.create_topic(TOPIC, (1, 2, 3))
    cluster.until_whole(TOPIC)
    leader = cluster.brokers[cluster.until_led(TOPIC).leader]
    client = stack.enter_context(contextlib.closing(RawClient(leader.port)))
    return Side([broker.pid for broker in cluster.brokers.values()], client)


def compare(sides: list[Side], name: str, load: Load, turns: int, *, is_pinned: bool) -> list[Row]:
    """Compare the two `sides`, with lanes and without."""
    for turn in range(turns + 1):
        for side in sides if turn % 2 else reversed(sides):
            with cost.pinned(side.pids[0], together=True) if is_pinned else contextlib.nullcontext():
                spent = load(side).cpu_us_per_request
            if turn:  # the first turn is a warm-up
                side.spent.setdefault(name, []).append(spent)
    rows = _rows(name, "CPU us/request", [side.spent[name] for side in sides])
    if name in sides[0].waits:
        rows += _rows(f"{name}: p50", "ms", [side.waits[name][1:] for side in sides])
    return rows


def _rows(name: str, unit: str, values: list[Any]) -> list[Row]:
    fast, usual = values
    ratios = sorted(a / b for a, b in zip(fast, usual, strict=True))
    ratio = statistics.median(ratios)
    print(
        f"{name:60} {statistics.median(usual):8.2f} -> {statistics.median(fast):8.2f} {unit}   {ratio:.3f} "
        f"({ratios[0]:.2f}-{ratios[-1]:.2f})",
        flush=True,
    )
    return [
        Row(f"{name}: without lanes", statistics.median(usual), unit),
        Row(f"{name}: with lanes", statistics.median(fast), unit),
        Row(f"{name}: median of {len(ratios)} turns, with to without", ratio, "ratio"),
        Row(f"{name}: lowest turn", ratios[0], "ratio"),
        Row(f"{name}: highest turn", ratios[-1], "ratio"),
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=[*LOADS, REPLICATED])
    arguments.add_argument("--cluster", action="store_true", help="three brokers with ZooKeeper as well")
    arguments.add_argument("--turns", type=int, default=TURNS)
    arguments.add_argument("--keep", action="store_true", help="keep the figures as the part `lanes`")
    options = arguments.parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        if options.only != REPLICATED:
            sides = [opened(stack, has_lanes=has_lanes) for has_lanes in (True, False)]
            for name, load in LOADS.items():
                if options.only in (None, name):
                    rows += compare(sides, name, load, options.turns, is_pinned=True)
    if options.cluster:
        with contextlib.ExitStack() as stack:
            sides = [opened_cluster(stack, has_lanes=has_lanes) for has_lanes in (True, False)]
            rows += compare(sides, REPLICATED, acknowledged, options.turns, is_pinned=False)
    if options.keep:
        keep({"lanes": rows})


if __name__ == "__main__":
    main()
