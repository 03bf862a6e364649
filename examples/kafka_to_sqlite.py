"""Writes a topic into a database, with each record counted once (S62), in two ways that both need no Kafka transaction.

- `upsert` writes at least once, but a repetition is harmless: each record becomes one row, whose key identifies the
  record. The group's offsets are committed after the transaction of the database. Use this way if each record
  determines one row, so that writing the row again changes nothing.
- `offsets-in-db` stores the offsets in the database, in the same transaction that uses the records, and a consumer
  begins at these offsets (seek on assign). Use this way for results that a repeated record would make wrong, such as
  the sums here. Each change names the offset from which it continues, so a consumer that has lost its partition changes
  nothing.

    python -m examples.kafka_to_sqlite --mode offsets-in-db --servers 127.0.0.1:9092 --pay 20 --until-caught-up
    python -m examples.kafka_to_sqlite --mode upsert --servers 127.0.0.1:9092 --until-caught-up

The key of a record is an account, its value an amount. `--pay N` first writes N payments of 1 each.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from collections.abc import Collection, Mapping
from typing import Final

from oncelog import Consumer, ConsumerRecord, Producer, RebalanceListener, TopicPartition

POLL_MS: Final = 500
MODES: Final = ("upsert", "offsets-in-db")
Polled = Mapping[TopicPartition, list[ConsumerRecord]]


class LostPartition(Exception):
    """Another consumer has already written these records."""


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.executescript(
        """
        CREATE TABLE IF NOT EXISTS payments (
            topic TEXT, partition INTEGER, offset INTEGER, account TEXT, amount INTEGER,
            PRIMARY KEY (topic, partition, offset)
        );
        CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, amount INTEGER);
        CREATE TABLE IF NOT EXISTS offsets (
            topic TEXT, partition INTEGER, next_offset INTEGER, PRIMARY KEY (topic, partition)
        );
        """
    )
    return database


def account_and_amount(record: ConsumerRecord) -> tuple[str, int]:
    return (record.key or b"").decode(), int(record.value or b"0")


# --- upsert


def upsert(database: sqlite3.Connection, polled: Polled) -> None:
    with database:
        for records in polled.values():
            for record in records:
                row = (record.topic, record.partition, record.offset, *account_and_amount(record))
                database.execute("INSERT OR REPLACE INTO payments VALUES (?, ?, ?, ?, ?)", row)


# The mode `offsets-in-db`.


class SeekToStored(RebalanceListener):
    """Lets the consumer read each partition from the offset in the database; `next_offsets` are the known positions."""

    def __init__(self, database: sqlite3.Connection, consumer: Consumer) -> None:
        self._database = database
        self._consumer = consumer
        self.next_offsets: dict[TopicPartition, int] = {}

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.next_offsets[partition] = stored_offset(self._database, partition)
            self._consumer.seek(partition, self.next_offsets[partition])


def stored_offset(database: sqlite3.Connection, partition: TopicPartition) -> int:
    with database:
        database.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, 0)", partition)
    (offset,) = database.execute(
        "SELECT next_offset FROM offsets WHERE topic = ? AND partition = ?", partition
    ).fetchone()
    return int(offset)


def add_up(database: sqlite3.Connection, polled: Polled, next_offsets: dict[TopicPartition, int]) -> None:
    """Add the amounts to the sums and store the offsets, in one transaction of the database. Raises LostPartition
    without a change if another consumer has written these records.
    """
    following = {partition: records[-1].offset + 1 for partition, records in polled.items()}
    with database:
        for partition, records in polled.items():
            moved = database.execute(
                "UPDATE offsets SET next_offset = ? WHERE topic = ? AND partition = ? AND next_offset = ?",
                (following[partition], *partition, next_offsets[partition]),
            )
            if moved.rowcount != 1:
                raise LostPartition(f"{partition} is not at {next_offsets[partition]} any more")
            for record in records:
                database.execute(
                    "INSERT INTO balances VALUES (?, ?)"
                    " ON CONFLICT (account) DO UPDATE SET amount = amount + excluded.amount",
                    account_and_amount(record),
                )
    next_offsets.update(following)


# --- both


async def pay(servers: str, topic: str, count: int) -> None:
    async with Producer(servers) as producer:
        for number in range(count):
            await producer.send(topic, b"1", b"account %d" % (number % 3))


def total(database: sqlite3.Connection, mode: str) -> int:
    """Return the sum of all amounts."""
    table = "payments" if mode == "upsert" else "balances"
    (amount,) = database.execute(f"SELECT coalesce(sum(amount), 0) FROM {table}").fetchone()
    return int(amount)


async def consume(
    servers: str, topic: str, database: sqlite3.Connection, mode: str, *, instance: str | None, until_caught_up: bool
) -> None:
    async with Consumer(
        servers,
        group_id=f"{topic}-{mode}",
        group_instance_id=instance,  # a restarted process gets its partitions back immediately
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        stored = SeekToStored(database, consumer) if mode == "offsets-in-db" else None
        consumer.subscribe([topic], listener=stored)
        while True:
            polled = await consumer.poll(POLL_MS)
            if polled and stored is not None:
                add_up(database, polled, stored.next_offsets)
            elif polled:
                upsert(database, polled)
                await consumer.commit()
            elif until_caught_up and await is_caught_up(consumer):
                return


async def is_caught_up(consumer: Consumer) -> bool:
    partitions = consumer.assignment()
    ends = await consumer.end_offsets(partitions)
    return bool(partitions) and all([await consumer.position(partition) >= ends[partition] for partition in partitions])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--database", default="payments.db")
    parser.add_argument("--instance", help="a name that this process keeps over restarts")
    parser.add_argument("--pay", type=int, default=0, metavar="N", help="write N payments first")
    parser.add_argument("--until-caught-up", action="store_true", help="end when all is read")
    options = parser.parse_args()
    database = open_database(options.database)
    asyncio.run(pay(options.servers, options.topic, options.pay))
    asyncio.run(
        consume(
            options.servers,
            options.topic,
            database,
            options.mode,
            instance=options.instance,
            until_caught_up=options.until_caught_up,
        )
    )
    print(f"paid in all: {total(database, options.mode)}")


if __name__ == "__main__":
    main()
