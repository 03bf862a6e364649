"""The topic `_schemas`: the registry reads it to its end before each response, and writes to it in transactions.

Several registries may write at the same time, and none of them is a leader. Each change is one transaction under a
transactional id that all registries share: a registry that wants to write first takes over the id, which fences the
previous writer (S41). Then the registry reads the topic to its end, decides which records to write, and commits them. A
registry that was fenced meanwhile cannot commit a decision that is based on an older state; it takes over the id again
and decides again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.admin.resources import ConfigResource
from oncelog.errors import ClientClosed, ConnectionFailed, KafkaError, ProducerFenced, RequestTimedOut
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP
from oncelog_registry.errors import RegistryError, store_failed, store_timed_out
from oncelog_registry.limits import CATCH_UP_SECONDS, WRITE_ATTEMPTS
from oncelog_registry.records import Record

T = TypeVar("T")

REPLICAS: Final = 3
"""Replication factor of the topic, if the cluster has as many brokers."""
POLL_MS: Final = 200
BACKOFF_SECONDS: Final = 0.05


class UnusableTopic(Exception):
    """Raised if the topic exists but a registry cannot use it; the message says what to do."""


class Journal:
    """Reads and writes the topic for one registry. Call `start`, then `catch_up` and `write`; finally `close`."""

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, Any],
        topic: str,
        apply: Callable[[bytes | None, bytes | None], None],
    ) -> None:
        """`apply` is called with the key and the value of every record, in the order of the topic."""
        self._bootstrap = bootstrap
        self._settings = dict(settings)
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        self._apply = apply
        self._admin = Admin(bootstrap, **self._settings)
        """A separate client for requests of the topic's end offset, because on the consumer's connection such a request
        would wait behind a fetch.
        """
        self._consumer = Consumer(
            bootstrap, **{**self._settings, "isolation_level": "read_committed", "auto_offset_reset": "none"}
        )
        """The consumer never skips records: if the topic has lost the next record, the consumer raises an error."""
        self._topic_id = b""
        self._producer: Producer | None = None
        self._reading, self._writing = asyncio.Lock(), asyncio.Lock()

    async def start(self) -> None:
        """Create the topic if it does not exist, and read it to its end. Raises KafkaError, UnusableTopic or
        RegistryError.
        """
        await self._admin.start()
        await self._make_topic()
        await self._consumer.start()
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)
        await self.catch_up()

    async def close(self) -> None:
        await self._drop_producer()
        await self._consumer.close()
        await self._admin.close()

    async def catch_up(self, behind: int = -1) -> None:
        """Read all records that are committed now; in any case read until the record at offset `behind` was read.
        Raises RegistryError 50001 or 50002.
        """
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS), self._reading:
                end = await self._end()
                if await self._consumer.position(self._partition) > end:
                    raise store_failed(
                        f"{self._topic} ends at offset {end}, before the position that was read: it was "
                        "truncated, or deleted "
                        "and re-created. If this lasts, restart the registry, so that it reads the topic again"
                    )
                while await self._consumer.position(self._partition) < max(end, behind + 1):
                    polled = await self._consumer.poll(POLL_MS)
                    for record in polled.get(self._partition, ()):
                        self._apply(record.key, record.value)
                await self._check_same_topic()
        except TimeoutError:
            raise store_timed_out(f"{self._topic} was not read to its end in {CATCH_UP_SECONDS:.0f} s") from None
        except KafkaError as error:
            raise store_failed(error.message) from error

    async def _check_same_topic(self) -> None:
        """Check that the topic was not re-created. Raises RegistryError 50001 if its id has changed since the start:
        the records that were read then belong to a deleted topic, and the end offset of the new topic says nothing
        about them. This check comes after reading, so that it covers every record that was read.
        """
        found = (await self._admin.describe_topics([self._topic]))[self._topic]
        if found.topic_id != self._topic_id:
            raise store_failed(
                f"{self._topic} was deleted and created again: restart the registry, so that it reads the new topic"
            )

    async def _end(self) -> int:
        """Return the last stable offset, before which no transaction is open."""
        wanted = {self._partition: LATEST_TIMESTAMP}
        found = await self._admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        return found[self._partition].offset

    async def write(self, decide: Callable[[], Awaitable[tuple[T, Sequence[Record]]]]) -> T:
        """Write the records that `decide` returns, all or none; return the response of `decide` when every registry can
        read the records. `decide` is called after the topic was read to its end, and again if another registry has
        written first.

        Raises the errors of `decide`, and RegistryError 50001 or 50002.
        """
        async with self._writing:
            for _ in range(WRITE_ATTEMPTS):
                try:
                    producer = await self._writer()
                    await self.catch_up()
                    answer, records = await decide()
                    if records:
                        await self.catch_up(await self._commit(producer, records))
                    return answer
                except ProducerFenced:
                    await self._drop_producer()
                    await asyncio.sleep(random.uniform(0, BACKOFF_SECONDS))  # noqa: S311 - no secret
                except RegistryError:
                    raise
                except (RequestTimedOut, ConnectionFailed) as error:
                    await self._drop_producer()
                    raise store_timed_out(error.message) from error
                except KafkaError as error:
                    await self._drop_producer()
                    raise store_failed(f"{error.code.name}: {error.message}") from error
                except BaseException:
                    await self._drop_producer()  # close the producer, which may have an open transaction
                    raise
        raise store_failed(f"other registries wrote first {WRITE_ATTEMPTS} times in a row")

    async def _commit(self, producer: Producer, records: Sequence[Record]) -> int:
        """Commit the records in one transaction; returns the offset of the last record."""
        async with producer.transaction():
            sent = [await producer.send(self._topic, each.value, key=each.key, partition=0) for each in records]
            return [(await each).offset for each in sent][-1]

    async def _writer(self) -> Producer:
        if self._producer is None:
            transactional_id = f"oncelog-registry-{self._topic}"
            producer = Producer(self._bootstrap, transactional_id=transactional_id, **self._settings)
            await producer.start()
            self._producer = producer
        return self._producer

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await producer.close(timeout_s=0)
            except (KafkaError, ClientClosed):
                return  # an open transaction ends when the next writer takes over the transactional id

    async def _make_topic(self) -> None:
        brokers = len((await self._admin.describe_cluster()).brokers)
        topic = NewTopic(self._topic, 1, min(REPLICAS, brokers), {"cleanup.policy": "compact"})
        try:
            await self._admin.create_topics([topic])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        found = (await self._admin.describe_topics([self._topic]))[self._topic]
        if len(found.partitions) != 1:
            raise UnusableTopic(
                f"the topic {self._topic} has {len(found.partitions)} partitions, and a registry needs one: name "
                "another one with --topic"
            )
        self._topic_id = found.topic_id
        resource = ConfigResource.topic(self._topic)
        configs = (await self._admin.describe_configs([resource]))[resource]
        policy = configs["cleanup.policy"].value
        if policy != "compact":
            raise UnusableTopic(
                f"the topic {self._topic} has cleanup.policy={policy}, so its schemas would be deleted one day: "
                f"`oncelog configs alter topic {self._topic} cleanup.policy=compact`, or name another one with "
                "--topic"
            )
