"""Reads the final content with two libraries, and compares it with the responses that the clients got."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from final_state import read_committed
from foreign_clients import eventually
from librdkafka_client import Librdkafka

from oncelog import Consumer, TopicPartition
from oncelog.errors import KafkaError
from oncelog_testing.history.checker import check
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

SETTLE_SECONDS = 180.0


def note_content(addresses: str, history: History, places: Sequence[Place]) -> None:
    """Wait until no transaction is open, record what oncelog's consumer finds, and check that librdkafka's consumer
    finds the same.
    """
    for place in places:
        end = eventually(lambda: _stable_end(addresses, place), f"no transaction is open in {place}", SETTLE_SECONDS)  # noqa: B023
        found = asyncio.run(read_committed(addresses, place, end - 1))
        history.finally_holds(place, found)
        other = Librdkafka(addresses)
        again = other.consume(place.topic, len(found), partition=place.index, isolation="read_committed")
        other.close()
        assert [(each.offset, each.value) for each in again] == found, f"two libraries differ about {place}"


def until_billed(addresses: str, orders: Sequence[Place], invoices: Sequence[Place], history: History) -> None:
    """Wait until there are as many invoices as orders, and record both in the history."""
    note_content(addresses, history, orders)

    def are_billed() -> bool:
        note_content(addresses, history, invoices)
        return _count(history, invoices) >= _count(history, orders)

    eventually(are_billed, "each order has its invoice", SETTLE_SECONDS)


def check_all(history: History, orders: Sequence[Place], invoices: Sequence[Place]) -> None:
    """Compare orders and notes with the responses that their producers got, and invoices with orders: there must be
    exactly one invoice for each order, in the order of the orders. Raises AssertionError.
    """
    for order, invoice in zip(orders, invoices, strict=True):
        for _, value in history.final[order]:
            send = history.send(f"billing of {order}", invoice, b"invoice for " + value)
            history.acknowledged(send)
    check(history)


def _count(history: History, places: Sequence[Place]) -> int:
    return sum(len(history.final[place]) for place in places)


def _stable_end(addresses: str, place: Place) -> int:
    """Return the last stable offset plus one if it equals the high watermark, and 0 otherwise."""
    try:
        stable, high = (asyncio.run(_end(addresses, place, level)) for level in ("read_committed", "read_uncommitted"))
    except KafkaError:
        return 0
    return stable + 1 if stable == high else 0


async def _end(addresses: str, place: Place, isolation: str) -> int:
    async with Consumer(addresses, isolation_level=isolation) as consumer:
        return (await consumer.end_offsets([TopicPartition(*place)]))[TopicPartition(*place)]
