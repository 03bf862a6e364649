"""Shows a worker that is wrongly considered dead (S64, KIP-447): what fences it, and what does not.

Two workers of a group share the work, each with its own transactional id. The first worker reads some records and is
delayed for longer than max.poll.interval.ms. The second worker then gets its partitions, does the work and commits.
Then the first worker continues and commits its records. The transactional id of the first worker does not fence the
second worker, nor vice versa, because the two ids differ.

- With `--mode old` the first worker sends its offsets without its member id: the offsets are accepted, and every record
  is written twice.
- With `--mode new` the first worker sends its offsets with `consumer.group_metadata()`: the offsets are refused, and
  the worker's transaction is aborted.

    python -m examples.zombies --mode new --servers 127.0.0.1:9092

(The old mode is safe with one transactional id per input partition, which needs one producer per partition; with
KIP-447 one producer per process is enough.)
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from typing import Any, Final

from oncelog import Consumer, ConsumerGroupMetadata, ConsumerRecord, Producer, TopicPartition
from oncelog.errors import KafkaError

POLL_MS: Final = 500
MAX_POLL_INTERVAL_MS: Final = 1_000
MODES: Final = ("old", "new")


def new_consumer(servers: str, source: str, **settings: Any) -> Consumer:
    return Consumer(
        servers,
        group_id=f"{source}-workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **settings,
    )


async def poll(consumer: Consumer) -> list[ConsumerRecord]:
    while True:
        polled = await consumer.poll(POLL_MS)
        if polled:
            return [record for records in polled.values() for record in records]


async def commit(
    consumer: Consumer, producer: Producer, target: str, records: Iterable[ConsumerRecord], mode: str
) -> None:
    """Write the records and commit the consumed offsets in one transaction. Raises KafkaError."""
    group = consumer.group_metadata()
    if mode == "old":
        group = ConsumerGroupMetadata(group.group_id, -1, "", None)
    offsets = {}
    async with producer.transaction():
        for record in records:
            await producer.send(target, record.value)
            offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        await producer.send_offsets(offsets, group)


async def run(servers: str, source: str, target: str, mode: str) -> bool:
    """Return whether the zombie could commit."""
    async with (
        new_consumer(servers, source, max_poll_interval_ms=MAX_POLL_INTERVAL_MS) as held_up,
        Producer(servers, transactional_id=f"{source}-worker-1") as zombie,
        new_consumer(servers, source) as consumer,
        Producer(servers, transactional_id=f"{source}-worker-2") as worker,
    ):
        held_up.subscribe([source])
        had = await poll(held_up)
        print(f"the first worker has {len(had)} records, and is held up")
        consumer.subscribe([source])
        await commit(consumer, worker, target, await poll(consumer), mode)
        print("the second one has got its partitions, and has committed")
        try:
            await commit(held_up, zombie, target, had, mode)
        except KafkaError as error:
            print(f"the first one wakes up, and is refused: {error}")
            return False
        print("the first one wakes up, and commits the same again")
        return True


async def outcome(servers: str, target: str) -> list[str]:
    """Return the records that a read_committed consumer sees."""
    partition, values = TopicPartition(target, 0), list[str]()
    async with Consumer(servers, isolation_level="read_committed") as reader:
        reader.assign([partition])
        reader.seek_to_beginning(partition)
        end = (await reader.end_offsets([partition]))[partition]
        while await reader.position(partition) < end:
            records = (await reader.poll(POLL_MS)).get(partition, [])
            values += [(record.value or b"").decode() for record in records]
    return values


async def show(servers: str, mode: str, source: str) -> None:
    target = f"{source}-{mode}"
    async with Producer(servers) as producer:
        for number in range(5):
            await producer.send_and_wait(source, b"%d" % number, partition=0)
    await run(servers, source, target, mode)
    print(f"{target}: {' '.join(await outcome(servers, target))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--source", default="work")
    options = parser.parse_args()
    asyncio.run(show(options.servers, options.mode, options.source))


if __name__ == "__main__":
    main()
