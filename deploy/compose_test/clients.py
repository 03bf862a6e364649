"""Clients on the host, all of librdkafka, which note in a `History` what they do, are told and get."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final, Self

import confluent_kafka
from recording_clients import PATIENCE_SECONDS, Abortable, LibrdkafkaRecording
from tests.support.history.events import Place, Reading
from tests.support.history.recorder import History

ABORTED: Final = 4
"""One transaction in so many is aborted on purpose."""


class Orders:
    """Writes orders, one to each of its partitions in each transaction, until the end of the `with`."""

    def __init__(self, addresses: str, history: History, name: str, places: Sequence[Place]) -> None:
        """`name`: no other producer's, also of an earlier run. The transactional id is that of all of them."""
        self._addresses, self._history, self._name, self._places = addresses, history, name, places
        self._progress = threading.Condition()
        self.committed = 0
        self.aborted = 0
        self._last = time.monotonic()
        self._longest = 0.0
        self._is_over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(2 * PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        try:
            with LibrdkafkaRecording(self._addresses, self._history, self._name, "orders") as producer:
                while not self._is_over:
                    self._transact(producer)
        except BaseException as error:
            self._failure = error
            with self._progress:
                self._progress.notify_all()

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
        """Until so many more are committed. Raises what ended the writer."""
        with self._progress:
            goal = self.committed + count
            is_done = self._progress.wait_for(lambda: self.committed >= goal or self._failure, 2 * PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure
        assert is_done, f"{self.committed} transactions are committed, not {goal}"

    def longest_wait(self) -> float:
        """Seconds from one commit to the next, the longest since the last call."""
        with self._progress:
            longest = max(self._longest, time.monotonic() - self._last)
            self._longest = 0.0
        return longest


class Reader:
    """Reads what is committed from the beginning, as it comes, until the end of the `with`."""

    def __init__(self, addresses: str, history: History, name: str, places: Sequence[Place]) -> None:
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
        self._is_over = False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(PATIENCE_SECONDS)
        self._consumer.close()

    def _read(self) -> None:
        while not self._is_over:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                place = Place(message.topic(), message.partition())
                self._readings[place].records.append((message.offset(), message.value()))

    @property
    def count(self) -> int:
        return sum(len(reading.records) for reading in self._readings.values())
