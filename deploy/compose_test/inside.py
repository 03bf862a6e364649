"""Runs in a container beside the brokers, in the image of the brokers, and writes an invoice for each order, exactly
once.

An invoice is written to the partition with the number of its order's partition. The program runs until SIGTERM. A
killed program is started again, and continues from the committed offsets of its group.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from oncelog import Consumer, ConsumerRecord, Producer
from oncelog.consume_process_produce import consume_process_produce
from oncelog.errors import KafkaError

SERVERS = "broker-1:29092,broker-2:29092,broker-3:29092"
READING = {"enable_auto_commit": False, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}


async def bill(stop: asyncio.Event) -> None:
    async with (
        Consumer(SERVERS, group_id="billing", **READING) as consumer,
        Producer(SERVERS, transactional_id="billing-1") as producer,
    ):
        consumer.subscribe(["orders"])

        async def process(records: list[ConsumerRecord]) -> None:
            for record in records:
                await producer.send("invoices", b"invoice for " + record.value, partition=record.partition)

        await consume_process_produce(consumer, producer, process, stop=stop)


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        try:
            await bill(stop)
        except KafkaError as error:  # no broker could be reached for a long time, so start again with new clients
            print(f"begins again after: {error!r}", file=sys.stderr, flush=True)


asyncio.run(main())
