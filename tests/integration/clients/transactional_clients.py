"""Offers the transactional producers of oncelog and of foreign libraries through one interface.

If a newer producer uses the same transactional id, the exception `Fenced` replaces the error of each library.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.errors import ProducerFenced
from foreign_clients import TIMEOUT_SECONDS, eventually

import oncelog.errors

T = TypeVar("T")


class Fenced(Exception):
    """Another producer with the same transactional id has taken over."""


class TransactionalProducer(ABC):
    """A producer that has initialised its transactions. `close` must not wait for the end of open transactions."""

    def __init__(self, address: str, transactional_id: str) -> None:
        self.address = address
        self.transactional_id = transactional_id

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record, and wait until it is acknowledged. Raises Fenced."""

    @abstractmethod
    def send_offset(self, topic: str, offset: int, group: str) -> None:
        """Send an offset of partition 0, for a group without members. Raises Fenced."""

    @abstractmethod
    def commit(self) -> None:
        """Raises Fenced."""

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class LibrdkafkaProducer(TransactionalProducer):
    def __init__(self, address: str, transactional_id: str) -> None:
        super().__init__(address, transactional_id)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 0}
        )
        self._producer.init_transactions(TIMEOUT_SECONDS)

    def _call(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise Fenced from error
            raise

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        failures: list[confluent_kafka.KafkaError] = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        assert self._producer.flush(TIMEOUT_SECONDS) == 0
        if failures:
            raise Fenced(failures[0])

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        with_metadata = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": group})
        try:
            offsets = [confluent_kafka.TopicPartition(topic, 0, offset)]
            self._call(
                self._producer.send_offsets_to_transaction,
                offsets,
                with_metadata.consumer_group_metadata(),
                TIMEOUT_SECONDS,
            )
        finally:
            with_metadata.close()

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, TIMEOUT_SECONDS)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, TIMEOUT_SECONDS)

    def close(self) -> None:
        self._producer.purge()


class KafkaPythonProducer(TransactionalProducer):
    def __init__(self, address: str, transactional_id: str) -> None:
        super().__init__(address, transactional_id)
        self._producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        self._producer.init_transactions()

    def _call(self, work: Any, *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except kafka.errors.ProducerFencedError as error:
            raise Fenced from error

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        future = self._call(lambda: self._producer.send(topic, value, partition=partition))
        self._call(future.get, TIMEOUT_SECONDS)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(offset, "", -1)}
        self._call(self._producer.send_offsets_to_transaction, offsets, group)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)


class AiokafkaProducer(TransactionalProducer):
    def __init__(self, address: str, transactional_id: str) -> None:
        super().__init__(address, transactional_id)
        self._runner = asyncio.Runner()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, TIMEOUT_SECONDS)

        try:
            return self._runner.run(bounded())
        except ProducerFenced as error:
            raise Fenced from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        except Fenced:
            pass
        self._runner.close()


class OncelogProducer(TransactionalProducer):
    def __init__(self, address: str, transactional_id: str) -> None:
        super().__init__(address, transactional_id)
        self._runner = asyncio.Runner()

        async def start() -> oncelog.Producer:
            producer = oncelog.Producer(address, transactional_id=transactional_id)
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, TIMEOUT_SECONDS)

        try:
            return self._runner.run(bounded())
        except oncelog.errors.ProducerFenced as error:
            raise Fenced from error

    def begin(self) -> None:
        async def begin() -> None:
            self._producer.begin_transaction()

        self._run(begin())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        nobody = oncelog.ConsumerGroupMetadata(group, -1, "", None)
        self._run(self._producer.send_offsets({oncelog.TopicPartition(topic, 0): offset}, nobody))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.close(0))
        self._runner.close()


PRODUCERS: Mapping[str, type[TransactionalProducer]] = {
    "librdkafka": LibrdkafkaProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
    "oncelog": OncelogProducer,
}


def new_id() -> str:
    return f"txn-{uuid.uuid4().hex[:12]}"


def committed_offset(address: str, group: str, topic: str) -> int | None:
    """Return the committed offset as librdkafka sees it; librdkafka requests only stable offsets."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        found = eventually(
            lambda: consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=TIMEOUT_SECONDS),
            "offsets are stable",
        )
    finally:
        consumer.close()
    offset = int(found[0].offset)
    return None if offset < 0 else offset
