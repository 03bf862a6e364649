"""Writes the input of the Streams applications of `streams_app.py`, and checks that each of their counts and copies is
exact.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from threading import Event, Thread

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from foreign_clients import eventually
from librdkafka_closing import close_or_leave

PARTITIONS = 3
WORDS = ("once", "and", "only", "once", "never", "twice")
LINE_EVERY_SECONDS = 0.04
WAIT_SECONDS = 90.0

Copies = dict[str, list[str]]
"""Key -> its lines in order; each key stands for one partition of the source."""


class LineWriter:
    """Writes lines, each exactly once, until the writer is stopped; uses an idempotent librdkafka producer with
    acks=all.
    """

    def __init__(self, address: str, topic: str, every_seconds: float = LINE_EVERY_SECONDS) -> None:
        self._every_seconds = every_seconds
        self.lines: Copies = defaultdict(list)
        self.failed: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                # With several requests in flight, one error makes librdkafka begin a new epoch for all partitions, and
                # send records again that other partitions already have.
                "max.in.flight": 1,
                "delivery.timeout.ms": 110_000,
                "log_level": 0,
            }
        )
        self._stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(self._every_seconds):
            key = str(number % PARTITIONS)
            line = f"line-{number} " + " ".join(WORDS[: 1 + number % len(WORDS)])
            self.lines[key].append(line)
            self._producer.produce(self._topic, line, key, partition=int(key), on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def stop(self) -> None:
        """Stop writing; return when all lines are acknowledged."""
        self.give_up()
        self._thread.join()
        left = self._producer.flush(WAIT_SECONDS)
        assert left == 0, f"{left} lines are not delivered"
        assert not self.failed, self.failed

    def give_up(self) -> None:
        self._stopped.set()

    @property
    def counts(self) -> Counter[str]:
        return Counter(word for lines in self.lines.values() for line in lines for word in line.split(" "))


class Reader:
    """Reads committed records from the beginning of all partitions of a topic."""

    def __init__(self, address: str, topic: str) -> None:
        self.read: Copies = defaultdict(list)
        self.total = 0
        self._ends: dict[int, int] = {}
        self._address = address
        self._following = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        self._consumer = self._open()

    def _open(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        consumer.assign(self._following)
        return consumer

    def read_on(self) -> int:
        """Read more records, and return the total number of records read so far."""
        for message in self._consumer.consume(1000, 0.2):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                self._ends[message.partition()] = message.offset()
            else:
                self.read[message.key().decode()].append(message.value().decode())
                self.total += 1
                self._following[message.partition()].offset = message.offset() + 1
        return self.total

    def more(self, count: int) -> None:
        wanted = self.read_on() + count
        eventually(lambda: self.read_on() >= wanted, f"{count} more are committed", WAIT_SECONDS)

    def to_the_end(self, ends: dict[int, int]) -> None:
        """Read up to these high watermarks; called when no transaction is open any more."""

        def is_there() -> bool:
            self.read_on()
            return self._ends == ends

        eventually(is_there, f"all is read up to {ends}", WAIT_SECONDS)

    def read_anew(self) -> None:
        """Replace the consumer, and continue from the present position."""
        close_or_leave(self._consumer)
        self._consumer = self._open()

    def close(self) -> None:
        close_or_leave(self._consumer)


def high_watermarks(address: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": address})
    latest = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(PARTITIONS)}
    answers = admin.list_offsets(latest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30)
    return {where.partition: answer.result().offset for where, answer in answers.items()}


def check(address: str, writer: LineWriter) -> None:
    """Read the topics with copies and counts again from the beginning to the end, and check every record."""
    for name, expected in (
        ("copies", writer.lines),
        ("counts", {word: [str(n + 1) for n in range(count)] for word, count in writer.counts.items()}),
    ):
        reader = Reader(address, f"app-{name}")
        reader.to_the_end(high_watermarks(address, f"app-{name}"))
        wrong = [key for key in {**expected, **reader.read} if reader.read.get(key) != expected.get(key)]
        assert not wrong, f"{name}: not exact for {wrong}"
        reader.close()
