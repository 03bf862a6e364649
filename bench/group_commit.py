"""Measures what `flush.messages=1` costs in throughput, with 64 producers: `python bench/group_commit.py [--keep]`.

One broker has two topics, which differ only in `flush.messages`. Both get the same load A B B A: from 64 producers of
our client, and from 64 raw connections, each with a window of requests in flight. The program prints the acknowledged
requests per second of wall-clock time (the median of the turns), the ratio of the topic with the setting to the topic
without it (the median of the turns), and the time of one fsync on the disk of the directory. The data directory is in
TMPDIR, which must be on a disk: in memory an fsync costs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import selectors
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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

from oncelog import Producer  # noqa: E402

SETTINGS: Final = {"log.retention.check.interval.ms": "100"}
PRODUCERS: Final = 64
TURNS: Final = 8
WITH, WITHOUT = "synced", "unsynced"
FSYNCS: Final = 100
LINGER_MS: Final = 5


class RawLoad(NamedTuple):
    """A load of raw requests: the size of a batch and of each record in bytes, the number of requests in flight on each
    connection, and the total number of requests.
    """

    size: int
    record: int
    window: int
    requests: int


class ClientLoad(NamedTuple):
    """A load of our client's producers: the number of records that each producer sends, and whether it waits for each
    acknowledgement before it sends the next record.
    """

    records: int
    one_by_one: bool


LOADS: Final[dict[str, RawLoad | ClientLoad]] = {
    "64 oncelog producers, records of 100 B in batches": ClientLoad(2000, one_by_one=False),
    "64 oncelog producers, each waits for each record of 100 B": ClientLoad(60, one_by_one=True),
    "64 raw connections, 16 KB batches, 5 in flight each": RawLoad(16 << 10, 1000, 5, 6000),
    "64 raw connections, 1 record of 100 B, 5 in flight each": RawLoad(100, 100, 5, 12_000),
    "64 raw connections, 1 record of 100 B, 1 in flight each": RawLoad(100, 100, 1, 6000),
}


async def produce_by_clients(address: str, topic: str, load: ClientLoad) -> float:
    """Return the acknowledged records per second, without the time in which the producers connect."""
    value = bytes(100)

    async def produce(producer: Producer) -> None:
        if load.one_by_one:
            for _ in range(load.records):
                await producer.send_and_wait(topic, value)
        else:
            futures = [await producer.send(topic, value) for _ in range(load.records)]
            await producer.flush()
            for future in futures:
                future.result()

    async with contextlib.AsyncExitStack() as stack:
        linger_ms = 0 if load.one_by_one else LINGER_MS
        made = [Producer(address, linger_ms=linger_ms) for _ in range(PRODUCERS)]
        producers = [await stack.enter_async_context(producer) for producer in made]
        await asyncio.gather(*(producer.send_and_wait(topic, value) for producer in producers))
        began = time.perf_counter()
        await asyncio.gather(*map(produce, producers))
        return PRODUCERS * load.records / (time.perf_counter() - began)


def produce_raw(clients: list[RawClient], topic: str, load: RawLoad) -> float:
    """Return the acknowledged requests per second. Each response lets its connection send the next request."""
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
    """Return the median time of one fsync after 10 KB were appended to a file, in milliseconds."""
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

        def produce(topic: str, load: RawLoad | ClientLoad) -> float:
            if isinstance(load, RawLoad):
                return produce_raw(clients, topic, load)
            return asyncio.run(produce_by_clients(broker.address, topic, load))

        for name, load in LOADS.items():
            if options.only in (None, name):
                rows += compared(produce, name, load, options.turns)
    if options.keep:
        keep({"group commit": rows})


def compared(
    produce: Callable[[str, RawLoad | ClientLoad], float], name: str, load: RawLoad | ClientLoad, turns: int
) -> list[Row]:
    unit = "requests/s" if isinstance(load, RawLoad) else "records/s"
    rates: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for turn in range(turns + 1):
        for topic in (WITH, WITHOUT) if turn % 2 else (WITHOUT, WITH):
            rate = produce(topic, load)
            if turn:  # the first turn is a warm-up
                rates[topic].append(rate)
    ratios = sorted(a / b for a, b in zip(rates[WITH], rates[WITHOUT], strict=True))
    ratio, slow, fast = statistics.median(ratios), statistics.median(rates[WITH]), statistics.median(rates[WITHOUT])
    print(
        f"{name:58} {fast:10,.0f} -> {slow:10,.0f} {unit:10} {ratio:.3f} ({ratios[0]:.2f}-{ratios[-1]:.2f})",
        flush=True,
    )
    return [
        Row(f"{name}: without", fast, unit),
        Row(f"{name}: flush.messages=1", slow, unit),
        Row(f"{name}: median of {len(ratios)} turns, with to without", ratio, "ratio"),
        Row(f"{name}: lowest turn", ratios[0], "ratio"),
        Row(f"{name}: highest turn", ratios[-1], "ratio"),
    ]


if __name__ == "__main__":
    main()
