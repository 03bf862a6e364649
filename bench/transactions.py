"""Measures the cost of exactly once. It compares idempotent and transactional producing with plain producing, and
measures transactions of several shapes and many concurrent transactional ids. It also compares a
consume-process-produce loop of one-record transactions with the same loop without transactions.

Implements the part `transactions` of `run.py`: this module measures the broker with raw requests, and
`library_transactions` measures the library clients. Loads that are compared run in turns (`meter`).
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import broker_cost as cost
import library_transactions as libraries
from broker_process import BrokerProcess
from meter import Meter, Turns, Work, percentile, take_turns
from raw import RawClient
from table import Add, counted
from transaction_load import (
    GROUP,
    ONE_RECORD,
    Batch,
    RawProducer,
    Requests,
    Taken,
    find_coordinator,
    one_after_another,
    side_by_side,
)

IDS_AT_ONCE, PARTITIONS_EACH = 64, 3
TRANSACTION_MEGABYTES: Final = 20
"""A fast client produces this many MB of records in 100 ms, so a transaction that is committed after 100 ms has this
size.
"""
SETTINGS: Final = {"log.retention.check.interval.ms": "100"}
CALM_SECONDS: Final = 0.2
"""Seconds to wait after a topic was deleted, longer than the broker takes to free its files."""
VERSIONS: Final = {"V1": 1, "V2": 2}

Load = Callable[[], Work]


def measure(add: Add, scale: int) -> None:
    """Measure the entire part with a separate broker; the amount of work is divided by `scale`."""
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data", SETTINGS) as broker,
        contextlib.closing(RawClient(broker.port)) as client,
        contextlib.closing(Meter(broker.pid)) as meter,
    ):
        find_coordinator(client, "any", GROUP)
        overhead(add, client, meter, scale)
        cost_of_a_transaction(add, client, meter, scale)
        many_ids_at_once(add, client, broker.port, meter, scale)
        consume_process_produce(add, client, scale)
        libraries.measure(add, broker.address, client, meter, scale)


# The next functions measure plain, idempotent and transactional requests.


def overhead(add: Add, client: RawClient, meter: Meter, scale: int) -> None:
    """Measure plain, idempotent and transactional requests of the same size: realistic requests, and very small
    ones.
    """
    for kilobytes in (16, 64):
        what = f"{kilobytes} KB batches of 1 KB records"
        count = TRANSACTION_MEGABYTES * 1024 // kilobytes // scale
        batch = Batch(kilobytes * 1024 // 1010, 1000)
        turns = _requests_in_turns(client, meter, batch, count, 4, max(2, 16 // scale), CALM_SECONDS)
        _add_overhead(add, meter, turns, what, 1.03)
    for records in (1, 10):
        batch, rounds = Batch(records, 100), max(2, 16 // scale)
        turns = _requests_in_turns(client, meter, batch, 3000 // scale, 64, rounds, 0)
        _add_overhead(add, meter, turns, f"{counted(records, 'record')} of 100 B per request", None)


def _requests_in_turns(
    client: RawClient, meter: Meter, batch: Batch, count: int, window: int, rounds: int, calm_seconds: float
) -> dict[str, Turns]:
    """Measure the cost of one of `count` requests, with `window` in flight. All transactional requests of a turn are
    one transaction.

    Each turn has its own topic, one segment long, and the previous topic was deleted `calm_seconds` before. Otherwise
    some turns would include the work of closing a segment, syncing it and freeing its pages, which costs as much as
    hundreds of requests.
    """
    topics = (f"overhead-{batch.records}-{batch.record_bytes}-{number}" for number in itertools.count())
    topic = ""

    def load(version: int, transactional_id: str | None = None) -> Load:
        def ready() -> Work:
            nonlocal topic
            if topic:
                cost.delete_topic(client, topic)
                time.sleep(calm_seconds)
            topic = next(topics)
            cost.create_topic(client, topic, **{"segment.bytes": str(1 << 30), "file.delete.delay.ms": "0"})
            one_after_another(client, [[RawProducer(client, topic, [0], Batch(1, 1), version=0).produce()]])
            producer = RawProducer(client, topic, [0], batch, version, transactional_id)
            if transactional_id is None:
                return _pipelined(client, [], [producer.produce() for _ in range(count)], [], window)
            begin, *batches, end = producer.transaction(count)
            return _pipelined(client, [begin], batches, [end], window)

        return ready

    loads = {"plain": load(0), "idempotent": load(1), "transactional": load(1, "overhead")}
    with cost.pinned(meter.pid, together=True):
        return take_turns(meter, loads, rounds)


def _pipelined(client: RawClient, begin: Requests, batches: Requests, end: Requests, window: int) -> Work:
    def work() -> int:
        one_after_another(client, [begin])
        frame = b""
        for frame in client.pipeline_all(batches, window):
            pass
        cost.check_produced(frame)
        one_after_another(client, [end])
        return len(batches)

    return work


def _add_overhead(
    add: Add, meter: Meter, turns: dict[str, Turns], what: str, most_in_transactions: float | None
) -> None:
    plain = turns["plain"]
    add(f"produce, plain, {what}", plain.median("cpu") * 1e6, "CPU us/request")
    for name, most in (("idempotent", 1.02), ("transactional", most_in_transactions)):
        one = turns[name]
        add(f"{name} against plain, {what}", one.against(plain, "cpu"), "CPU ratio", at_most=most)
        add(f"{name} against plain, {what}", one.against(plain, "user"), "user CPU ratio")
        if meter.counts_instructions:
            add(f"{name} against plain, {what}", one.against(plain, "instructions"), "instr. ratio")


# The next functions measure entire transactions.


def cost_of_a_transaction(add: Add, client: RawClient, meter: Meter, scale: int) -> None:
    """Measure one producer with one transaction after another, on one core with the broker, compared with the same
    batches without transactions.
    """
    for records, partitions in libraries.SHAPES:
        topic = f"raw-{records}-{partitions}"
        cost.recycled_topic(client, topic, partitions)
        count = max(10, 600 // partitions // scale)
        taken: dict[str, list[Taken]] = {name: [] for name in VERSIONS}
        loads = {"without": _producing(RawProducer(client, topic, range(partitions), Batch(records, 100)), count)}
        for name, version in VERSIONS.items():
            producer = RawProducer(
                client, topic, range(partitions), Batch(records, 100), version, transactional_id=f"{topic}-{name}"
            )
            loads[name] = _committing(producer, count, taken[name])
        with cost.pinned(meter.pid, together=True):
            turns = take_turns(meter, loads, max(2, 5 // scale))
        what = f"{counted(records, 'record')} to each of {counted(partitions, 'partition')}"
        for name in VERSIONS:
            cpu = turns[name].against(turns["without"], "cpu")
            add(f"transaction {name}, {what}", turns[name].median("cpu") * 1e6, "CPU us/txn")
            add(
                f"transaction {name}, {what}",
                statistics.mean(turn.user for turn in turns[name].each) * 1e6,
                "user us/txn",
            )
            if meter.counts_instructions:
                add(f"transaction {name}, {what}", turns[name].median("instructions") / 1000, "1000 instr/txn")
            add(f"transaction {name}, {what}, against no transaction", cpu, "CPU ratio")
            add(f"transaction {name}, {what}, one after another", 1 / _median(taken[name]), "txn/s")
        commits = [took.commit for took in taken["V1"]]
        add(f"transaction V1, {what}, commit, p50", percentile(commits, 0.5) * 1000, "ms")
        add(f"transaction V1, {what}, commit, p99", percentile(commits, 0.99) * 1000, "ms")


def _producing(producer: RawProducer, count: int) -> Load:
    return lambda: _done(producer.client, [[producer.produce()] for _ in range(count)], [])


def _committing(producer: RawProducer, count: int, taken: list[Taken]) -> Load:
    return lambda: _done(producer.client, [producer.transaction() for _ in range(count)], taken)


def _done(client: RawClient, transactions: Sequence[Requests], taken: list[Taken]) -> Work:
    def work() -> int:
        taken.extend(one_after_another(client, transactions))
        return len(transactions)

    return work


def _median(taken: Sequence[Taken]) -> float:
    return statistics.median(took.whole for took in taken)


def many_ids_at_once(add: Add, client: RawClient, port: int, meter: Meter, scale: int) -> None:
    """Measure concurrent transactional ids, each over its own connection and with its own partitions."""
    cost.recycled_topic(client, "many", IDS_AT_ONCE * PARTITIONS_EACH)
    for name, version in VERSIONS.items():
        with contextlib.ExitStack() as stack:
            producers = [
                RawProducer(
                    stack.enter_context(contextlib.closing(RawClient(port))),
                    "many",
                    range(number * PARTITIONS_EACH, (number + 1) * PARTITIONS_EACH),
                    ONE_RECORD,
                    version,
                    transactional_id=f"many-{number}",
                )
                for number in range(IDS_AT_ONCE)
            ]
            taken: list[Taken] = []
            rates: list[float] = []
            ready = _side_by_side(producers, max(2, 20 // scale), taken, rates)
            turns = take_turns(meter, {name: ready}, max(2, 5 // scale))[name]
        what = f"{IDS_AT_ONCE} transactional ids at once, {PARTITIONS_EACH} partitions each, {name}"
        add(what, statistics.median(rates), "txn/s", at_least=1500)
        add(what, turns.median("cpu") * 1e6, "CPU us/txn")
        add(f"{what}, commit, p99", percentile([took.commit for took in taken], 0.99) * 1000, "ms")


def _side_by_side(producers: Sequence[RawProducer], count: int, taken: list[Taken], rates: list[float]) -> Load:
    def ready() -> Work:
        transactions = [[producer.transaction() for _ in range(count)] for producer in producers]

        def work() -> int:
            seconds, found = side_by_side([producer.client for producer in producers], transactions)
            taken.extend(found)
            rates.append(len(found) / seconds)
            return len(found)

        return work

    return ready


def consume_process_produce(add: Add, client: RawClient, scale: int) -> None:
    """Measure one record and its offset: produced and committed one after the other, or in one transaction."""
    cost.recycled_topic(client, "process")
    naive = RawProducer(client, "process", [0], ONE_RECORD, version=0, group="naive")
    producers = {
        name: RawProducer(client, "process", [0], ONE_RECORD, version, f"process-{name}", name)
        for name, version in VERSIONS.items()
    }
    taken: dict[str, list[Taken]] = {"naive": [], **{name: [] for name in VERSIONS}}
    count = max(20, 200 // scale)
    for _ in range(6):
        taken["naive"] += one_after_another(client, [[naive.produce(), naive.commit_offset()] for _ in range(count)])
        for name, producer in producers.items():
            taken[name] += one_after_another(client, [producer.transaction() for _ in range(count)])
    what = "one-record consume-process-produce, raw"
    without = _median(taken["naive"])
    add(f"{what}, naive", without * 1000, "ms")
    for name in VERSIONS:
        seconds = _median(taken[name])
        add(f"{what}, transaction {name}", seconds * 1000, "ms")
        add(f"{what}, transaction {name} against naive", seconds / without, "ratio", at_most=4.6)
