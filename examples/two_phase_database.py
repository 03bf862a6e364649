"""Writes a database row and a record, either both or neither, by two-phase commit (S122, KIP-939).

Each booking is a row in SQLite and a record in a topic. The Kafka transaction is prepared first: its records are
written, but not visible. Then one transaction of the database writes the row and the name of the prepared Kafka
transaction: the commit of the database decides. After that the Kafka transaction is committed.

After a kill at any point, the next start reads from the database which Kafka transaction was decided. The next start
commits the prepared transaction if it is the decided one, and aborts it otherwise. The next start may come weeks later,
because the prepared transaction has no timeout. Until then the prepared transaction blocks read_committed consumers.

The broker must have two-phase commit enabled: `oncelog serve --set transaction.two.phase.commit.enable=true`.

    python -m examples.two_phase_database --servers 127.0.0.1:9092 --database bank.db --book 20
    python -m examples.two_phase_database --servers 127.0.0.1:9092 --database bank.db --book 20 --crash-after decided
    python -m examples.two_phase_database --servers 127.0.0.1:9092 --database bank.db --book 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
from typing import Final

from oncelog import PreparedTransaction, Producer

BOOKINGS_PER_TRANSACTION: Final = 5
STEPS: Final = ("begun", "sent", "prepared", "written", "decided", "completed")
"""The steps after which `--crash-after` may kill the process."""


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.execute("CREATE TABLE IF NOT EXISTS bookings (id INTEGER PRIMARY KEY AUTOINCREMENT, amount INT NOT NULL)")
    database.execute("CREATE TABLE IF NOT EXISTS decided (topic TEXT PRIMARY KEY, prepared TEXT NOT NULL)")
    database.commit()
    return database


def stored(database: sqlite3.Connection, topic: str) -> PreparedTransaction | None:
    """Return the Kafka transaction that the database has decided last; None if there is none."""
    row = database.execute("SELECT prepared FROM decided WHERE topic = ?", (topic,)).fetchone()
    return None if row is None else PreparedTransaction(*json.loads(row[0]))


async def book(servers: str, database: sqlite3.Connection, topic: str, count: int, crash_after: str | None) -> None:
    """Complete the bookings of an earlier run, then add `count` bookings."""

    def reached(step: str) -> None:
        if step == crash_after:
            os.kill(os.getpid(), signal.SIGKILL)

    async with Producer(servers, transactional_id=f"bookings-{topic}", two_phase_commit=True) as producer:
        committed = await producer.complete_transaction(stored(database, topic))
        if committed is not None:
            print(f"an earlier run had a transaction open: it is {'committed' if committed else 'aborted'}")
        (booked,) = database.execute("SELECT count(*) FROM bookings").fetchone()
        for first in range(booked, booked + count, BOOKINGS_PER_TRANSACTION):
            amounts = range(first, min(first + BOOKINGS_PER_TRANSACTION, booked + count))
            producer.begin_transaction()
            reached("begun")
            for amount in amounts:
                await producer.send(topic, str(amount).encode(), partition=0)
            reached("sent")
            prepared = await producer.prepare_transaction()
            reached("prepared")
            with database:  # the commit of this block decides both
                database.executemany("INSERT INTO bookings (amount) VALUES (?)", [(amount,) for amount in amounts])
                database.execute("INSERT OR REPLACE INTO decided VALUES (?, ?)", (topic, json.dumps(prepared)))
                reached("written")
            reached("decided")
            await producer.complete_transaction(prepared)
            reached("completed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--database", default="bank.db")
    parser.add_argument("--topic", default="bookings")
    parser.add_argument("--book", type=int, default=10, metavar="N", help="make N bookings")
    parser.add_argument("--crash-after", choices=STEPS, help="be killed there, in the first transaction")
    options = parser.parse_args()
    database = open_database(options.database)
    asyncio.run(book(options.servers, database, options.topic, options.book, options.crash_after))
    (booked,) = database.execute("SELECT count(*) FROM bookings").fetchone()
    print(f"{booked} bookings")


if __name__ == "__main__":
    main()
