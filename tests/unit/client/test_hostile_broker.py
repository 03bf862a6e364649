"""Producer, consumer and admin against a broker with hostile responses, in virtual time and with seeds.

Whatever the broker responds, each call ends within its own timeout and raises only KafkaErrors. The client sends no
flood of requests, needs little memory, and causes no error in the loop. When the broker behaves again, the client works
again.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import pytest
from tests.support.fake_group import PLACES, Coordinator
from tests.support.fake_transactions import FakeCoordinator
from tests.support.hostile_broker import HostileBroker
from tests.support.virtual_time import run_virtually

from oncelog.admin import Admin, AlterConfig, ConfigResource, NewTopic
from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.errors import ClientClosed, FatalError, KafkaError
from oncelog.producer.producer import Producer, RecordMetadata
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

SEEDS: Final = range(12)
LATER_SEEDS: Final = range(12, 1_000)
REQUEST_S, CALL_S, DELIVERY_S = 5, 10, 15
TIMES: Final = {"request_timeout_ms": REQUEST_S * 1000, "socket_connection_setup_timeout_ms": REQUEST_S * 1000}
T: Final = TopicPartition("topic", 0)
REQUESTS_PER_SECOND: Final = 30
REQUESTS_AT_ONCE: Final = 150
MEGABYTES: Final = 100
HEALED_S: Final = 300


class Watch:
    """Counts errors by type; a call that takes longer than its time limit (`within`) fails the test."""

    def __init__(self, broker: HostileBroker) -> None:
        self.broker = broker
        self.fatal: list[FatalError] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def within(self, seconds: float, call: Awaitable[Any]) -> Any:
        """Return the result of the call; None if it raised a KafkaError."""
        try:
            async with asyncio.timeout(seconds):
                return await call
        except KafkaError as error:
            if isinstance(error, FatalError):
                self.fatal.append(error)
            return None

    async def started(self, client: Producer | Consumer | Admin) -> bool:
        """Start the client; return whether the start succeeded. In half of the cases, the broker is hostile from the
        beginning.
        """
        self.broker.is_hostile = self.broker.rng.random() < 0.5
        try:
            async with asyncio.timeout(CALL_S + 4 * REQUEST_S):
                await client.start()
        except KafkaError:
            self.broker.heal()
            return False
        self.broker.is_hostile = True
        return True

    def check(self) -> None:
        elapsed = self._loop.time() - self._began
        assert len(self.broker.requests) <= REQUESTS_AT_ONCE + REQUESTS_PER_SECOND * elapsed


async def produce(watch: Watch, **options: Any) -> None:
    broker = watch.broker
    times = {"max_block_ms": CALL_S * 1000, "delivery_timeout_ms": DELIVERY_S * 1000, "linger_ms": 0, **TIMES}
    producer = Producer(broker.address, **times, **options)
    if not await watch.started(producer):
        return
    futures = []
    for number in range(6):
        if producer.config.transactional_id is not None:
            await transact(watch, producer)
        elif (future := await watch.within(CALL_S + 1, producer.send("topic", b"%d" % number))) is not None:
            futures.append(future)
    if futures:
        _, late = await asyncio.wait(futures, timeout=DELIVERY_S + REQUEST_S + 1)
        assert not late
    for future in futures:
        outcome = future.exception() or future.result()
        assert isinstance(outcome, KafkaError | RecordMetadata)
        if isinstance(outcome, FatalError):
            watch.fatal.append(outcome)
    watch.check()
    broker.heal()
    if not (watch.fatal or producer._fatal or producer.config.transactional_id):
        assert (await healed(lambda: producer.send_and_wait("topic", b"at last"))).topic == "topic"
    await watch.within(CALL_S + DELIVERY_S + REQUEST_S, producer.close())


async def transact(watch: Watch, producer: Producer) -> None:
    try:
        producer.begin_transaction()
    except KafkaError:
        return
    await watch.within(CALL_S + 1, producer.send("topic", b"v"))
    if await watch.within(CALL_S + 1, producer.commit_transaction()) is None:
        await watch.within(CALL_S + 1, producer.abort_transaction())


async def healed(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat `call` until it succeeds, and return its result."""
    await asyncio.sleep(1)  # until the client has noticed the closed connection
    async with asyncio.timeout(HEALED_S):
        while True:
            try:
                found = await call()
            except ClientClosed:
                raise
            except KafkaError:
                found = None
            if found:
                return found
            await asyncio.sleep(0.1)


