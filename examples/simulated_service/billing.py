"""A service that writes an invoice for each order, twice: as it should be, and with a bug that is easily overlooked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from oncelog import Consumer, ConsumerRecord, Producer
from oncelog.consume_process_produce import consume_process_produce
from oncelog.consumer.consumer import Consumer as AnyConsumer


def invoice_for(order: bytes) -> bytes:
    return b"invoice for " + order


def order_of(invoice: bytes) -> bytes:
    return invoice.removeprefix(b"invoice for ")


async def bill(servers: str) -> None:
    """Orders and invoices in one transaction."""
    await _bill(servers, consume_process_produce)


async def bill_carelessly(servers: str) -> None:
    """The invoices are in a transaction, and the offsets are committed after it."""
    await _bill(servers, _commit_afterwards)


async def _bill(servers: str, work: Callable[..., Awaitable[None]]) -> None:
    async with (
        Producer(servers, transactional_id="billing", request_timeout_ms=5_000) as producer,
        Consumer(
            servers,
            group_id="billing",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            request_timeout_ms=5_000,
        ) as consumer,
    ):
        consumer.subscribe(["orders"])

        async def process(records: list[ConsumerRecord]) -> None:
            for record in records:
                await producer.send("invoices", invoice_for(record.value or b""))

        await work(consumer, producer, process)


async def _commit_afterwards(
    consumer: AnyConsumer, producer: Producer, process: Callable[[list[ConsumerRecord]], Awaitable[None]]
) -> None:
    while True:
        for records in (await consumer.poll(1_000)).values():
            async with producer.transaction():
                await process(records)
            await consumer.commit()  # who dies before this bills the same orders again
