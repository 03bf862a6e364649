"""Reads the three topics with read_committed, and reports whether the pipeline has written each result once.

    python -m examples.orders.check                 (with --format avro if the orders are in Avro)

The exit code is 1 if a result is missing, wrong, or duplicated.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from examples.orders.judge import Record, expected, judge
from examples.orders.order import (
    CUSTOMERS_FILE,
    DEAD_LETTERS,
    DEFAULT_SERVERS,
    FORMATS,
    JSON,
    ORDERS,
    REVENUE,
    SERVERS_VARIABLE,
    read_customers,
)

from oncelog import Consumer, TopicPartition

SHOWN = 10
"""The maximum number of printed problems."""


async def read(servers: str, topic: str) -> list[Record]:
    """Return all committed records of a topic."""
    found: list[Record] = []
    async with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, index) for index in await consumer.partitions_for(topic)]
        consumer.assign(partitions)
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                for records in (await consumer.poll(500)).values():
                    found += [
                        Record(each.topic, each.partition, each.offset, each.key, each.value, tuple(each.headers))
                        for each in records
                    ]
    return found


async def check(servers: str, customers: Path, form: str) -> bool:
    """Print the counts and the problems; return whether there are no problems."""
    orders, revenue, dead_letters = [await read(servers, topic) for topic in (ORDERS, REVENUE, DEAD_LETTERS)]
    wanted = expected(orders, read_customers(customers), form)
    verdict = judge(wanted, revenue, dead_letters)
    print(f"{len(orders):,} records: {wanted.orders:,} orders, {wanted.late:,} late, {len(wanted.dead):,} dead letters")
    print(f"{len(wanted.windows):,} closed windows, {len(revenue):,} results, {len(dead_letters):,} dead letters")
    print(f"{len(verdict.missing):,} missing, {len(verdict.wrong):,} wrong or twice")
    for problem in [*verdict.missing, *verdict.wrong][:SHOWN]:
        print(f"  {problem}")
    return not (verdict.missing or verdict.wrong)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--servers", default=os.environ.get(SERVERS_VARIABLE, DEFAULT_SERVERS))
    arguments.add_argument("--customers", type=Path, default=CUSTOMERS_FILE)
    arguments.add_argument("--format", choices=FORMATS, default=JSON)
    options = arguments.parse_args()
    sys.exit(0 if asyncio.run(check(options.servers, options.customers, options.format)) else 1)


if __name__ == "__main__":
    main()