async def consume(watch: Watch, *, is_member: bool, **options: Any) -> None:
    broker = watch.broker
    codecs = list(Compression)
    for number in range(20):
        codec = codecs[number % len(codecs)]
        broker.append(build_batch([Record(0, 1, b"k", b"%d" % n, []) for n in range(3)], compression=codec))
    times = {"default_api_timeout_ms": CALL_S * 1000, "max_decompressed_bytes": 2**20, **TIMES}
    consumer = Consumer(broker.address, auto_offset_reset="earliest", **times, **options)
    if not await watch.started(consumer):
        return
    if is_member:
        consumer.subscribe(["topic"])
    else:
        consumer.assign(PLACES)
    for _ in range(8):
        await watch.within(2 * CALL_S, consumer.poll(1000))
        await watch.within(CALL_S + 1, consumer.end_offsets([T]))
        if "group_id" in options:
            await watch.within(CALL_S + 1, consumer.commit())
            await watch.within(CALL_S + 1, consumer.committed([T]))
    watch.check()
    broker.heal()
    if not watch.fatal:
        await healed(lambda: consumer.end_offsets([T]))
        if is_member:
            await healed(lambda: polls(consumer))
        else:
            consumer.seek(T, 0)
            await healed(lambda: consumer.poll(1000))
    await watch.within(2 * CALL_S, consumer.close(CALL_S * 1000))


async def polls(consumer: Consumer) -> bool:
    """Poll once; an error propagates to the caller. The assignment may be empty, as the broker last reported."""
    await consumer.poll(1000)
    return True


async def administer(watch: Watch) -> None:
    broker = watch.broker
    admin = Admin(broker.address, default_api_timeout_ms=CALL_S * 1000, **TIMES)
    if not await watch.started(admin):
        return
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: admin.describe_cluster(),
        lambda: admin.list_topics(),
        lambda: admin.describe_topics(["topic", "other"]),
        lambda: admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)]),
        lambda: admin.delete_topics(["a"]),
        lambda: admin.list_offsets({T: -1, TopicPartition("topic", 1): -2}),
        lambda: admin.delete_records({T: 1}),
        lambda: admin.groups.list(),
        lambda: admin.groups.describe(["g"]),
        lambda: admin.groups.offsets("g"),
        lambda: admin.groups.alter_offsets("g", {T: 1}),
        lambda: admin.groups.delete(["g", "h"]),
        lambda: admin.transactions.list(),
        lambda: admin.transactions.describe(["t"]),
        lambda: admin.transactions.explain([T]),
        lambda: admin.transactions.find_hanging([T]),
        lambda: admin.transactions.fence(["t"]),
        lambda: admin.describe_configs([ConfigResource.topic("topic")]),
        lambda: admin.incremental_alter_configs({ConfigResource.topic("topic"): [AlterConfig("a", "1")]}),
    ]
    for call in calls:
        await watch.within(8 * CALL_S, call())
    watch.check()
    broker.heal()
    await healed(admin.describe_cluster)
    await watch.within(CALL_S, admin.close())


SCENARIOS: Final[dict[str, Callable[[Watch], Awaitable[None]]]] = {
    "plain producer": lambda watch: produce(watch, enable_idempotence=False),
    "without acks": lambda watch: produce(watch, acks=0),
    "idempotent producer": lambda watch: produce(watch, compression_type="zstd"),
    "transactional producer": lambda watch: produce(watch, transactional_id="t"),
    "assigned": lambda watch: consume(watch, is_member=False),
    "read committed": lambda watch: consume(watch, is_member=False, group_id="g", isolation_level="read_committed"),
    "member": lambda watch: consume(watch, is_member=True, group_id="g", check_crcs=False),
    "admin": administer,
}


async def one(scenario: str, seed: int) -> None:
    broker = HostileBroker(seed)
    broker.topics = {"topic": 2}
    if "member" in scenario or "read" in scenario:
        Coordinator(broker)
    elif "plain" not in scenario:
        FakeCoordinator(broker, is_v2=seed % 2 == 0)
    await broker.start()
    await SCENARIOS[scenario](Watch(broker))
    await broker.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, left = await asyncio.wait(others, timeout=1)
        assert not left


def run_all(scenario: str, seeds: Iterable[int]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in seeds:
        try:
            run_virtually(one(scenario, seed))
        except BaseException as error:
            error.add_note(f"scenario {scenario!r}, seed {seed}")
            raise
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_survives_any_answer(scenario: str) -> None:
    run_all(scenario, SEEDS)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_survives_any_answer_in_a_long_run(scenario: str) -> None:
    run_all(scenario, LATER_SEEDS)
