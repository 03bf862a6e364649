"""Clients that run on the host and use librdkafka. They record their requests, responses and records in a `History`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import confluent_kafka
from recording_clients import PATIENCE_SECONDS, Abortable, LibrdkafkaRecording
from tests.support.background import Background

from oncelog_testing.history.events import Place, Reading
from oncelog_testing.history.recorder import History

ABORTED: Final = 4
"""Of this number of transactions, one is aborted on purpose."""


class Orders(Background):
    """Writes orders in transactions, each with one order for each partition, until the end of the `with` block."""

    def __init__(self, addresses: str, history: History, name: str, places: Sequence[Place]) -> None:
        """`name` must differ from the names of all other producers, also of earlier runs. All producers of this writer
        use one transactional id.
        """
        super().__init__(2 * PATIENCE_SECONDS)
        self._addresses, self._history, self._name, self._places = addresses, history, name, places
        self.committed = 0
        self.aborted = 0
        self._last = time.monotonic()
        self._longest = 0.0

    def _work(self) -> None:
        with LibrdkafkaRecording(self._addresses, self._history, self._name, "orders") as producer:
            while not self.is_over:
                self._transact(producer)

    def _transact(self, producer: LibrdkafkaRecording) -> None:
        producer.begin()
        try:
            for place in self._places:
                producer.send(place)
            producer.flush()
            if (self.committed + self.aborted) % ABORTED:
                producer.commit()
            else:
                producer.abort()
                self.aborted += 1
                return
        except Abortable:
            producer.abort()
            self.aborted += 1
            return
        with self._progress:
            now = time.monotonic()
            self._longest = max(self._longest, now - self._last)
            self._last = now
            self.committed += 1
            self._progress.notify_all()

    def until_more(self, count: int) -> None:
        """Wait until `count` more transactions are committed. Raises the error that has ended the writer."""
        goal = self.committed + count
        self.until(lambda: self.committed >= goal, f"{goal} transactions")

    def longest_wait(self) -> float:
        """Return the longest time from one commit to the next since the last call, in seconds."""
        with self._progress:
            longest = max(self._longest, time.monotonic() - self._last)
            self._longest = 0.0
        return longest


class Reader(Background):
    """Reads committed records from the beginning, until the end of the `with` block."""

    def __init__(self, addresses: str, history: History, name: str, places: Sequence[Place]) -> None:
        super().__init__(PATIENCE_SECONDS)
        self._readings: dict[Place, Reading] = {place: history.reading(name, place) for place in places}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": "unused: partitions are assigned by hand",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._consumer.close()

    def _work(self) -> None:
        while not self.is_over:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                place = Place(message.topic(), message.partition())
                self._readings[place].records.append((message.offset(), message.value()))

    @property
    def count(self) -> int:
        return sum(len(reading.records) for reading in self._readings.values())
