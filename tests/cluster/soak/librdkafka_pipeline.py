"""Runs consume-process-produce with librdkafka, as its documentation describes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka
from librdkafka_closing import LEFT_BEHIND, close_or_leave
from recording_clients import REFRESH_MS

from oncelog_testing.history.events import NOT_YET, End, Place, Send, Transaction
from soak.pipelines import RECORDS_PER_TRANSACTION, SESSION_MS, TRANSACTION_TIMEOUT_MS, GivenUp, Pipeline

CALL_SECONDS = 10.0
"""Seconds after which a blocking call of librdkafka returns, to be repeated."""
PATIENCE_SECONDS = 45.0
"""Seconds for which a call of librdkafka is repeated; after that time new clients are created."""
POLL_SECONDS = 0.2
LEAVES = 0.02
"""The fraction of transactions that are left open by abandoned clients."""


class Anew(Exception):
    """Raised if only new clients can continue."""


class Abort(Exception):
    """Raised if the transaction has to be aborted."""


class LibrdkafkaPipeline(Pipeline):
    def work(self) -> None:
        elder: Clients | None = None
        while not self.is_over.is_set():
            clients = Clients(self)
            try:
                clients.live(time.monotonic() + self.notes.lives(), elder)
            except Anew as error:
                self.notes.progress.mishap(self.name, f"new clients: {error}")
            if elder is not None:
                elder.close()
            elder = clients
        if elder is not None:
            elder.close()


class Clients:
    """A producer and a consumer, which may be abandoned in the middle of a transaction, so that other clients take
    over.
    """

    def __init__(self, pipeline: LibrdkafkaPipeline) -> None:
        self.notes = pipeline.notes
        self.is_over = pipeline.is_over
        job = self.notes.job
        common = {"bootstrap.servers": job.addresses, "socket.timeout.ms": 5000, "reconnect.backoff.max.ms": 500}
        common |= {"log_level": 0, "topic.metadata.refresh.interval.ms": REFRESH_MS}
        self.producer = confluent_kafka.Producer(
            {
                **common,
                "transactional.id": self.notes.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
                "topic.metadata.refresh.fast.interval.ms": 100,
                "retry.backoff.ms": 100,
            }
        )
        self.consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": job.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 200,
                "partition.assignment.strategy": "range",
            }
        )
        self._batch: list[Any] = []
        self._open: Transaction | None = None
        self._is_left = False
        self._is_closed = False

    def live(self, until: float, elder: Clients | None) -> None:
        """Copy records until the time `until`. Raises Anew if new clients are needed."""
        self._call("init_transactions", self.producer.init_transactions)
        if elder is not None:
            elder.must_have_been_fenced()
            elder.close()
        self.consumer.subscribe([self.notes.job.source], on_assign=self._moved, on_revoke=self._moved)
        while not self.is_over.is_set() and time.monotonic() < until:
            self._poll()
            if self._batch:
                self._transact()

    def must_have_been_fenced(self) -> None:
        """Assert that the producer was fenced: it left an open transaction, and never began to commit it."""
        if self._open is None or not self._is_left:
            return
        try:
            self._call("commit after another one took over", self.producer.commit_transaction)
        except (Anew, Abort):
            self.notes.history.ended(self._open, End.ABORTED)
            self.notes.progress.mishap(self.notes.name, "taken over")
            return
        raise AssertionError(f"{self._open} was committed after another one took over")

    def _moved(self, *_: object) -> None:
        """Called when partitions are revoked or assigned: records that were read, but not processed, are read again."""
        self._batch.clear()

    def _poll(self) -> None:
        """Poll one record at a time, because a rebalance between two records must be noticed."""
        self._batch.clear()
        deadline = time.monotonic() + POLL_SECONDS
        while len(self._batch) < RECORDS_PER_TRANSACTION:
            message = self.consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                return
            if message.error() is None:
                self._batch.append(message)

    def _transact(self) -> None:
        notes, batch = self.notes, list(self._batch)
        group = self.consumer.consumer_group_metadata()
        self.producer.begin_transaction()
        self._open = transaction = notes.begin()
        try:
            for message in batch:
                send = notes.output(Place(message.topic(), message.partition()), message.offset(), transaction)
                self.producer.produce(
                    send.place.topic, send.value, partition=send.place.index, on_delivery=partial(self._delivered, send)
                )
            if notes.gives_up():
                raise GivenUp
            ends = {Place(each.topic(), each.partition()): each.offset() + 1 for each in batch}
            told = [confluent_kafka.TopicPartition(*place, offset) for place, offset in ends.items()]
            self._call("send_offsets", self.producer.send_offsets_to_transaction, told, group)
            notes.commit_offsets(ends, transaction)
            if notes.rng.random() < LEAVES:
                self._is_left = True
                raise Anew("left in the middle of a transaction")
            self._call("commit", self.producer.commit_transaction)
        except (Abort, GivenUp):
            self._call("abort", self.producer.abort_transaction)
            notes.ended(transaction, End.ABORTED)
            self._open = None
            self._rewind(batch)
        else:
            notes.ended(transaction, End.COMMITTED)
            self._open = None

    def _rewind(self, batch: list[Any]) -> None:
        assigned = {(each.topic, each.partition) for each in self.consumer.assignment()}
        first: dict[tuple[str, int], int] = {}
        for message in batch:
            first.setdefault((message.topic(), message.partition()), message.offset())
        for (topic, index), offset in first.items():
            if (topic, index) in assigned:
                try:
                    self.consumer.seek(confluent_kafka.TopicPartition(topic, index, offset))
                except confluent_kafka.KafkaException as error:
                    raise Anew("seek") from error

    def _delivered(self, send: Send, error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is None:
            self.notes.history.acknowledged(send, NOT_YET if message.offset() is None else message.offset())

    def _call(self, what: str, work: Callable[..., Any], *arguments: Any) -> None:
        """Call librdkafka. Raises Abort or Anew."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._in_time(what, partial(work, *arguments, CALL_SECONDS))
            except confluent_kafka.KafkaException as error:
                reason: confluent_kafka.KafkaError = error.args[0]
                if what == "abort" and reason.txn_requires_abort():
                    raise Anew("abort is to be aborted") from error
                if reason.txn_requires_abort():
                    raise Abort from error
                if not reason.retriable():
                    raise Anew(f"{what}: {reason.name()}") from error
                if time.monotonic() > deadline:
                    raise Anew(f"{what} hangs: {reason.name()}") from error

    def _in_time(self, what: str, work: Callable[[], Any]) -> None:
        """Make a blocking call of librdkafka; if the call does not return in time, abandon the call and its producer.

        librdkafka 2.10 and later waits for ever for a group coordinator that it knew and that has left the metadata.
        """
        failures: list[BaseException] = []

        def call() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=call, daemon=True, name=f"{self.notes.name} {what}")
        thread.start()
        thread.join(2 * CALL_SECONDS)
        if thread.is_alive():
            LEFT_BEHIND.append(self.producer)
            self._is_closed = True
            close_or_leave(self.consumer)
            raise Anew(f"{what} does not return")
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close the clients; an open transaction remains open."""
        if not self._is_closed:
            self._is_closed = True
            self.producer.purge()
            close_or_leave(self.consumer)
