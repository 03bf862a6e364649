"""A service that writes an invoice for each order, in two versions: a correct one, and one with a bug that is easily
overlooked.
"""

from __future__ import annotations

from oncelog import Consumer, ConsumerRecord, Producer
from oncelog.consume_process_produce import consume_process_produce

ORDERS, INVOICES = "orders", "invoices"
PATIENCE_MS = 5_000


def invoice_for(order: bytes) -> bytes:
    return b"invoice for " + order


def order_of(invoice: bytes) -> bytes:
    return invoice.removeprefix(b"invoice for ")


def billing_producer(servers: str) -> Producer:
    return Producer(servers, transactional_id="billing", request_timeout_ms=PATIENCE_MS)


def billing_consumer(servers: str, *, commits_by_itself: bool) -> Consumer:
    return Consumer(
        servers,
        group_id="billing",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=commits_by_itself,
        session_timeout_ms=6_000,
        request_timeout_ms=PATIENCE_MS,
    )


async def bill(servers: str) -> None:
    """Write invoices and commit the consumed offsets in one transaction."""
    async with billing_producer(servers) as producer, billing_consumer(servers, commits_by_itself=False) as consumer:
        consumer.subscribe([ORDERS])

        async def process(records: list[ConsumerRecord]) -> None:
            for record in records:
                await producer.send(INVOICES, invoice_for(record.value or b""))

        await consume_process_produce(consumer, producer, process)


async def bill_carelessly(servers: str) -> None:
    """Write invoices in transactions, but let the consumer commit its offsets separately, some seconds later. This is
    the bug: a crash in between makes the service write the same invoices again.
    """
    async with billing_producer(servers) as producer, billing_consumer(servers, commits_by_itself=True) as consumer:
        consumer.subscribe([ORDERS])
        while True:
            for records in (await consumer.poll(1_000)).values():
                async with producer.transaction():
                    for record in records:
                        await producer.send(INVOICES, invoice_for(record.value or b""))
