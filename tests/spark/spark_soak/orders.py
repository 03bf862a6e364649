"""The records that are written, and the windows that must result from them.

An order has a number of its own, a customer, an event time and an amount. Event time is made up: each round of orders
is one second later than the one before, so what the watermark lets through does not depend on the clock of a machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

BASE_MS: Final = 1_700_000_100_000
"""The event time of the first round: the beginning of a window."""
ROUND_MS: Final = 1_000
WINDOW_MS: Final = 30_000
DELAY_MS: Final = 120_000
"""The delay of the watermark: 120 rounds, half a minute of the writer. No order is later than that, unless it is meant
to be."""
DAY_MS: Final = 86_400_000
CLOSING_MS: Final = BASE_MS + 30 * DAY_MS
"""The event time of the last orders, which close all windows before them."""
CUSTOMERS: Final = 8
ORDERS: Final = 12
"""Orders per round."""
LATE: Final = 0.1
"""The share of rounds with an order that comes a day too late."""


class Order(NamedTuple):
    number: int
    customer: str
    at_ms: int
    amount: int

    @property
    def value(self) -> bytes:
        return json.dumps(
            {"number": self.number, "customer": self.customer, "at": self.at_ms, "amount": self.amount}
        ).encode()

    @classmethod
    def from_value(cls, value: bytes) -> Self:
        read = json.loads(value)
        return cls(read["number"], read["customer"], read["at"], read["amount"])

    @property
    def is_late(self) -> bool:
        return self.at_ms < BASE_MS

    @property
    def is_closing(self) -> bool:
        return self.at_ms >= CLOSING_MS


class Window(NamedTuple):
    """The orders of one customer in one window, by their numbers."""

    start_ms: int
    customer: str
    rows: int
    amount: int
    numbers: tuple[int, ...]

    @classmethod
    def from_value(cls, value: bytes) -> Self:
        read = json.loads(value)
        return cls(read["start"], read["customer"], read["rows"], read["amount"], tuple(read["numbers"]))


def round_of_orders(number: int, first: int, dice: random.Random, *, with_late: bool) -> list[Order]:
    """The orders of round `number`, whose own numbers begin with `first`."""
    orders = [
        Order(
            first + index,
            f"customer {dice.randrange(CUSTOMERS)}",
            BASE_MS + number * ROUND_MS + dice.randrange(ROUND_MS),
            dice.randrange(1, 1000),
        )
        for index in range(ORDERS)
    ]
    if with_late and dice.random() < LATE:
        orders.append(Order(first + ORDERS, "customer 0", BASE_MS - DAY_MS + number, 1))
    return orders


def closing_orders(first: int, count: int) -> list[Order]:
    return [Order(first + index, "closing", CLOSING_MS, 0) for index in range(count)]


def windows_of(orders: Iterable[Order]) -> dict[tuple[int, str], Window]:
    """By start and customer. Late and closing orders are in none."""
    gathered: dict[tuple[int, str], list[Order]] = {}
    for order in orders:
        if not order.is_late and not order.is_closing:
            start = order.at_ms - order.at_ms % WINDOW_MS
            gathered.setdefault((start, order.customer), []).append(order)
    return {
        (start, customer): Window(
            start,
            customer,
            len(found),
            sum(order.amount for order in found),
            tuple(sorted(order.number for order in found)),
        )
        for (start, customer), found in gathered.items()
    }
