"""Writes orders into the topic "orders", one for each second of event time. Every fiftieth record is not an order.

    python -m examples.orders.send                          orders 0 to 9,999
    python -m examples.orders.send --first 10000            the next 10,000
    python -m examples.orders.send --orders 0 --late 5      five orders whose windows were closed long ago

An order number always gives the same order. `--format avro` writes the orders in Avro.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.orders.order import (
    DEFAULT_SERVERS,
    FORMATS,
    JSON,
    LATE_PREFIX,
    ORDERS,
    PARTITIONS,
    SERVERS_VARIABLE,
    Order,
    encoded,
)
from examples.orders.topics import create_topics

from oncelog import Producer

BEGIN = datetime(2026, 11, 26, 8, tzinfo=UTC)
"""The time `at` of order 0."""
CUSTOMERS = 7
"""The number of customers in the orders; the table has six of them, so one customer is unknown."""
BROKEN_EVERY = 50
TOGETHER = 100
"""The number of orders that are sent before the producer waits for their acknowledgements. Each order is one second
later than the previous one, so no partition gets more than 100 seconds ahead of another partition. Since 100 seconds
are less than LATENESS_SECONDS, no order becomes late because of this.
"""


def order(number: int) -> Order:
    return Order(f"o-{number}", f"c{number % CUSTOMERS}", 100 + number * 37 % 900, BEGIN + timedelta(seconds=number))


def late_order(number: int) -> Order:
    """Return the late order `number`. The time of the order is in minute `number`, so that each late order has its own
    window.
    """
    at = BEGIN + timedelta(minutes=number)
    return Order(f"{LATE_PREFIX}{number}", f"c{number % CUSTOMERS}", 100, at)


def value(number: int, form: str) -> bytes | None:
    """Return the value of record `number`: an order or, in every fiftieth record, one of five typical mistakes of
    producers.
    """
    good = encoded(order(number), form)
    if number % BROKEN_EVERY != BROKEN_EVERY - 1:
        return good
    made = order(number)
    negative = encoded(Order(made.order, made.customer, -made.cents, made.at), form)
    wrong_type = good.replace(b'"cents": ', b'"cents": "many", "was": ')
    is_json = form == JSON
    kinds = [b"no order", good[: len(good) // 2], negative, None, wrong_type if is_json else good + b"more"]
    return kinds[number // BROKEN_EVERY % len(kinds)]


def records(first: int, count: int, late: int, form: str) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield partition, key and value of each record, in the order of sending."""
    for number in range(first, first + count):
        yield number % PARTITIONS, b"o-%d" % number, value(number, form)
    for number in range(late):
        made = late_order(number)
        yield number % PARTITIONS, made.order.encode(), encoded(made, form)


async def send(servers: str, first: int, count: int, late: int = 0, form: str = JSON) -> None:
    await create_topics(servers)
    async with Producer(servers) as producer:
        for index, (partition, key, content) in enumerate(records(first, count, late, form)):
            if index % TOGETHER == 0:
                await producer.flush()
            headers = [("format", form.encode())]
            await producer.send(ORDERS, content, key, partition=partition, headers=headers)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--servers", default=os.environ.get(SERVERS_VARIABLE, DEFAULT_SERVERS))
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--orders", type=int, default=10_000)
    arguments.add_argument("--late", type=int, default=0)
    arguments.add_argument("--format", choices=FORMATS, default=JSON)
    options = arguments.parse_args()
    asyncio.run(send(options.servers, options.first, options.orders, options.late, options.format))
    print(f"{options.orders + options.late:,} records are written")


if __name__ == "__main__":
    main()
