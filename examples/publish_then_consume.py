"""Shows the limits of a transaction (S63): its own producer cannot read its records before the commit, and side effects
outside Kafka are not undone.

The program publishes an order, and tries to read it back and mail a confirmation within the same transaction. A
read_committed consumer, also in the same program, sees nothing before the commit; a read_uncommitted consumer may see
records that are aborted later. The mail is sent whether the transaction commits or not, and a retry sends it again.

    python -m examples.publish_then_consume --servers 127.0.0.1:9092

So commit first, then read. An action outside Kafka that must happen once should be done by a consumer, in one of the
ways of `kafka_to_sqlite.py`.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Final, NamedTuple

from oncelog import Consumer, Producer, TopicPartition

WAIT_MS: Final = 300
LONG_MS: Final = 10_000


class Seen(NamedTuple):
    """How many records of the transaction a consumer got."""

    committed_before: int
    uncommitted_before: int
    committed_after_abort: int
    committed_after_commit: int
    mails: int


async def count(consumer: Consumer, timeout_ms: int) -> int:
    return sum(len(records) for records in (await consumer.poll(timeout_ms)).values())


async def show(servers: str, topic: str) -> Seen:
    partition = TopicPartition(topic, 0)
    mails: list[str] = []
    async with (
        Producer(servers, transactional_id=f"{topic}-orders") as producer,
        Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as own,
        Consumer(servers, isolation_level="read_uncommitted", auto_offset_reset="earliest") as hasty,
    ):
        await producer.partitions_for(topic)  # this request creates the topic if it does not exist
        for consumer in (own, hasty):
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)

        producer.begin_transaction()
        await producer.send_and_wait(topic, b"order 1", partition=0)
        committed_before = await count(own, WAIT_MS)
        uncommitted_before = await count(hasty, LONG_MS)
        mails.append("your order 1")  # an effect outside Kafka, which no abort undoes
        await producer.abort_transaction()
        committed_after_abort = await count(own, WAIT_MS)

        producer.begin_transaction()  # the retry repeats the same work
        await producer.send_and_wait(topic, b"order 1", partition=0)
        mails.append("your order 1")
        await producer.commit_transaction()
        committed_after_commit = await count(own, LONG_MS)
    return Seen(committed_before, uncommitted_before, committed_after_abort, committed_after_commit, len(mails))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="own-orders")
    options = parser.parse_args()
    seen = asyncio.run(show(options.servers, options.topic))
    print(f"before the commit: {seen.committed_before} records for read_committed, also for the writer itself,")
    print(f"  and {seen.uncommitted_before} for read_uncommitted, of a transaction that was aborted then")
    print(f"after the abort: {seen.committed_after_abort}; after the second try: {seen.committed_after_commit}")
    print(f"mails sent: {seen.mails}")


if __name__ == "__main__":
    main()
