"""Tests `consume_process_produce` when it is interrupted and called again with the same consumer and producer (S60)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_process import BrokerFactory
from transactional_clients import new_id

from oncelog import Consumer, ConsumerRecord, Producer, TopicPartition
from oncelog.connection.transport import BrokerConnection
from oncelog.consume_process_produce import consume_process_produce
from oncelog.errors import ErrorCode, RequestTimedOut
from oncelog_protocol.messages.end_txn import EndTxnRequest

TIMEOUT_SECONDS = 60
INPUTS = [b"%d" % number for number in range(20)]
READING: dict[str, Any] = {
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
}


class Pipe:
    """Copies records from one topic to another, five records in a transaction. `hook` is awaited in each transaction
    after the transaction's records were sent.
    """

    def __init__(self, address: str, topic: str, **options: Any) -> None:
        self.source, self.target = f"{topic}-in", f"{topic}-out"
        self.consumer = Consumer(address, group_id=topic, **READING)
        self.producer = Producer(address, transactional_id=new_id(), retry_backoff_ms=10, **options)
        self.address = address
        self.transactions = 0
        self.done = asyncio.Event()

    async def __aenter__(self) -> Pipe:
        async with Producer(self.address) as producer:
            for value in INPUTS:
                await producer.send(self.source, value, partition=0)
        await self.producer.start()
        await self.consumer.start()
        self.consumer.subscribe([self.source])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()
        await self.producer.close()

    async def hook(self) -> None:
        pass

    async def run(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await consume_process_produce(self.consumer, self.producer, self._process, max_records=5, stop=self.done)

    async def _process(self, records: list[ConsumerRecord]) -> None:
        self.transactions += 1
        for record in records:
            await self.producer.send(self.target, record.value, partition=0)
        await self.hook()
        if records[-1].value == INPUTS[-1]:
            self.done.set()

    async def output(self) -> list[bytes | None]:
        async with self.producer.transaction():
            await self.producer.send(self.target, b"the end", partition=0)
        found: list[bytes | None] = []
        async with Consumer(self.address, **READING) as consumer, asyncio.timeout(TIMEOUT_SECONDS):
            consumer.assign([TopicPartition(self.target, 0)])
            async for record in consumer:
                if record.value == b"the end":
                    break
                found.append(record.value)
        return found


async def test_s60_a_cancellation_during_the_commit_loses_nothing(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit continues although the call was cancelled, so the committed records are not read again."""
    start, ends = BrokerConnection.start, list[EndTxnRequest]()
    async with Pipe(address, topic) as pipe:
        running = asyncio.create_task(pipe.run())

        def cancelling(connection: BrokerConnection, request: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(request, EndTxnRequest):
                ends.append(request)
                if len(ends) == 2:
                    running.cancel()
            return start(connection, request, *arguments, **options)

        monkeypatch.setattr(BrokerConnection, "start", cancelling)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [end.committed for end in ends] == [True, True]
        await pipe.run()
        assert await pipe.output() == INPUTS
        assert pipe.transactions == len(INPUTS) / 5


async def test_s60_a_cancellation_during_processing_loses_nothing(address: str, topic: str) -> None:
    async with Pipe(address, topic) as pipe:
        running = asyncio.create_task(pipe.run())

        async def cancelling() -> None:
            if pipe.transactions == 2:
                running.cancel()
                await asyncio.sleep(TIMEOUT_SECONDS)

        pipe.hook = cancelling  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await running
        await pipe.run()
        assert await pipe.output() == INPUTS


async def test_s60_no_record_is_skipped_if_committed_offsets_are_unknown(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Pipe(address, topic) as pipe:

        async def unknown(*_: object) -> Any:
            raise RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "the coordinator does not answer")

        async def failing() -> None:
            if pipe.transactions == 2:
                raise RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "something passing")

        pipe.hook = failing  # type: ignore[method-assign]
        monkeypatch.setattr(pipe.consumer, "committed", unknown)
        await pipe.run()
        assert await pipe.output() == INPUTS


async def test_s60_a_transaction_that_took_too_long_is_repeated(
    broker_factory: BrokerFactory, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction times out so late that only its last step, the commit, detects the timeout."""
    broker = broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}).start()
    async with Pipe(broker.address, topic, transaction_timeout_ms=1500) as pipe, Consumer(broker.address) as watching:
        partition, send_offsets = TopicPartition(pipe.target, 0), pipe.producer.send_offsets

        async def slow(*arguments: Any) -> None:
            await send_offsets(*arguments)
            if pipe.transactions == 2:
                await pipe.producer.flush()
                before = (await watching.end_offsets([partition]))[partition]
                while (await watching.end_offsets([partition]))[partition] == before:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.02)

        monkeypatch.setattr(pipe.producer, "send_offsets", slow)
        await pipe.run()
        assert await pipe.output() == INPUTS
