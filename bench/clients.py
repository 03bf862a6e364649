"""Compares our client with aiokafka, librdkafka (confluent-kafka) and Java's client: `bench/run.py --only clients`.

Each produces records of 1 KB idempotently in batches of up to 64 KB, commits transactions of one record one after
another, and consumes the same log from its beginning. All use the same broker, in turns A B C D D C B A. The client has
one core, the broker the other, so that a library with several threads has no more than the others. CPU is that of the
whole process of the client; JVMs are warmed up until their CPU per record no longer falls.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import broker_cost as cost
from apache import WARM_GAIN
from broker_process import BrokerProcess
from java_client import JavaClient
from library_clients import LIBRARIES
from maven import Unavailable
from one_record_transactions import aiokafka_transactions, librdkafka_transactions, oncelog_transactions
from raw import RawClient
from table import Add
from transaction_clients import IDEMPOTENT, PRODUCE, BatchSize, Produced, Way

OURS: Final = "oncelog"
RECORD_BYTES: Final = 1000
BATCH_BYTES: Final = 65_536
PRODUCE_SECONDS: Final = 1.0
TRANSACTIONS: Final = 300
CONSUMED: Final = 100_000
ROUNDS: Final = 3
"""Each round has two turns: in order, and in reverse order."""
WARM_TURNS: Final = (4, 15)
"""The least and the most turns for which a JVM gets one load before it is measured."""
SETTINGS: Final = {"log.retention.check.interval.ms": "200"}
TRANSACTION_CLIENTS: Final = {
    "oncelog": oncelog_transactions,
    "aiokafka": aiokafka_transactions,
    "confluent-kafka": librdkafka_transactions,
}


class Load(NamedTuple):
    """One kind of work: `unit` is what it counts, and `clients` maps the name of each client to a turn of this work."""

    name: str
    unit: str
    clients: Mapping[str, Callable[[], Produced]]


def measure(add: Add, scale: int) -> None:
    """Measure all clients; the amount of work is divided by `scale`."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(Path(directory) / "data", SETTINGS))
        stack.enter_context(cost.pinned(broker.pid, together=False))
        java: JavaClient | None = None
        try:
            java = stack.enter_context(JavaClient(broker.address))
        except Unavailable as reason:
            print(f"no comparison with Java's client: {reason}")
        with contextlib.closing(RawClient(broker.port)) as client:
            loads = (_producing(broker, client, java, scale), _committing(broker, client, java, scale),
                     _consuming(broker, client, java, scale))  # fmt: skip
        for load in loads:
            _compare(add, load, 1 if scale > 1 else ROUNDS)


def _producing(broker: BrokerProcess, client: RawClient, java: JavaClient | None, scale: int) -> Load:
    clients: dict[str, Callable[[], Produced]] = {}
    seconds = PRODUCE_SECONDS / scale
    for name, produce in PRODUCE.items():
        way = Way(IDEMPOTENT, broker.address, f"produced-{name}", seconds, BatchSize(RECORD_BYTES, BATCH_BYTES))
        cost.recycled_topic(client, way.topic)
        clients[name] = lambda produce=produce, way=way: asyncio.run(produce(way))
    if java is not None:
        cost.recycled_topic(client, "produced-java")
        clients[java.name] = lambda: java.run("produce", "produced-java", RECORD_BYTES, BATCH_BYTES, seconds)
    return Load("produce idempotently, records of 1 KB", "record", clients)


def _committing(broker: BrokerProcess, client: RawClient, java: JavaClient | None, scale: int) -> Load:
    clients: dict[str, Callable[[], Produced]] = {}
    count = TRANSACTIONS // scale
    for name, run in TRANSACTION_CLIENTS.items():
        topic = f"committed-{name}"
        cost.recycled_topic(client, topic)
        clients[name] = lambda run=run, topic=topic: asyncio.run(run(broker.address, topic, RECORD_BYTES, count))
    if java is not None:
        cost.recycled_topic(client, "committed-java")
        clients[java.name] = lambda: java.run("transactions", "committed-java", RECORD_BYTES, count)
    return Load("transactions of one record of 1 KB, one after another", "transaction", clients)


def _consuming(broker: BrokerProcess, client: RawClient, java: JavaClient | None, scale: int) -> Load:
    count = CONSUMED // scale
    cost.create_topic(client, "consumed")
    batch = cost.batch(BATCH_BYTES, RECORD_BYTES)
    records = int.from_bytes(batch[57:61], "big")
    for frame in client.pipeline(cost.produce_request("consumed", batch), count // records + 1, 4):
        cost.check_produced(frame)

    def python(consume: Callable[..., object]) -> Produced:
        cpu, started = time.process_time(), time.perf_counter()
        asyncio.run(consume(broker.address, "consumed", count, RECORD_BYTES, True))  # type: ignore[arg-type]
        return Produced(count, time.perf_counter() - started, time.process_time() - cpu)

    clients: dict[str, Callable[[], Produced]] = {
        each.name: lambda consume=each.consume: python(consume) for each in LIBRARIES
    }
    if java is not None:
        clients[java.name] = lambda: java.run("consume", "consumed", count)
    return Load("consume records of 1 KB", "record", clients)


def _compare(add: Add, load: Load, rounds: int) -> None:
    for name, run in load.clients.items():
        _warm(name, run)
    found: dict[str, list[Produced]] = {name: [] for name in load.clients}
    names = list(load.clients)
    for _ in range(rounds):
        for name in [*names, *reversed(names)]:
            found[name].append(load.clients[name]())
    for name, turns in found.items():
        rates, cpus = _rates(turns), _cpus(turns)
        add(f"{load.name}: {name}", statistics.median(rates), f"{load.unit}s/s")
        add(f"{load.name}, lowest turn: {name}", min(rates), f"{load.unit}s/s")
        add(f"{load.name}, highest turn: {name}", max(rates), f"{load.unit}s/s")
        add(f"{load.name}, client: {name}", statistics.median(cpus), f"CPU us/{load.unit}")
    for name in names:
        if name != OURS:
            _add_ratios(add, load.name, found[OURS], name, found[name])


def _add_ratios(add: Add, what: str, ours: Sequence[Produced], name: str, theirs: Sequence[Produced]) -> None:
    rates = [a / b for a, b in zip(_rates(ours), _rates(theirs), strict=True)]
    cpus = [a / b for a, b in zip(_cpus(ours), _cpus(theirs), strict=True)]
    add(f"{what}: {OURS} against {name}", statistics.median(rates), "rate ratio")
    add(f"{what}: {OURS} against {name}, client", statistics.median(cpus), "CPU ratio")


def _warm(name: str, run: Callable[[], Produced]) -> None:
    """Run once; a JVM, until its CPU no longer falls."""
    least, most = WARM_TURNS if name.startswith("Java") else (1, 1)
    spent: list[float] = []
    while len(spent) < most:
        spent += _cpus([run()])
        if len(spent) >= least and spent[-1] >= WARM_GAIN * min(spent[:-1], default=0.0):
            return


def _rates(turns: Sequence[Produced]) -> list[float]:
    return [turn.records / turn.seconds for turn in turns]


def _cpus(turns: Sequence[Produced]) -> list[float]:
    """Return the CPU of the client in microseconds per record or transaction."""
    return [turn.client_cpu / turn.records * 1e6 for turn in turns]
