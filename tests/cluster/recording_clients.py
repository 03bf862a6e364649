"""Producers of oncelog and librdkafka that record their requests and the outcomes in a `History`.

A record that its producer has given up is "unknown": the error means that the record will not be sent again, but the
record may have been written.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Self, TypeVar

import confluent_kafka
from clinging import STATISTICS_MS, Calls, Clings
from tests.support.background import Background

import oncelog
import oncelog.errors
from oncelog_testing.history.events import NOT_YET, End, Place, Send, Transaction
from oncelog_testing.history.recorder import History

T = TypeVar("T")

PATIENCE_SECONDS = 80.0
"""Limit in seconds for any single call, longer than any failover takes on a busy machine."""
REFRESH_MS = 5000
"""The value of librdkafka's topic.metadata.refresh.interval.ms. If a broker was missing in the metadata for a moment,
librdkafka 2.16 keeps using the abandoned connection to the leader of a partition until another broker leads; by default
it would refresh the metadata only every five minutes.
"""
CALL_SECONDS = 20.0
"""A call of librdkafka returns after this many seconds and is repeated, because no test can be interrupted while the
call waits in C code.
"""
PATIENCE_MS = int(PATIENCE_SECONDS * 1000)
DEBUG = os.environ.get("LIBRDKAFKA_DEBUG", "")
"""The `debug` setting of librdkafka's producers, for instance `eos,broker,protocol,topic`."""

LEFT_BEHIND: list[confluent_kafka.Producer] = []
"""Clients of librdkafka with a call that never returns; they are kept, because destroying a client would wait for that
call.
"""


