"""Consumers without a group; each reads an entire topic from its beginning, until the run ends."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod

import confluent_kafka
from librdkafka_closing import close_or_leave
from recording_clients import REFRESH_MS

import oncelog
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History
from soak.progress import Progress

JOIN_SECONDS = 60.0
STANDSTILL_SECONDS = 75.0
"""A reader without progress is replaced after this many seconds: longer than three killed brokers need to serve again,
and half of the time after which a client counts as stuck.
"""


class Reader(ABC):
    def __init__(
        self,
        name: str,
        addresses: str,
        places: list[Place],
        history: History,
        progress: Progress,
        *,
        is_committed: bool,
    ) -> None:
        self.name = name
        self.addresses = addresses
        self.places = places
        self.isolation = "read_committed" if is_committed else "read_uncommitted"
        self.is_over = threading.Event()
        self.failure: BaseException | None = None
        self._progress = progress
        self._readings = {place: history.reading(name, place, is_committed=is_committed) for place in places}
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)

    def start(self) -> None:
        self._progress.begins(self.name)
        self._thread.start()

    def stop(self) -> None:
        self.is_over.set()
        self._thread.join(JOIN_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        self._progress.over(self.name)

    def note(self, place: Place, offset: int, value: bytes) -> None:
        self._readings[place].records.append((offset, value))
        self._progress.note(self.name)

    def _work(self) -> None:
        try:
            self.read()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def read(self) -> None:
        """Until `is_over`."""


class OurReader(Reader):
    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        async with oncelog.Consumer(
            self.addresses,
            isolation_level=self.isolation,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            request_timeout_ms=5000,
            reconnect_backoff_max_ms=500,
        ) as consumer:
            partitions = [oncelog.TopicPartition(*place) for place in self.places]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while not self.is_over.is_set():
                for where, records in (await consumer.poll(200)).items():
                    for record in records:
                        self.note(Place(*where), record.offset, bytes(record.value or b""))


class LibrdkafkaReader(Reader):
    """librdkafka 2.16 drops a broker that is missing in the metadata for a moment, and occasionally never reads from
    that broker again. In that case a new consumer replaces the old one, as an operator would do; if the new consumer
    makes no progress either, the client counts as stuck.
    """

    def read(self) -> None:
        following = dict.fromkeys(self.places, 0)
        while not self.is_over.is_set():
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self.addresses,
                    "group.id": self.name,
                    "isolation.level": self.isolation,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "socket.timeout.ms": 5000,
                    "reconnect.backoff.max.ms": 500,
                    "topic.metadata.refresh.interval.ms": REFRESH_MS,
                    "fetch.wait.max.ms": 200,
                    "log_level": 0,
                }
            )
            consumer.assign([confluent_kafka.TopicPartition(*place, offset) for place, offset in following.items()])
            try:
                self._read(consumer, following)
            finally:
                close_or_leave(consumer)
            if not self.is_over.is_set():
                self._progress.mishap(self.name, "stood still, and was made anew")

    def _read(self, consumer: confluent_kafka.Consumer, following: dict[Place, int]) -> None:
        """Read until the run is over or the consumer makes no progress."""
        read_at = time.monotonic()
        while not self.is_over.is_set() and time.monotonic() < read_at + STANDSTILL_SECONDS:
            for message in consumer.consume(100, 0.2):
                error = message.error()
                if error is None:
                    place = Place(message.topic(), message.partition())
                    self.note(place, message.offset(), message.value())
                    following[place] = message.offset() + 1
                    read_at = time.monotonic()
                elif error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                    raise AssertionError(f"{self.name} is out of range: {error}")
