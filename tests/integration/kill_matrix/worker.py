"""Consumes, processes and produces, in a separate process that may be killed at any time and started again.

    python worker.py LIBRARY JOB

JOB is a `Job` as JSON. The exit code is 0 after all inputs are processed. A failed transaction is aborted, and the
consumer returns to the committed offsets. If the abort fails, too, the process (for aiokafka only its clients) is
started again; the new producer settles the last transaction.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal, NamedTuple

TIMEOUT_MS = 5_000
SESSION_MS = 500
HEARTBEAT_MS = 100
BACKOFF_MS = 20
POLL_MS = 50


class Job(NamedTuple):
    """The parameters of a worker. Each transaction reads up to `per_transaction` inputs and writes one output for each
    input, to all partitions.
    """

    address: str
    source: str
    target: str
    partitions: int
    inputs: int
    per_transaction: int
    aborts: bool
    """Whether each process aborts its second transaction on purpose."""
    source_partitions: int = 1
    """The number of partitions over which the inputs are evenly spread."""

    @property
    def group(self) -> str:
        return self.source

    @property
    def transactional_id(self) -> str:
        return self.target


class Output(NamedTuple):
    """The value of a record in the target topic: it names the attempt at a transaction that wrote the record, and the
    number of records of that attempt.
    """

    attempt: str
    size: int
    input: str

    @property
    def value(self) -> bytes:
        return f"{self.attempt} {self.size} {self.input}".encode()

    @classmethod
    def of(cls, value: bytes) -> Output:
        attempt, size, source = value.decode().split()
        return cls(attempt, int(size), source)


class Aborted(Exception):
    """Raised by the processing to make a transaction fail."""


class Attempts:
    """Counts the transactions of a process."""

    def __init__(self, job: Job) -> None:
        self._aborts = job.aborts
        self._count = 0

    def next(self) -> None:
        """Count a transaction. Raises Aborted if the test wants this transaction to fail."""
        self._count += 1
        if self._aborts and self._count == 2:
            raise Aborted


def process(values: Sequence[bytes]) -> list[bytes]:
    """Return the outputs of one attempt; output n goes to partition n modulo the number of partitions."""
    attempt = uuid.uuid4().hex[:8]
    return [Output(attempt, len(values), value.decode()).value for value in values]


def say(*words: object) -> None:
    print(*words, flush=True)


async def run_aiokafka(job: Job) -> None:
    import aiokafka
    from aiokafka.errors import KafkaError, OutOfOrderSequenceNumber

    common = {
        "bootstrap_servers": job.address,
        "request_timeout_ms": TIMEOUT_MS,
        "retry_backoff_ms": BACKOFF_MS,
    }
    where = aiokafka.TopicPartition(job.source, 0)
    attempts = Attempts(job)
    # aiokafka cannot request stable offsets (KIP-447). If aiokafka lost its group membership while a decided
    # transaction waits for a broker to restart, the consumer would begin at the older committed offset. The aiokafka
    # process is never killed, so no other process has to wait until this long session expires.
    session_ms = 10_000

    async def pipe(producer: aiokafka.AIOKafkaProducer, consumer: aiokafka.AIOKafkaConsumer) -> None:
        while await consumer.committed(where) != job.inputs:
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=job.per_transaction)
            records = found.get(where)
            if not records:
                continue
            try:
                await producer.begin_transaction()
                sent = [
                    await producer.send(job.target, value, partition=index % job.partitions)
                    for index, value in enumerate(process([record.value for record in records]))
                ]
                await asyncio.gather(*sent)
                await producer.send_offsets_to_transaction({where: records[-1].offset + 1}, job.group)
                attempts.next()
                await producer.commit_transaction()
            except (KafkaError, Aborted) as error:
                say("abort", repr(error))
                await producer.abort_transaction()
                if isinstance(error, OutOfOrderSequenceNumber):
                    raise  # aiokafka has given up a batch, which leaves a permanent gap in its sequence numbers
                await consumer.seek_to_committed()

    while True:
        producer = aiokafka.AIOKafkaProducer(
            **common, transactional_id=job.transactional_id, transaction_timeout_ms=2 * TIMEOUT_MS
        )
        consumer = aiokafka.AIOKafkaConsumer(
            job.source,
            **common,
            group_id=job.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=POLL_MS,
        )
        try:
            # Start the producer first, so that the open transaction of the previous producer is settled before
            # committed offsets are requested.
            await producer.start()
            await consumer.start()
            await pipe(producer, consumer)
            return
        except (KafkaError, OSError) as error:
            say("anew", repr(error))
        finally:
            for client in (consumer, producer):
                try:
                    await client.stop()
                except (KafkaError, OSError) as error:
                    say("stop", repr(error))


async def run_oncelog(
    job: Job, protocol: Literal["classic", "consumer"] = "classic", *, prepares: bool = False
) -> None:
    """Run the job in a group of this protocol; `prepares` says that transactions are prepared before they end."""
    from oncelog import Consumer, Producer, TopicPartition
    from oncelog.consume_process_produce import consume_process_produce

    where = TopicPartition(job.source, 0)
    common = {
        "request_timeout_ms": TIMEOUT_MS,
        "retry_backoff_ms": BACKOFF_MS,
        "retry_backoff_max_ms": BACKOFF_MS,
        "reconnect_backoff_ms": BACKOFF_MS,
        "reconnect_backoff_max_ms": BACKOFF_MS,
    }
    session = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    timeout = {"two_phase_commit": True} if prepares else {"transaction_timeout_ms": 2 * TIMEOUT_MS}
    last_is_processed = asyncio.Event()
    attempts = Attempts(job)

    async def work(records: Sequence[Any]) -> None:
        if records[-1].offset + 1 == job.inputs:
            last_is_processed.set()
        sent = [
            await producer.send(job.target, value, partition=index % job.partitions)
            for index, value in enumerate(process([record.value for record in records]))
        ]
        await asyncio.gather(*sent)  # without this flush the transaction would have nothing to abort
        attempts.next()

    async with (
        # Start the producer first, so that the open transaction of the previous producer is settled before committed
        # offsets are requested.
        Producer(
            job.address,
            **common,
            transactional_id=job.transactional_id,
            **timeout,
            linger_ms=0,
        ) as producer,
        Consumer(
            job.address,
            **common,
            group_id=job.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            group_protocol=protocol,
            **(session if protocol == "classic" else {}),
            fetch_max_wait_ms=POLL_MS,
        ) as consumer,
    ):
        if prepares:
            from two_phase import TwoPhasePipe  # in the same directory as this file, which runs as a script

            pipe = TwoPhasePipe(consumer, producer, job.transactional_id, Aborted)
            await pipe.end_open_transaction()
            consumer.subscribe([job.source])
            await pipe.run(where, job.inputs, job.per_transaction, POLL_MS, work)
            return
        consumer.subscribe([job.source])
        while True:
            committed = (await consumer.committed([where]))[where]
            if committed is not None and committed.offset == job.inputs:
                return
            last_is_processed.clear()
            try:
                await consume_process_produce(
                    consumer, producer, work, max_records=job.per_transaction, stop=last_is_processed
                )
            except Aborted:
                continue


async def run_streams(job: Job) -> None:
    """Run the job with two members of a streams group (KIP-1071), each with a producer of its own."""
    from streams_worker import MEMBERS, Journal, Membership, StreamsMember  # in the same directory as this file

    from oncelog import Admin, Consumer, Producer

    common = {
        "request_timeout_ms": TIMEOUT_MS,
        "retry_backoff_ms": BACKOFF_MS,
        "retry_backoff_max_ms": BACKOFF_MS,
        "reconnect_backoff_ms": BACKOFF_MS,
        "reconnect_backoff_max_ms": BACKOFF_MS,
    }
    attempts = Attempts(job)

    async def work(producer: Producer[Any, Any], records: Sequence[Any]) -> None:
        sent = [
            await producer.send(job.target, value, partition=index % job.partitions)
            for index, value in enumerate(process([record.value for record in records]))
        ]
        await asyncio.gather(*sent)  # without this flush the transaction would have nothing to abort
        attempts.next()

    turn, start, journal = asyncio.Lock(), asyncio.Barrier(MEMBERS), Journal(job.transactional_id)
    ends = [job.inputs // job.source_partitions] * job.source_partitions
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        admin = await stack.enter_async_context(Admin(job.address, **common))
        producers = [  # they settle the open transactions of the previous process before offsets are requested
            await stack.enter_async_context(
                Producer(
                    job.address,
                    **common,
                    transactional_id=f"{job.transactional_id}-{number}",
                    transaction_timeout_ms=2 * TIMEOUT_MS,
                    linger_ms=0,
                )
            )
            for number in range(MEMBERS)
        ]
        for producer in producers:
            consumer = await stack.enter_async_context(
                Consumer(
                    job.address,
                    **common,
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                    fetch_max_wait_ms=POLL_MS,
                )
            )
            membership = await stack.enter_async_context(
                Membership(job.address, job.group, job.source, journal, common)
            )
            member = StreamsMember(membership, producer, consumer, admin, turn, start, Aborted)
            group.create_task(member.run(job.group, job.source, ends, job.per_transaction, POLL_MS, work))


async def run_oncelog_v1(job: Job) -> None:
    """Run the job as with a broker that does not support transactions V2."""
    from older_transactions import before_transactions_v2  # in the same directory as this file, which runs as a script

    with before_transactions_v2():
        await run_oncelog(job)


WORKERS: dict[str, Callable[[Job], Awaitable[None]]] = {
    "aiokafka": run_aiokafka,
    "oncelog": run_oncelog,
    "oncelog-v1": run_oncelog_v1,
    "oncelog-consumer": partial(run_oncelog, protocol="consumer"),
    "oncelog-2pc": partial(run_oncelog, prepares=True),
    "oncelog-streams": run_streams,
}


def main() -> None:
    library, job = sys.argv[1:]
    asyncio.run(WORKERS[library](Job(**json.loads(job))))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
