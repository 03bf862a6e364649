"""What `flush.messages=1` costs in throughput, with 64 producers: `python bench/group_commit.py [--keep]`.

One broker has two topics, which differ only in `flush.messages`. Both get the same raw load A B B A: 64 connections,
each with a window of requests in flight. Printed are the acknowledged requests per second by the clock on the wall
(median of the turns), the median of the turns' ratios, with to without, and what one fsync of the directory's disk
takes. The data directory is in TMPDIR, which must be on a disk: in memory an fsync costs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parent.parent
for folder in (ROOT, ROOT / "bench", *(ROOT / "tests" / "integration" / each for each in ("clients", "programs"))):
    sys.path.insert(0, str(folder))

import broker_cost as cost  # noqa: E402
from broker_process import BrokerProcess  # noqa: E402
from kept import keep  # noqa: E402
from raw import RawClient  # noqa: E402
from table import Row  # noqa: E402

SETTINGS: Final = {"log.retention.check.interval.ms": "100"}
PRODUCERS: Final = 64
TURNS: Final = 8
WITH, WITHOUT = "synced", "unsynced"
FSYNCS: Final = 100


class Load(NamedTuple):
    """A load: the bytes of a batch and of each record, the requests in flight of each producer, and all requests."""

    size: int
    record: int
    window: int
    requests: int


LOADS: Final[dict[str, Load]] = {
    "64 producers, 1 record of 100 B, 1 in flight each": Load(100, 100, 1, 6000),
    "64 producers, 1 record of 100 B, 5 in flight each": Load(100, 100, 5, 20_000),
    "64 producers, 16 KB batches, 1 in flight each": Load(16 << 10, 1000, 1, 6000),
    "64 producers, 16 KB batches, 5 in flight each": Load(16 << 10, 1000, 5, 12_000),
}


def produce_all(clients: list[RawClient], topic: str, load: Load) -> float:
    """Acknowledged requests per second: each producer sends its next request when a response has arrived."""
    request = cost.produce_request(topic, cost.batch(load.size, load.record))
    left = load.requests - len(clients) * load.window
    answered, frame = 0, b""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        began = time.perf_counter()
        for client in clients:
            client.socket.sendall(request * load.window)
        while answered < load.requests:
            for key, _ in selector.select():
                client = key.data
                frames = client.receive_frames()
                frame = frames[-1] if frames else frame
                answered += len(frames)
                again = min(left, len(frames))
                left -= again
                if again:
                    client.socket.sendall(request * again)
        seconds = time.perf_counter() - began
    cost.check_produced(frame)
    return load.requests / seconds


def fsync_milliseconds(directory: str) -> float:
    """The median time of one fsync after 10 KB were appended to a file."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(FSYNCS):
            file.write(bytes(10_000))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=list(LOADS))
    arguments.add_argument("--turns", type=int, default=TURNS)
    arguments.add_argument("--keep", action="store_true", help="keep the figures as the part `group commit`")
    options = arguments.parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        rows.append(Row("one fsync of the disk under test: p50", fsync_milliseconds(directory), "ms"))
        print(f"one fsync: {rows[0].value:.2f} ms, load average {os.getloadavg()[0]:.1f}")
        broker = stack.enter_context(BrokerProcess(Path(directory) / "data", SETTINGS))
        clients = [stack.enter_context(contextlib.closing(RawClient(broker.port))) for _ in range(PRODUCERS)]
        cost.recycled_topic(clients[0], WITHOUT)
        cost.recycled_topic(clients[0], WITH, **{"flush.messages": "1"})
        for name, load in LOADS.items():
            if options.only in (None, name):
                rows += compared(clients, name, load, options.turns)
    if options.keep:
        keep({"group commit": rows})


def compared(clients: list[RawClient], name: str, load: Load, turns: int) -> list[Row]:
    rates: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for turn in range(turns + 1):
        for topic in (WITH, WITHOUT) if turn % 2 else (WITHOUT, WITH):
            rate = produce_all(clients, topic, load)
            if turn:  # the first one warms up
                rates[topic].append(rate)
    ratios = sorted(a / b for a, b in zip(rates[WITH], rates[WITHOUT], strict=True))
    ratio, slow, fast = statistics.median(ratios), statistics.median(rates[WITH]), statistics.median(rates[WITHOUT])
    print(
        f"{name:52} {fast:10,.0f} -> {slow:10,.0f} requests/s   {ratio:.3f} ({ratios[0]:.2f}-{ratios[-1]:.2f})",
        flush=True,
    )
    return [
        Row(f"{name}: without", fast, "requests/s"),
        Row(f"{name}: flush.messages=1", slow, "requests/s"),
        Row(f"{name}: median of {len(ratios)} turns, with to without", ratio, "ratio"),
        Row(f"{name}: lowest turn", ratios[0], "ratio"),
        Row(f"{name}: highest turn", ratios[-1], "ratio"),
    ]


if __name__ == "__main__":
    main()
