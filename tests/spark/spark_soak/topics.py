"""Writes and reads topics with librdkafka, so that the judge of a run uses no code of oncelog."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from spark_soak.orders import Order, closing_orders, round_of_orders

CALL_SECONDS: Final = 60.0
READ_SECONDS: Final = 120.0
"""Seconds after which reading a topic fails if no record arrives."""
ABORTED: Final = 0.12
"""The share of rounds that are aborted, and written again with other numbers."""


class OrderWriter(threading.Thread):
    """Writes rounds of orders, each in a transaction, until the caller stops it; then writes the closing orders.

    No number is sent in two transactions. If the outcome of a transaction cannot be learned, its numbers are in neither
    `committed` nor `aborted`.
    """

    def __init__(self, addresses: str, topic: str, partitions: int, seed: int, pause_s: float) -> None:
        super().__init__(name="writer", daemon=True)
        self._addresses, self._topic, self._partitions, self._pause_s = addresses, topic, partitions, pause_s
        self._dice = random.Random(seed)
        self._producer = self._new_producer()
        self._next_number = 0
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.rounds = 0
        self.with_late = threading.Event()
        """An event that is set when the watermark has passed the times of late orders: from that time on the writer
        also writes late orders.
        """
        self.ending = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ending.wait(self._pause_s):
                self._write_round(
                    lambda first: round_of_orders(self.rounds, first, self._dice, with_late=self.with_late.is_set())
                )
                self.rounds += 1
            self._write_round(lambda first: closing_orders(first, self._partitions))
        except BaseException as error:
            self.failure = error

    def finish(self, seconds: float) -> None:
        """Write the closing orders. Raises the error of the writer, or TimeoutError."""
        self.ending.set()
        self.join(seconds)
        if self.failure is not None:
            raise self.failure
        if self.is_alive():
            raise TimeoutError(f"the writer has not committed the closing orders within {seconds} s")

    def _write_round(self, orders_from: Callable[[int], list[Order]]) -> None:
        """Write a round of orders, and repeat it with new numbers until it is known to be committed."""
        while True:
            orders = orders_from(self._next_number)
            self._next_number += len(orders)
            if self._wrote(orders, aborts=self._dice.random() < ABORTED):
                return

    def _wrote(self, orders: list[Order], *, aborts: bool) -> bool:
        numbers = {order.number for order in orders}
        try:
            self._producer.begin_transaction()
            for order in orders:
                self._producer.produce(
                    self._topic, order.value, order.customer.encode(), partition=order.number % self._partitions
                )
            if aborts:
                self._producer.flush(CALL_SECONDS)
                self._again(self._producer.abort_transaction)
                self.aborted |= numbers
                return False
            self._again(self._producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                try:
                    self._again(self._producer.abort_transaction)
                except KafkaException:
                    self._producer = self._new_producer()
                else:
                    self.aborted |= numbers
            else:
                self._producer = self._new_producer()
            return False
        self.committed |= numbers
        return True

    def _new_producer(self) -> Producer:
        """Create a producer, which ends the open transaction of its predecessor."""
        producer = Producer(
            {"bootstrap.servers": self._addresses, "transactional.id": "orders", "linger.ms": 5, "log_level": 0}
        )
        self._again(producer.init_transactions)
        return producer

    def _again(self, call: Callable[[float], None]) -> None:
        """Call a function of librdkafka, and repeat the call after retriable errors. Raises KafkaException if the error
        cannot be retried, or was retried for too
        long.
        """
        deadline = time.monotonic() + 3 * CALL_SECONDS
        while True:
            try:
                return call(CALL_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def committed_values(addresses: str, topic: str) -> list[bytes]:
    """Return the values of all records that a read_committed consumer finds. Raises TimeoutError, KafkaException."""
    consumer = Consumer(
        {
            "bootstrap.servers": addresses,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=CALL_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return [value for value in _values(consumer, set(partitions)) if value is not None]
    finally:
        consumer.close()


def _values(consumer: Any, unread: set[int]) -> Iterator[bytes | None]:
    deadline = time.monotonic() + READ_SECONDS
    while unread:
        for message in consumer.consume(1000, 1.0):
            error = message.error()
            if error is None:
                yield message.value()
                deadline = time.monotonic() + READ_SECONDS
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            elif not error.retriable():
                raise KafkaException(error)
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {sorted(unread)} have not been read to their ends within {READ_SECONDS} s")
