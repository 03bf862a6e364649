"""Definitions that the programs share: the names of topics, the windows, and the order, in JSON and in Avro.

An order says which customer bought, for how much, and when: `{"order": "o-17", "customer": "c3", "cents": 729, "at":
"2026-11-26T08:00:17Z"}`. In Avro an order has the same fields (order.avsc); `at` is a timestamp-millis.
"""

from __future__ import annotations

import csv
import io
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

ORDERS, REVENUE, DEAD_LETTERS = "orders", "revenue", "orders-dead"
PARTITIONS: Final = 2
SERVERS_VARIABLE: Final = "ONCELOG_BOOTSTRAP_SERVER"
"""The environment variable with the brokers' addresses, as for the command `oncelog`."""
DEFAULT_SERVERS: Final = "127.0.0.1:9092"

WINDOW_SECONDS: Final = 60
LATENESS_SECONDS: Final = 120
"""Seconds after the end of a window: the window closes when the newest order is that much later than its end. An order
of a closed window is late.
"""
UNKNOWN_COUNTRY: Final = "unknown"
"""The country of a customer who is not in the table."""

JSON, AVRO = "json", "avro"
FORMATS: Final = (JSON, AVRO)
CUSTOMERS_FILE: Final = Path(__file__).with_name("customers.csv")
SCHEMA: Final = Path(__file__).with_name("order.avsc").read_text(encoding="utf-8")
LATE_PREFIX: Final = "late-"
"""The prefix of the ids of orders that `send --late` writes, by which `judge` recognises late orders."""

NO_VALUE: Final = "the record has no value"
NO_ORDER: Final = "the value is not an order: order, customer, cents and at are needed"
NEGATIVE: Final = "cents is negative"
"""The reasons why a record is a dead letter. The reason depends only on the record's value, so that both queries
classify each record in the same way.
"""
REASON, TOPIC, PARTITION, OFFSET = (f"dead-letter.{name}" for name in ("reason", "topic", "partition", "offset"))
"""The names of the headers of a dead letter: the reason, and topic, partition and offset of the original record."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order. `at` has a time zone, and `cents` is in the same currency for all orders."""

    order: str
    customer: str
    cents: int
    at: datetime


def encoded(order: Order, form: str) -> bytes:
    """Return the value of the record for an order. `form` is one of FORMATS."""
    if form == AVRO:
        from fastavro import schemaless_writer

        stream = io.BytesIO()
        schemaless_writer(stream, _schema(), {name: getattr(order, name) for name in Order.__slots__})
        return stream.getvalue()
    at = order.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"order": order.order, "customer": order.customer, "cents": order.cents, "at": at}).encode()


def read_order(value: bytes | None, form: str) -> Order | str:
    """Return the order in a value, or the reason why the record is a dead letter."""
    if value is None:
        return NO_VALUE
    try:
        fields = _fields(value, form)
        order = Order(str(fields["order"]), str(fields["customer"]), operator.index(fields["cents"]), fields["at"])
    except Exception:  # the libraries raise many kinds of errors for invalid bytes
        return NO_ORDER
    return NEGATIVE if order.cents < 0 else order


def _fields(value: bytes, form: str) -> Mapping[str, Any]:
    """Decode the fields of an order. Raises any exception of json, fastavro and datetime."""
    if form == AVRO:
        from fastavro import schemaless_reader

        stream = io.BytesIO(value)
        fields = schemaless_reader(stream, _schema(), None)
        if not isinstance(fields, Mapping) or stream.tell() != len(value):
            raise ValueError("bytes are left over")
        return fields
    fields = json.loads(value)
    return {**fields, "at": datetime.fromisoformat(fields["at"])}


def read_customers(file: Path) -> dict[str, str]:
    """Return the country of each customer. Raises ValueError if a customer occurs twice, because the orders of that
    customer would then count twice.
    """
    with file.open(newline="", encoding="utf-8") as lines:
        rows = [(row["customer"], row["country"]) for row in csv.DictReader(lines)]
    customers = dict(rows)
    if len(customers) < len(rows):
        twice = sorted({customer for customer, _ in rows if [name for name, _ in rows].count(customer) > 1})
        raise ValueError(f"{file}: {', '.join(twice)} is there more than once: leave one line of each customer")
    return customers


@cache
def _schema() -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(SCHEMA))
