"""Runs in a container beside the brokers, in the image of the brokers: an invoice for each order, exactly once.

An invoice is in the partition of its order. It goes on for ever: who is killed is started again, and goes on from
what its group has committed.
"""

from __future__ import annotations

import asyncio
import sys

from oncelog import Consumer, ConsumerRecord, Producer
from oncelog.consume_process_produce import consume_process_produce
from oncelog.errors import KafkaError

SERVERS = "broker-1:29092,broker-2:29092,broker-3:29092"
READING = {"enable_auto_commit": False, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}


async def bill() -> None:
    async with (
        Consumer(SERVERS, group_id="billing", **READING) as consumer,
        Producer(SERVERS, transactional_id="billing-1") as producer,
    ):
        consumer.subscribe(["orders"])

        async def process(records: list[ConsumerRecord]) -> None:
            for record in records:
                await producer.send("invoices", b"invoice for " + record.value, partition=record.partition)

        await consume_process_produce(consumer, producer, process)


async def main() -> None:
    while True:
        try:
            await bill()
        except KafkaError as error:  # nobody could be reached for long: from the beginning
            print(f"begins again after: {error!r}", file=sys.stderr, flush=True)


asyncio.run(main())
