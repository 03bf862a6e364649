"""The loads of `oncelog bench`: each load is a function that updates a `Measured` (the results so far) while it runs.
All loads raise KafkaError.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from oncelog.cli.bench_report import Measured

if TYPE_CHECKING:
    from oncelog.cluster import TopicPartition
    from oncelog.producer.producer import Producer

VALUES: Final = 64
"""Number of different record values, which are sent in rotation. The values are random letters, so that compression
takes realistic effort.
"""
VALUES_BYTES: Final = 16 << 20
"""Maximum total bytes of the different values; if one value is larger, only one value is generated."""
POLL_MS: Final = 500
AHEAD_SECONDS: Final = 0.01
"""A load with a rate limit pauses when it is this many seconds ahead of the rate."""

LETTERS: Final = bytes(b"abcdefghijklmnopqrstuvwxyz012345"[number % 32] for number in range(256))
"""A translation table for `bytes.translate` that maps each byte value to a letter."""


def values(size: int, seed: int = 0) -> list[bytes]:
    """Return random values of this size, which are the same in every run."""
    source = random.Random(seed)  # noqa: S311 - no secret
    count = max(1, min(VALUES, VALUES_BYTES // size)) if size else 1
    return [source.randbytes(size).translate(LETTERS) for _ in range(count)]


class Pace:
    """Limits a load to a rate in records or transactions per second; a rate of None means no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = perf_counter()

    async def wait(self, count: int) -> None:
        """Wait until operation number `count` may start."""
        if self._rate is None:
            return
        ahead = count / self._rate - (perf_counter() - self._began)
        if ahead > AHEAD_SECONDS:
            await asyncio.sleep(ahead)


async def produce(
    bootstrap: str, topic: str, count: int, size: int, rate: float | None, measured: Measured, options: dict[str, Any]
) -> None:
    """Send `count` records of `size` bytes, and wait until all are acknowledged."""
    from oncelog.producer.producer import Producer

    failed: list[BaseException] = []

    def acknowledged(started: float, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            failed.append(error)
            return
        now = perf_counter()
        measured.waits.note(now - started)
        measured.count += 1
        measured.size_bytes += size
        measured.seconds = now - began

    async with Producer(bootstrap, **options) as producer:
        await producer.partitions_for(topic)
        some, pace, began = values(size), Pace(rate), perf_counter()
        for number in range(count):
            await pace.wait(number)
            future = await producer.send(topic, some[number % len(some)])
            future.add_done_callback(partial(acknowledged, perf_counter()))
            if failed:
                break
        await producer.flush()
        await asyncio.sleep(0)  # give the event loop one iteration for the callbacks of the last acknowledgements
    if failed:
        raise failed[0]


async def consume(
    bootstrap: str, partitions: Sequence[TopicPartition], count: int | None, measured: Measured, options: dict[str, Any]
) -> None:
    """Read the present content of `partitions`, up to `count` records. The measured wait is the duration of a poll."""
    from oncelog.consumer.consumer import Consumer

    async with Consumer(bootstrap, **options) as consumer:
        ends = {partition: end for partition, end in (await consumer.end_offsets(partitions)).items() if end > 0}
        consumer.assign(ends)
        consumer.seek_to_beginning(*ends)
        began = before = perf_counter()
        while ends and (count is None or measured.count < count):
            left = None if count is None else count - measured.count
            for partition, polled in (await consumer.poll(POLL_MS, left)).items():
                records = [
                    record for record in polled if record.offset < ends.get(partition, 0)
                ]  # skip records that were written after the start
                measured.count += len(records)
                measured.size_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            now = perf_counter()
            measured.waits.note(now - before)
            measured.seconds, before = now - began, now
            # Markers may follow the last record, so compare the consumer's positions with the end offsets.
            finished = [each for each, end in ends.items() if await consumer.position(each) >= end]
            if finished:
                ends = {each: end for each, end in ends.items() if each not in finished}
                consumer.assign(ends)


async def transactions(
    bootstrap: str, topic: str, count: int, records: int, size: int, aborts: int, measured: Measured,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """Run `count` transactions of `records` records each, one after another; of every hundred transactions, `aborts`
    transactions are aborted, evenly spread.
    """
    from oncelog.producer.producer import Producer

    async with Producer(bootstrap, **options) as producer:
        await producer.partitions_for(topic)
        some, began = values(size), perf_counter()
        async for number, started in _numbered(count):
            await _transaction(producer, topic, some, records, commits=number * aborts % 100 >= aborts)
            now = perf_counter()
            measured.waits.note(now - started)
            measured.count += 1
            measured.size_bytes += records * size
            measured.seconds = now - began


async def _transaction(producer: Producer, topic: str, some: list[bytes], records: int, *, commits: bool) -> None:
    producer.begin_transaction()
    for number in range(records):
        await producer.send(topic, some[number % len(some)])
    if commits:
        await producer.commit_transaction()
    else:
        await producer.flush()  # send all records first, because an abort would drop unsent records
        await producer.abort_transaction()


async def _numbered(count: int) -> AsyncIterator[tuple[int, float]]:
    for number in range(count):
        yield number, perf_counter()
