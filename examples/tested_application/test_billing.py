"""Tests of an application, as its developer would write them: they need only `pip install oncelog[broker]`.

Run them with `pytest examples/tested_application`; docs/testing.md explains the fixtures.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from examples.tested_application.billing import bill

from oncelog_testing.application import ApplicationHistory
from oncelog_testing.broker import Broker
from oncelog_testing.topics import topic_name

ORDERS = 5


@pytest.fixture
def orders(oncelog_broker: Broker, oncelog_topic: str) -> str:
    """A topic with some orders."""
    producer = Producer({"bootstrap.servers": oncelog_broker.bootstrap_servers})
    for number in range(ORDERS):
        producer.produce(oncelog_topic, b"order %d" % number)
    assert producer.flush(60) == 0
    return oncelog_topic


@pytest.fixture
def invoices(oncelog_broker: Broker) -> str:
    name = topic_name("invoices")
    oncelog_broker.create_topic(name)
    return name


def order_of(invoice: bytes) -> bytes:
    return invoice.removeprefix(b"invoice for ")


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        ("EndTxn.answer", {"drop": True}),
        ("EndTxn.request", {"refuse": "NOT_COORDINATOR"}),
        ("Produce.answer", {"drop": True}),
        ("TxnOffsetCommit.request", {"delay": 200}),
        ("marker-sent", {"drop": True}),
    ],
)
def test_each_order_is_billed_once(
    oncelog_broker: Broker,
    oncelog_history: ApplicationHistory,
    orders: str,
    invoices: str,
    point: str,
    fault: dict[str, Any],
) -> None:
    with oncelog_broker.fail(point, **fault) as wrong:
        bill(oncelog_broker.bootstrap_servers, orders, invoices, ORDERS)
        assert wrong.struck == 1  # the fault must have struck, otherwise this test would prove nothing
    oncelog_history.read_processed(orders, invoices, order_of, group_id="billing")
    oncelog_history.check()


def careless(servers: str, orders: list[bytes], invoices: str) -> None:
    """Another application, which writes a record again if it does not know whether the first write succeeded. Without
    retries and without idempotence, librdkafka reports each failure to it.
    """
    producer = Producer({"bootstrap.servers": servers, "retries": 0, "metadata.recovery.strategy": "none"})
    errors: list[object] = []
    for order in orders:
        while not errors or errors.pop() is not None:
            producer.produce(invoices, b"invoice for " + order, on_delivery=lambda error, _: errors.append(error))
            producer.flush(60)


def test_an_application_that_does_not_use_transactions_is_found_out(
    oncelog_broker: Broker, oncelog_history: ApplicationHistory, orders: str, invoices: str
) -> None:
    with oncelog_broker.fail("Produce.answer", drop=True, topic=invoices):
        careless(oncelog_broker.bootstrap_servers, [b"order %d" % number for number in range(ORDERS)], invoices)
    oncelog_history.read_processed(orders, invoices, order_of)
    verdict = oncelog_history.verdict()
    assert not verdict
    assert "TWICE: a record is duplicated (1)\n    b'invoice for order 0'" in str(verdict)
