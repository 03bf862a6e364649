"""Does the same work at most once, at least once and exactly once, and shows the effect of a crash on each (S66).

The program reads numbers from one topic and writes them to another; `--fill N` first writes N numbers. `--crash-after
N` kills the process at the worst moment, while record N is processed; start it again without the option, and read its
output:

- `at-most-once` commits the offsets first and sends without retries: some numbers are missing, and none occurs twice.
- `at-least-once` sends, waits, and commits the offsets last: no number is missing, and some occur twice.
- `exactly-once` writes offsets and records in one transaction: no number is missing, and none occurs twice.

    python -m examples.delivery_levels --level at-least-once --servers 127.0.0.1:9092 --fill 100 --crash-after 25
    python -m examples.delivery_levels --level at-least-once --servers 127.0.0.1:9092 --until-caught-up

The exactly-once guarantee holds for consumers with isolation_level="read_committed".
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from oncelog import Consumer, ConsumerRecord, Producer, TopicPartition
from oncelog.consume_process_produce import consume_process_produce

POLL_MS: Final = 500
RECORDS_PER_POLL: Final = 10


class Profile(NamedTuple):
    """The client settings of a level; the levels also differ in the order of their steps."""

    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]


PROFILES: Final[Mapping[str, Profile]] = {
    "at-most-once": Profile(
        producer={"acks": 1, "retries": 0, "enable_idempotence": False},
        consumer={},
    ),
    "at-least-once": Profile(
        producer={"acks": "all", "enable_idempotence": True},
        consumer={},
    ),
    "exactly-once": Profile(
        producer={"transactional_id": "delivery-levels"},  # transactional_id implies acks="all" and idempotence
        consumer={"isolation_level": "read_committed"},
    ),
}


class Crash:
    """Kills this process with -9 when it is processing a given number of records."""

    def __init__(self, after: int | None) -> None:
        self._left = after

    def work(self, records: int = 1) -> None:
        if self._left is not None:
            self._left -= records
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


Worker = Callable[[Consumer, Producer, str, Crash, asyncio.Event], Awaitable[None]]


async def at_most_once(consumer: Consumer, producer: Producer, target: str, crash: Crash, stop: asyncio.Event) -> None:
    while not stop.is_set():
        polled = await consumer.poll(POLL_MS, RECORDS_PER_POLL)
        await consumer.commit()  # from here on the records count as processed
        for record in in_order(polled):
            crash.work()
            await producer.send(target, record.value)
        await producer.flush()


async def at_least_once(consumer: Consumer, producer: Producer, target: str, crash: Crash, stop: asyncio.Event) -> None:
    while not stop.is_set():
        polled = await consumer.poll(POLL_MS, RECORDS_PER_POLL)
        for future in [await producer.send(target, record.value) for record in in_order(polled)]:
            await future  # a failed record must not be committed
        crash.work(len(in_order(polled)))
        await consumer.commit()  # from here on the records count as processed


async def exactly_once(consumer: Consumer, producer: Producer, target: str, crash: Crash, stop: asyncio.Event) -> None:
    async def process(records: list[ConsumerRecord]) -> None:
        for record in records:
            await producer.send(target, record.value)
        await producer.flush()  # flush only so that the records are already in the log when the process crashes
        crash.work(len(records))

    await consume_process_produce(consumer, producer, process, max_records=RECORDS_PER_POLL, stop=stop)


WORKERS: Final[Mapping[str, Worker]] = {
    "at-most-once": at_most_once,
    "at-least-once": at_least_once,
    "exactly-once": exactly_once,
}


def in_order(polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> list[ConsumerRecord]:
    return [record for records in polled.values() for record in records]


async def until_caught_up(consumer: Consumer, source: str, stop: asyncio.Event) -> None:
    """Set `stop` when the offsets after all present records are committed."""
    partitions = [TopicPartition(source, index) for index in await consumer.partitions_for(source)]
    ends = await consumer.end_offsets(partitions)
    while not stop.is_set():
        committed = await consumer.committed(partitions)
        if all((found := committed[partition]) and found.offset >= ends[partition] for partition in partitions):
            stop.set()
        await asyncio.sleep(POLL_MS / 1000)


async def fill(servers: str, source: str, count: int) -> None:
    async with Producer(servers) as producer:
        for number in range(count):
            await producer.send(source, b"%d" % number)


async def copies(servers: str, target: str) -> str:
    """Return a summary of the numbers that a read_committed consumer finds in the output topic, and of their
    duplicates.
    """
    found: list[bytes | None] = []
    async with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(target, index) for index in await consumer.partitions_for(target)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            found += [record.value for record in in_order(await consumer.poll(POLL_MS))]
    return f"{len(found)} records, {len(set(found))} different numbers"


async def run(servers: str, level: str, source: str, target: str, crash: Crash, *, ends: bool) -> None:
    profile, stop = PROFILES[level], asyncio.Event()
    async with (
        Producer(servers, **profile.producer) as producer,
        Consumer(
            servers,
            group_id=f"{target}-{level}",
            group_instance_id="only-one",  # a restarted process gets its partitions back immediately
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **profile.consumer,
        ) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        consumer.subscribe([source])
        tasks.create_task(WORKERS[level](consumer, producer, target, crash, stop))  # type: ignore[arg-type]
        if ends:
            tasks.create_task(until_caught_up(consumer, source, stop))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=list(PROFILES), required=True)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--source", default="numbers")
    parser.add_argument("--target", default="copied")
    parser.add_argument("--fill", type=int, default=0, metavar="N", help="write the numbers below N first")
    parser.add_argument("--crash-after", type=int, metavar="N")
    parser.add_argument("--until-caught-up", action="store_true", help="end when all is copied")
    options = parser.parse_args()
    crash = Crash(options.crash_after)
    asyncio.run(fill(options.servers, options.source, options.fill))
    asyncio.run(
        run(options.servers, options.level, options.source, options.target, crash, ends=options.until_caught_up)
    )
    print(f"{options.target}: {asyncio.run(copies(options.servers, options.target))}")


if __name__ == "__main__":
    main()
