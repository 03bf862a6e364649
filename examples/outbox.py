"""Outbox: sends the decisions in a database to a topic, each decision once and in order (S61).

The application writes its data and an outbox row in one database transaction, and needs no Kafka client. This relay
sends the outbox rows and, in the same Kafka transaction, writes its position to the topic `next-outbox-seq`. After a
kill at any point, the restarted relay finds in that topic where to continue. If the relay is started twice, the second
instance fences the first.

    python -m examples.outbox --servers 127.0.0.1:9092 --database shop.db --place 20 --until-empty

Rows must become visible in the order of `seq`. SQLite has one writer at a time, so its rows become visible in this
order. In databases with concurrent commits (Postgres), let transactions draw `seq` from a row that stays locked until
the commit.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from typing import Final

from examples.state_topic import ensure_state_topic, last_value

from oncelog import Producer
from oncelog.errors import AbortableError

POSITIONS: Final = "next-outbox-seq"
ROWS_PER_TRANSACTION: Final = 10
IDLE_SECONDS: Final = 0.05


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)")
    database.execute(
        "CREATE TABLE IF NOT EXISTS outbox"
        " (seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value TEXT NOT NULL)"
    )
    database.commit()
    return database


def place_order(database: sqlite3.Connection, order_id: str, item: str) -> None:
    """Act as the application: write the data and the outbox row, either both or neither."""
    with database:
        database.execute("INSERT INTO orders VALUES (?, ?)", (order_id, item))
        database.execute("INSERT INTO outbox (key, value) VALUES (?, ?)", (order_id, f"ordered: {item}"))


async def relay(servers: str, database: sqlite3.Connection, topic: str, *, until_empty: bool) -> None:
    """Send the rows of the outbox until the task is cancelled or another relay fences this one."""
    transactional_id = f"outbox-{topic}"
    key = transactional_id.encode()
    await ensure_state_topic(servers, POSITIONS)
    async with Producer(servers, transactional_id=transactional_id) as producer:
        # Opening the producer has fenced all earlier relays, so only this producer can change the position from now on.
        position = await last_value(servers, POSITIONS, key)
        next_seq = 1 if position is None else int(position)
        while True:
            rows = database.execute(
                "SELECT seq, key, value FROM outbox WHERE seq >= ? ORDER BY seq LIMIT ?",
                (next_seq, ROWS_PER_TRANSACTION),
            ).fetchall()
            if not rows:
                if until_empty:
                    return
                await asyncio.sleep(IDLE_SECONDS)
                continue
            following = rows[-1][0] + 1
            try:
                async with producer.transaction():
                    for _, row_key, value in rows:
                        await producer.send(topic, value.encode(), row_key.encode())
                    await producer.send(POSITIONS, str(following).encode(), key, partition=0)
            except AbortableError as error:
                print(f"rows from {next_seq} are sent again: {error}")
                continue
            next_seq = following


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--database", default="shop.db")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--place", type=int, default=0, metavar="N", help="first place N orders")
    parser.add_argument("--until-empty", action="store_true", help="end when everything is sent")
    options = parser.parse_args()
    database = open_database(options.database)
    (placed,) = database.execute("SELECT count(*) FROM orders").fetchone()
    for number in range(placed, placed + options.place):
        place_order(database, f"order-{number}", f"item {number}")
    asyncio.run(relay(options.servers, database, options.topic, until_empty=options.until_empty))


if __name__ == "__main__":
    main()