class Loop:
    """An asyncio event loop that runs in its own thread, so that blocking tests can call coroutines."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = PATIENCE_SECONDS) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class Abortable(Exception):
    """Raised if the transaction can only be aborted."""


class RecordingProducer(ABC):
    """A producer that is idempotent or transactional. The values of the producer's records are `name/number`, unless
    they are given.
    """

    def __init__(self, addresses: str, history: History, name: str, transactional_id: str | None = None) -> None:
        self.addresses = addresses
        self.history = history
        self.name = name
        self.transactional_id = transactional_id
        self.transaction: Transaction | None = None
        self._numbers = itertools.count()
        self._progress = threading.Condition()
        self.sent = 0
        self.answered = 0
        """The number of records of this producer that were acknowledged or given up."""
        self.acknowledged = 0
        self._since: dict[Send, float] = {}
        """The time at which each record without an outcome was sent."""
        self._waits: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, place: Place, value: bytes | None = None) -> Send:
        """Send a record, and do not wait for its outcome. Raises Abortable."""
        value = b"%s/%d" % (self.name.encode(), next(self._numbers)) if value is None else value
        send = self.history.send(self.name, place, value, self.transaction)
        self.sent += 1
        self._since[send] = time.monotonic()
        self._send(send)
        return send

    def longest_wait(self) -> float:
        """Return how many seconds the slowest record has taken from being sent to its outcome, among the records with
        an outcome since the last call.
        """
        waits, self._waits = self._waits, []
        return max(waits, default=0.0)

    def _done(self, send: Send, offset: int | None) -> None:
        """Record the outcome of a record; offset None means that the producer has given it up."""
        if offset is not None:
            self.history.acknowledged(send, offset)
        self._waits.append(time.monotonic() - self._since.pop(send))
        with self._progress:
            self.answered += 1
            self.acknowledged += offset is not None
            self._progress.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until `condition` is true; it is checked whenever a record gets its outcome."""
        with self._progress:
            assert self._progress.wait_for(condition, timeout), f"{self.name}: {self.answered} of {self.sent} answered"

    def begin(self) -> None:
        self.transaction = self.history.transaction(self.name)
        self._begin()

    def commit(self) -> None:
        """Raises Abortable."""
        assert self.transaction is not None
        self._commit()
        self.history.ended(self.transaction, End.COMMITTED)
        self.transaction = None

    def abort(self) -> None:
        assert self.transaction is not None
        self._abort()
        self.history.ended(self.transaction, End.ABORTED)
        self.transaction = None

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        """Send an offset for a group without members, as part of the transaction. Raises Abortable; raises Clings,
        after which the producer can only be closed.
        """
        commit = self.history.commit(group, place, offset, self.transaction)
        self._send_offset(group, place, offset)
        self.history.commit_answered(commit)

    @abstractmethod
    def _send(self, send: Send) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Wait until the outcome of all records is known."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _abort(self) -> None: ...

    @abstractmethod
    def _send_offset(self, group: str, place: Place, offset: int) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close the producer without waiting for open requests."""


class OncelogRecording(RecordingProducer):
    def __init__(
        self, addresses: str, history: History, name: str, transactional_id: str | None = None, **settings: Any
    ) -> None:
        super().__init__(addresses, history, name, transactional_id)
        self._loop = Loop()
        options = {"linger_ms": 0, "max_block_ms": PATIENCE_MS, "delivery_timeout_ms": PATIENCE_MS, **settings}
        options.setdefault("request_timeout_ms", 5000)

        async def start() -> oncelog.Producer:
            producer = oncelog.Producer(addresses, transactional_id=transactional_id, **options)
            await producer.start()
            return producer

        self._producer = self._loop.run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except oncelog.errors.AbortableError as error:
            raise Abortable from error

    def _send(self, send: Send) -> None:
        async def hand_over() -> None:
            future = await self._producer.send(send.place.topic, send.value, partition=send.place.index)
            future.add_done_callback(partial(self._answered, send))

        self._run(hand_over())

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        failed = future.cancelled() or future.exception() is not None
        self._done(send, None if failed else future.result().offset)

    def flush(self) -> None:
        self._loop.run(self._producer.flush())

    def _begin(self) -> None:
        async def begin() -> None:
            self._producer.begin_transaction()

        self._run(begin())

    def _commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def _abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def _send_offset(self, group: str, place: Place, offset: int) -> None:
        nobody = oncelog.ConsumerGroupMetadata(group, -1, "", None)
        self._run(self._producer.send_offsets({oncelog.TopicPartition(*place): offset}, nobody))

    def close(self) -> None:
        self._loop.run(self._producer.close(0))
        self._loop.close()


class LibrdkafkaRecording(RecordingProducer):
    def __init__(
        self, addresses: str, history: History, name: str, transactional_id: str | None = None, **settings: Any
    ) -> None:
        super().__init__(addresses, history, name, transactional_id)
        self._calls = Calls()
        options: dict[str, Any] = {
            "bootstrap.servers": addresses,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": PATIENCE_MS,
            "socket.timeout.ms": 5000,
            "request.timeout.ms": 5000,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._calls.note,
            **({"debug": DEBUG} if DEBUG else {"log_level": 0}),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        if transactional_id is not None:
            options |= {"transactional.id": transactional_id, "message.timeout.ms": 60_000}
        self._producer = confluent_kafka.Producer(options)
        if transactional_id is not None:
            self._retrying(self._producer.init_transactions)
        self._is_closed = False
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(0.05)

    def _retrying(self, work: Callable[..., Any], *arguments: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return work(*arguments, CALL_SECONDS)
            except confluent_kafka.KafkaException as error:
                if error.args[0].txn_requires_abort():
                    raise Abortable from error
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _send(self, send: Send) -> None:
        def delivered(error: confluent_kafka.KafkaError | None, message: Any) -> None:
            offset = NOT_YET if message.offset() is None else message.offset()
            self._done(send, None if error else offset)

        self._producer.produce(send.place.topic, send.value, partition=send.place.index, on_delivery=delivered)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        # The polling thread may have received the last delivery reports without having recorded them yet.
        self.wait_for(lambda: self.answered == self.sent)

    def _begin(self) -> None:
        self._producer.begin_transaction()

    def _commit(self) -> None:
        self._retrying(self._producer.commit_transaction)

    def _abort(self) -> None:
        self._retrying(self._producer.abort_transaction)

    def _send_offset(self, group: str, place: Place, offset: int) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.addresses, "group.id": group})
        try:
            told = [confluent_kafka.TopicPartition(place.topic, place.index, offset)]
            self._retrying(self._send_in_time, told, consumer.consumer_group_metadata())
        except Clings:
            LEFT_BEHIND.append(self._producer)
            raise
        finally:
            consumer.close()

    def _send_in_time(self, offsets: Any, group: Any, seconds: float) -> None:
        self._calls.make(self._producer.send_offsets_to_transaction, offsets, group, seconds=seconds)

    def close(self) -> None:
        if self._producer not in LEFT_BEHIND:
            self._producer.purge()
        self._is_closed = True
        self._poller.join(10)


PRODUCERS: Mapping[str, type[RecordingProducer]] = {"oncelog": OncelogRecording, "librdkafka": LibrdkafkaRecording}


class Writer(Background):
    """Sends records to several partitions in rotation, so that a few records are always in flight.

    with Writer(producer, places) as writer:
        writer.until_more(20)   # acknowledged since the last call
    """

    def __init__(self, producer: RecordingProducer, *places: Place, under_way: int = 10) -> None:
        super().__init__(PATIENCE_SECONDS)
        self.producer = producer
        self._places = itertools.cycle(places)
        self._under_way = under_way

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.producer.flush()

    def _work(self) -> None:
        producer = self.producer
        while not self.is_over:
            producer.send(next(self._places))
            producer.wait_for(lambda: producer.sent - producer.answered < self._under_way or self.is_over)

    def until_more(self, count: int) -> None:
        """Wait until `count` more records are acknowledged."""
        goal = self.producer.acknowledged + count
        self.producer.wait_for(lambda: self.producer.acknowledged >= goal)
