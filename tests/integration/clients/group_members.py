"""Observes the members of a group: a ledger records which member has which partition and which member has read which
record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

from oncelog import Consumer, ConsumerRecord, Producer, RebalanceListener, TopicPartition

TIMEOUT_SECONDS = 60.0
LOOK_SECONDS = 0.01
POLL_MS = 50

QUICK = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 30_000,  # session timeout in ms, so long that no member times out because the machine is busy
    "heartbeat_interval_ms": 50,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
    "fetch_max_wait_ms": 100,
}


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until `condition()` is true. Raises AssertionError if `condition` does not become true in time."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():  # noqa: ASYNC110 - it may come true by anything
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {TIMEOUT_SECONDS} s: {what}") from None


class Ledger:
    """Records the owners of partitions, and the readers of records. When an event occurs, the ledger asserts every rule
    of a group.
    """

    def __init__(self) -> None:
        self.owner: dict[TopicPartition, str] = {}
        self.read: dict[TopicPartition, list[int]] = {}
        self.values: list[bytes | None] = []
        self.readers: dict[bytes | None, str] = {}

    def assigned(self, member: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            assert partition not in self.owner, f"{partition} is given to {member}, but {self.owner[partition]} has it"
            self.owner[partition] = member

    def given_up(self, member: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            assert self.owner.pop(partition) == member, f"{member} gives up {partition}, which it does not have"

    def record(self, member: str, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        assert self.owner.get(partition) == member, f"{member} reads {partition}: {self.owner.get(partition)} has it"
        self.read.setdefault(partition, []).append(record.offset)
        self.values.append(record.value)
        self.readers[record.value] = member

    def assert_each_read_once(self) -> None:
        for partition, offsets in self.read.items():
            assert offsets == list(range(len(offsets))), f"{partition} was read as {offsets}"

    def partitions_of(self, member: str) -> set[TopicPartition]:
        return {partition for partition, owner in self.owner.items() if owner == member}


class Member(RebalanceListener):
    """A consumer with a task that polls it. While `is_polling` is False, the task does not poll (see `rest`)."""

    def __init__(self, name: str, address: str, group: str, ledger: Ledger, **options: Any) -> None:
        self.name = name
        self.ledger = ledger
        self.consumer = Consumer(address, group_id=group, **{**QUICK, **options})
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.is_polling = True
        self.rests = False
        self.polls = 0
        self.count = 0
        self._task: asyncio.Task[None] | None = None

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", tuple(partitions)))
        self.ledger.assigned(self.name, partitions)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", tuple(partitions)))
        self.ledger.given_up(self.name, partitions)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", tuple(partitions)))
        for partition in partitions:
            if self.ledger.owner.get(partition) == self.name:
                del self.ledger.owner[partition]

    async def start(self, *topics: str, **subscription: Any) -> Member:
        await self.consumer.start()
        self.consumer.subscribe(topics or None, listener=self, **subscription)
        self._task = asyncio.ensure_future(self._run())
        return self

    async def _run(self) -> None:
        while True:
            self.rests = not self.is_polling
            if self.rests:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            for records in (await self.consumer.poll(POLL_MS)).values():
                for record in records:
                    self.ledger.record(self.name, record)
                    self.count += 1
            self.polls += 1

    async def rest(self) -> None:
        """Stop polling until `is_polling` is set again. Returns when the last poll has ended, because that poll may
        still join a rebalance.
        """
        self.is_polling = False
        await until(lambda: self.rests, f"the last poll of {self.name} is over")

    @property
    def generation(self) -> int:
        return self.consumer.group_metadata().generation_id

    @property
    def assignment(self) -> set[TopicPartition]:
        return self.consumer.assignment()

    async def stop_polling(self) -> None:
        """Stop the polling task. Raises the error with which polling has failed."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass

    async def close(self) -> None:
        try:
            await self.stop_polling()
        finally:
            await self.consumer.close()

    async def outcome(self) -> BaseException | None:
        """Wait until polling fails, and return the exception with which it fails."""
        assert self._task is not None
        await asyncio.wait([self._task], timeout=TIMEOUT_SECONDS)
        task, self._task = self._task, None
        return task.exception()


class Group:
    """The members of one group, which are closed together."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self.ledger = Ledger()
        self.members: list[Member] = []

    async def join(self, member: str, *topics: str, pattern: str | None = None, **options: Any) -> Member:
        joined = Member(member, self.address, self.name, self.ledger, **options)
        self.members.append(joined)
        subscription = {} if pattern is None else {"pattern": pattern}
        return await joined.start(*topics, **subscription)

    async def balanced(self, *sizes: int) -> None:
        """Wait until the members own these numbers of partitions, in any order."""
        await until(
            lambda: (
                sorted(len(self.ledger.partitions_of(member.name)) for member in self.members if member.is_polling)
                == sorted(sizes)
            ),
            f"partitions shared as {sizes}, but {self.ledger.owner}",
        )


@asynccontextmanager
async def group_of(address: str, name: str) -> AsyncIterator[Group]:
    group = Group(address, name)
    try:
        yield group
    finally:
        for member in group.members:
            await member.close()


class Writer:
    """Writes numbered records to all partitions of a topic in rotation, until it is stopped."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self._producer = Producer(address, linger_ms=0)
        self.topic = topic
        self._partitions = partitions
        self.written = 0
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    async def write(self, count: int) -> None:
        sent = [
            await self._producer.send(
                self.topic, b"%d" % (self.written + index), partition=(self.written + index) % self._partitions
            )
            for index in range(count)
        ]
        await asyncio.gather(*sent)
        self.written += count

    async def _run(self) -> None:
        while not self._is_stopping:
            await self.write(self._partitions)
            await asyncio.sleep(LOOK_SECONDS)

    async def __aenter__(self) -> Writer:
        await self._producer.start()
        return self

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._is_stopping = True
            await self._task

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self._producer.close()
