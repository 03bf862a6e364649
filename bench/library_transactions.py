"""The library clients in the part `transactions`: measures their throughput with and without transactions, and the time
of a commit.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final

import broker_cost as cost
from meter import Meter, percentile
from process_clients import PROCESS, Commits, librdkafka_commits
from raw import RawClient
from table import Add, counted
from transaction_clients import IDEMPOTENT, KINDS, PLAIN, PRODUCE, TRANSACTIONAL, BatchSize, Way

SHAPES: Final = ((1, 1), (10, 1), (100, 1), (1, 10), (10, 10), (100, 10))
"""Shapes of transactions: records for each partition, number of partitions."""
CALM_SECONDS: Final = 0.3
"""Seconds without requests, in which the broker deletes old segments."""
OURS: Final = "oncelog"
LIBRDKAFKA: Final = "confluent-kafka"


def measure(add: Add, address: str, client: RawClient, meter: Meter, scale: int) -> None:
    """Measure the library clients; `client` creates the topics."""
    commit_latency(add, address, client, scale)
    overhead(add, address, client, meter, scale)
    libraries(add, address, client, meter, scale)
    consume_process_produce(add, address, client, scale)


def commit_latency(add: Add, address: str, client: RawClient, scale: int) -> None:
    """Measure small transactions by librdkafka, one after another."""
    for records, partitions in SHAPES:
        topic = f"commits-{records}-{partitions}"
        cost.recycled_topic(client, topic, partitions)
        taken = librdkafka_commits(address, topic, partitions, records, max(5, 50 // scale), 4)
        what = f"{LIBRDKAFKA}, {counted(records, 'record')} to each of {counted(partitions, 'partition')}"
        _add_commits(add, what, taken)


def _add_commits(add: Add, what: str, taken: Commits) -> None:
    whole = statistics.median(taken.whole)
    add(f"{what}, one after another", 1 / whole, "txn/s")
    add(f"{what}, commit, p50", percentile(taken.commit, 0.5) * 1000, "ms")
    add(f"{what}, commit, p99", percentile(taken.commit, 0.99) * 1000, "ms")
    add(f"{what}, against no transaction", whole / statistics.median(taken.without), "ratio")


def overhead(add: Add, address: str, client: RawClient, meter: Meter, scale: int) -> None:
    """Measure what idempotence and transactions of 100 ms cost oncelog's own producer, and what they cost the broker,
    with realistic batches.
    """
    for kilobytes in (16, 64):
        batch = BatchSize(1000, kilobytes * 1024)
        found = _in_turns((OURS,), address, client, meter, batch, 0.5, max(1, 6 // scale))
        what = f"{OURS} producer, 1 KB records, {kilobytes} KB batches"
        plain = found[OURS, PLAIN]
        add(f"{what}, plain", plain.median("rate"), "records/s")
        for kind, most in ((IDEMPOTENT, 1.02), (TRANSACTIONAL, 1.03)):
            of_kind = found[OURS, kind]
            add(f"{what}, {kind} against plain", of_kind.against(plain, "rate"), "rate ratio", at_least=2 - most)
            add(f"{what}, {kind} against plain, broker", of_kind.against(plain, "broker_cpu"), "CPU ratio")


def libraries(add: Add, address: str, client: RawClient, meter: Meter, scale: int) -> None:
    """Measure the three library clients with small records."""
    found = _in_turns(tuple(PRODUCE), address, client, meter, BatchSize(100, 65_536), 0.5, max(1, 3 // scale))
    for kind in KINDS:
        for name in PRODUCE:
            rounds = found[name, kind]
            add(f"produce, 100 B, {kind}: {name}", rounds.median("rate"), "records/s")
            add(f"produce, 100 B, {kind}: {name}, client", rounds.median("client_cpu") * 1e6, "CPU us/record")
        ours, theirs = found[OURS, kind], found["aiokafka", kind]
        what = f"produce, 100 B, {kind}: oncelog against aiokafka"
        add(what, ours.against(theirs, "rate"), "rate ratio", at_least=1)
        add(f"{what}, client", ours.against(theirs, "client_cpu"), "CPU ratio", at_most=1)


class Rounds:
    """The results of one library for one kind of producing, in each round."""

    def __init__(self) -> None:
        self.rate: list[float] = []
        self.client_cpu: list[float] = []
        self.broker_cpu: list[float] = []

    def median(self, what: str) -> float:
        return statistics.median(getattr(self, what))

    def against(self, other: Rounds, what: str) -> float:
        return statistics.median(a / b for a, b in zip(getattr(self, what), getattr(other, what), strict=True))


def _in_turns(
    names: tuple[str, ...],
    address: str,
    client: RawClient,
    meter: Meter,
    batch: BatchSize,
    seconds: float,
    rounds: int,
) -> dict[tuple[str, str], Rounds]:
    found = {(name, kind): Rounds() for kind in KINDS for name in names}
    topics = {key: f"{'-'.join(key)}-{batch.record_bytes}-{batch.batch_bytes}" for key in found}
    for topic in topics.values():
        cost.recycled_topic(client, topic)
    for number in range(rounds + 1):  # the first round is a warm-up
        for key, of_kind in found.items():
            time.sleep(CALM_SECONDS)
            way = Way(key[1], address, topics[key], seconds, batch)
            before = meter.read()
            produced = asyncio.run(PRODUCE[key[0]](way))
            spent = meter.read().since(before)
            if number:
                of_kind.rate.append(produced.records / produced.seconds)
                of_kind.client_cpu.append(produced.client_cpu / produced.records)
                of_kind.broker_cpu.append(spent.cpu / produced.records)
    return found


def consume_process_produce(add: Add, address: str, client: RawClient, scale: int) -> None:
    """Measure consuming, processing and producing one record with its offset, by each library."""
    cost.create_topic(client, "source")
    batch = cost.batch(100, 100)
    count, turns = max(10, 100 // scale), 5
    for frame in client.pipeline(cost.produce_request("source", batch), 2 * count * turns + 100, 64):
        cost.check_produced(frame)
    for name, process in PROCESS.items():
        cost.create_topic(client, f"processed-{name}")
        steps = asyncio.run(process(address, "source", f"processed-{name}", count, turns))
        what = f"one-record consume-process-produce, {name}"
        naive, transactional = statistics.median(steps.naive), statistics.median(steps.transactional)
        add(f"{what}, naive", naive * 1000, "ms")
        add(f"{what}, transaction", transactional * 1000, "ms")
        add(f"{what}, transaction against naive", transactional / naive, "ratio", at_most=4.6)
