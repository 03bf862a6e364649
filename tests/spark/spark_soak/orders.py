"""Defines the records that are written, and the windows that must result from them.

An order has a unique number, a customer, an event time and an amount. Event times are invented: each round of orders is
one second later than the previous round, so the effect of the watermark does not depend on the clock of the machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

BASE_MS: Final = 1_700_000_100_000
"""The event time of the first round in milliseconds, which is the beginning of a window."""
ROUND_MS: Final = 1_000
WINDOW_MS: Final = 30_000
DELAY_MS: Final = 120_000
"""The delay of the watermark in milliseconds: 120 rounds, which take the writer half a minute. Only orders that are
late on purpose are later than this delay.
"""
DAY_MS: Final = 86_400_000
CLOSING_MS: Final = BASE_MS + 30 * DAY_MS
"""The event time of the closing orders in milliseconds, which close all earlier windows."""
CUSTOMERS: Final = 8
ORDERS: Final = 12
"""The number of orders in a round."""
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
    """Return the orders of round `number`, which are numbered from `first` on."""
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
    """Return the windows of the orders, by start and customer. Late and closing orders belong to no window."""
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
