"""Counts the Python and C function calls of the broker for one request of each kind, as a measure of CPU cost without a
clock.

A broker serves in this process; its requests arrive over a connection without a socket. A count covers the calls
between the arrival of a request and its response, and for a transaction the calls until its markers are written. The
least of several counts is used, because background work sometimes runs in between. BUDGETS has the counts as of its
last change: a count that is 5 % higher fails the test, and a change that makes a request cheaper must lower the budget.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.support.served import EPOCH, FOLLOWER, LEADER, Client, Served, produce
from tests.support.served import TOPIC as SERVED_TOPIC
from tests.support.storage import make_batch

from oncelog_broker.broker import Broker
from oncelog_broker.config.load import load_broker_config
from oncelog_broker.metadata.stores.in_memory import MemoryTree
from oncelog_broker.replication import purgatory
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.tasks import Deadlines
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.limits import Limits
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record
from oncelog_testing.broker import QUICK_SETTINGS
from oncelog_testing.unsynced_disk import UnsyncedDisk

TOPIC: Final = "counted"
LONG: Final = "counted-long"
LONG_BYTES: Final = 270_000
"""The size in bytes of four batches of 64 KB, and a part of the next batch."""
PARTITIONS: Final = 10
REPEATS: Final = 10
LONG_MS: Final = 600_000
"""A delay in ms that is so long that no deadline expires while calls are counted, on any machine."""
ALONE: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
TOLERANCE: Final = 1.05
ERROR: Final = re.compile(r"error_code=(-?\d+)")
OURS: Final = ("oncelog_broker", "oncelog_protocol", "oncelog/", "<string>")
"""Parts of file names whose functions are counted; the last part matches functions that are generated from
declarations.
"""


class Calls(NamedTuple):
    python: int
    c: int


BUDGETS: Final = {
    "produce": Calls(31, 31),
    "produce, pipelined": Calls(20, 27),
    "produce, idempotent": Calls(33, 35),
    "produce, in the usual way": Calls(89, 80),
    "fetch": Calls(66, 82),
    "fetch, in a session": Calls(69, 88),
    "fetch of 256 KB behind the previous one": Calls(59, 77),
    "fetch, in the usual way": Calls(117, 114),
    "fetch that waits, and the record that it waits for": Calls(99, 99),
    "produce with a follower, and the follower's fetch": Calls(155, 145),
    "produce with a follower, and the follower's fetch of 20 partitions": Calls(155, 145),
    "heartbeat": Calls(29, 13),
    "heartbeat of the consumer protocol": Calls(42, 19),
    "offset commit": Calls(56, 44),
    "offset commit, in the usual way": Calls(134, 116),
    "offset commit of the consumer protocol": Calls(55, 44),
    "transaction of 1 partition": Calls(233, 208),
    "transaction of 10 partitions": Calls(824, 927),
}
"""Number of calls for one request, or for one transaction (AddPartitionsToTxn, Produce, EndTxn, markers), with CPython
3.11.
"""


class StoppedClock(SystemClock):
    """A clock that does not advance while calls are counted, so that no slice ends during the count, on any machine."""

    def __init__(self) -> None:
        self.stopped_at: float | None = None

    def monotonic(self) -> float:  # type: ignore[override]
        return time.monotonic() if self.stopped_at is None else self.stopped_at


class Counter:
    """Counts the function calls in the broker while the counter is active."""

    def __init__(self, clock: StoppedClock | None) -> None:
        """`clock` is the broker's clock; None means that the broker's clock does not advance during the count in any
        case.
        """
        self._clock = clock
        self.python = self.c = 0

    def __enter__(self) -> Counter:
        if self._clock is not None:
            self._clock.stopped_at = self._clock.monotonic()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        if self._clock is not None:
            self._clock.stopped_at = None

    def _note(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and _is_ours(frame):
            self.python += 1
        elif event == "c_call" and _is_ours(frame):
            self.c += 1


def _is_ours(frame: Any) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<") or any(part in name for part in OURS)


class Requests:
    """A client of the broker whose requests are counted."""

    def __init__(self, broker: Broker) -> None:
        services: Any = broker.parts.serving._services
        self._clock = services.clock
        self.dispatcher = Dispatcher(services)
        limits = Limits(100, 100, 1 << 20, -1, -1, 600.0)
        self.connections = Connections(limits, LoopBudget(services.clock.monotonic, seconds=60.0))
        self.client = Client(self)  # type: ignore[arg-type]
        self._transactions = broker.parts.coordinators.transactions
        self._answers = 0

    async def ask(self, request: Any, api: ApiKey, version: int) -> Any:
        """Send a request; return the response when it arrives."""
        self.client.send_in_parts(request, api=api, version=version)
        self._answers += 1
        return (await self.client.answered(self._answers))[-1][1]

    async def count(self, make: Callable[[], list[tuple[Any, ApiKey, int]]], *, turns: int = 0) -> Calls:
        """Count the calls for the requests of `make`, each of which is sent after the previous response, and for the
        next `turns` of the event loop. Returns the least of REPEATS counts.
        """
        found = []
        for _ in range(REPEATS):
            requests = make()
            frames = [
                b"".join(self.client._frame(each, api, version) for each in request)
                for request, api, version in requests
            ]
            await asyncio.sleep(0)
            with Counter(self._clock) as counter:
                for frame in frames:
                    self.client._receive(frame)
                for _ in range(turns):
                    await asyncio.sleep(0)
            before = self._answers
            self._answers += sum(len(request) for request, _, _ in requests)
            answers = await self.client.answered(self._answers)
            assert set(ERROR.findall(repr(answers[before:]))) == {"0"}
            while self._transactions.markers_outstanding:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            found.append(Calls(counter.python, counter.c))
        return Calls(min(calls.python for calls in found), min(calls.c for calls in found))


class Producer:
    """Creates the requests of one producer."""

    def __init__(self, producer_id: int = -1, epoch: int = -1, *, partitions: int = 1, acks: int = -1) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.partitions, self.acks = range(partitions), acks
        self.transactional_id: str | None = None
        self.sequence = 0

    def produce(self, *, timeout_ms: int = 1000) -> ProduceRequest:
        numbered: dict[str, Any] = {}
        if self.producer_id >= 0:
            numbered = {
                "producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": self.sequence
            }  # fmt: skip
        self.sequence += 1
        records = [Record(0, int(time.time() * 1000), None, b"v" * 100, [])]
        batch = build_batch(records, transactional=self.transactional_id is not None, **numbered)
        topic = ProduceRequest.TopicProduceData
        data = [topic.PartitionProduceData(index=index, records=bytes(batch)) for index in self.partitions]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=timeout_ms,
            topic_data=[topic(name=TOPIC, partition_data=data)],
        )

    def transaction(self) -> list[tuple[Any, ApiKey, int]]:
        ids = self.transactional_id, self.producer_id, self.epoch
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ids[0],
            v3_and_below_producer_id=ids[1],
            v3_and_below_producer_epoch=ids[2],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(self.partitions))],
        )
        end = EndTxnRequest(transactional_id=ids[0], producer_id=ids[1], producer_epoch=ids[2], committed=True)
        return [
            ([add], ApiKey.ADD_PARTITIONS_TO_TXN, 3),
            ([self.produce()], ApiKey.PRODUCE, 9),
            ([end], ApiKey.END_TXN, 3),
        ]


async def transactional(requests: Requests, partitions: int) -> Producer:
    producer = Producer(partitions=partitions)
    producer.transactional_id = f"counted-{partitions}"
    find = FindCoordinatorRequest(key=producer.transactional_id, key_type=1)
    async with asyncio.timeout(20):
        while (await requests.ask(find, ApiKey.FIND_COORDINATOR, 3)).error_code:  # the internal topic is being created
            pass
        init = InitProducerIdRequest(
            transactional_id=producer.transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        while (answer := await requests.ask(init, ApiKey.INIT_PRODUCER_ID, 4)).error_code:
            pass
    producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    return producer


class ClassicMember:
    """Creates the requests of the only member of a group of the classic protocol."""

    def __init__(self, group_id: str) -> None:
        self.group_id, self.member_id, self.generation = group_id, "", -1
        self.offset = 0

    async def join(self, requests: Requests) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        for _ in range(2):  # the response to the first request only has the member id
            request = JoinGroupRequest(
                group_id=self.group_id, session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
                member_id=self.member_id, group_instance_id=None, protocol_type="consumer", protocols=[protocol],
            )  # fmt: skip
            answer = await requests.ask(request, ApiKey.JOIN_GROUP, 7)
            self.member_id = answer.member_id
        self.generation = answer.generation_id
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"partitions")
        sync = SyncGroupRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, group_instance_id=None,
            protocol_type="consumer", protocol_name="range", assignments=[given],
        )  # fmt: skip
        assert (await requests.ask(sync, ApiKey.SYNC_GROUP, 5)).error_code == 0

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, group_instance_id=None
        )

    def commit(self) -> OffsetCommitRequest:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        self.offset += 1
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_leader_epoch=0, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[topic(name=TOPIC, partitions=[partition])],
        )


class ConsumerMember(ClassicMember):
    """Creates the requests of the only member of a group of the consumer protocol (KIP-848)."""

    async def join(self, requests: Requests) -> None:
        self.member_id, self.generation = "chosen-by-the-client", 0
        assigned: Any = None
        async with asyncio.timeout(20):
            while assigned is None:  # the assignment is computed in the background
                answer = await requests.ask(self.consumer_heartbeat(), ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
                self.generation = answer.member_epoch
                assigned = answer.assignment if answer.assignment and answer.assignment.topic_partitions else None

    def consumer_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        joins = self.generation == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=[TOPIC] if joins else None,
            topic_partitions=[] if joins else None,
        )


async def count_members(requests: Requests) -> dict[str, Calls]:
    """Count the calls for the requests of members of stable groups."""
    classic, consumer = ClassicMember("counted-classic"), ConsumerMember("counted-consumer")
    async with asyncio.timeout(20):
        find = FindCoordinatorRequest(key=classic.group_id, key_type=0)
        while (await requests.ask(find, ApiKey.FIND_COORDINATOR, 3)).error_code:  # the internal topic is being created
            pass
    await classic.join(requests)
    await consumer.join(requests)
    beats = ApiKey.CONSUMER_GROUP_HEARTBEAT

    async def count(request: Callable[[], Any], api: ApiKey, version: int) -> Calls:
        return await requests.count(lambda: [([request()], api, version)])

    return {
        "heartbeat": await count(classic.heartbeat, ApiKey.HEARTBEAT, 4),
        "heartbeat of the consumer protocol": await count(consumer.consumer_heartbeat, beats, 1),
        "offset commit": await count(classic.commit, ApiKey.OFFSET_COMMIT, 9),
        "offset commit, in the usual way": await count(classic.commit, ApiKey.OFFSET_COMMIT, 5),
        "offset commit of the consumer protocol": await count(consumer.commit, ApiKey.OFFSET_COMMIT, 9),
    }


def fetch(
    offset: int,
    *,
    partitions: int = 1,
    session: tuple[int, int] = (0, -1),
    wait_ms: int = 0,
    topic: str = TOPIC,
    follower: int | None = None,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    """Return a Fetch request for this many partitions, all from the same offset on. `session` is (session id, session
    epoch).
    """
    wanted = [
        FetchRequest.FetchTopic.FetchPartition(
            partition=index,
            current_leader_epoch=0,
            fetch_offset=offset,
            log_start_offset=-1 if follower is None else 0,
            partition_max_bytes=max_bytes,
        )
        for index in range(partitions)
    ]
    state = FetchRequest.ReplicaState
    return FetchRequest(
        replica_state=None if follower is None else state(replica_id=follower, replica_epoch=EPOCH),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(topic=topic, topic_id=bytes(16), partitions=wanted)],
        forgotten_topics_data=[],
    )


async def count_long_fetches(requests: Requests) -> Calls:
    """Count the calls for a fetch of four batches of 64 KB; each fetch continues where the previous one ended."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=LONG, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    await requests.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), ApiKey.CREATE_TOPICS, 5)
    records = [Record(0, int(time.time() * 1000), None, b"v" * 1000, []) for _ in range(64)]
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=bytes(build_batch(records)))
    produced = ProduceRequest.TopicProduceData(name=LONG, partition_data=[data])
    for _ in range(4 * (REPEATS + 1)):
        await requests.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[produced]), ApiKey.PRODUCE, 9)
    offset = 0

    def following() -> list[tuple[Any, ApiKey, int]]:
        nonlocal offset
        _, last = requests.client.answers()[-1]
        if isinstance(last, FetchResponse):
            *_, batch = batches(last.responses[0].partitions[0].records or b"")
            offset = batch.next_offset
        return [([fetch(offset, topic=LONG, max_bytes=LONG_BYTES)], ApiKey.FETCH, 12)]

    return await requests.count(following)


async def counted(broker: Broker) -> dict[str, Calls]:
    requests = Requests(broker)
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    await requests.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), ApiKey.CREATE_TOPICS, 5)
    found: dict[str, Calls] = {}
    plain, timeout = Producer(), iter(range(1_000_000))
    found["produce"] = await requests.count(lambda: [([plain.produce()], ApiKey.PRODUCE, 9)])
    pipelined = await requests.count(lambda: [([plain.produce() for _ in range(20)], ApiKey.PRODUCE, 9)])
    found["produce, pipelined"] = Calls(pipelined.python // 20, pipelined.c // 20)
    idempotent = Producer(1000, 0)
    found["produce, idempotent"] = await requests.count(lambda: [([idempotent.produce()], ApiKey.PRODUCE, 9)])
    found["produce, in the usual way"] = await requests.count(
        lambda: [([plain.produce(timeout_ms=next(timeout))], ApiKey.PRODUCE, 8)]
    )
    found["fetch"] = await requests.count(lambda: [([fetch(3)], ApiKey.FETCH, 12)])
    session, epochs = (await requests.ask(fetch(3, session=(0, 0)), ApiKey.FETCH, 12)).session_id, itertools.count(1)
    found["fetch, in a session"] = await requests.count(
        lambda: [([fetch(3, session=(session, next(epochs)))], ApiKey.FETCH, 12)]
    )
    found["fetch, in the usual way"] = await requests.count(lambda: [([fetch(3)], ApiKey.FETCH, 9)])
    found["fetch of 256 KB behind the previous one"] = await count_long_fetches(Requests(broker))
    found |= await count_members(requests)
    for partitions in (1, PARTITIONS):
        producer = await transactional(requests, partitions)
        name = f"transaction of {partitions} partition{'s' * (partitions > 1)}"
        found[name] = await requests.count(producer.transaction, turns=5)
    return found


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = {**QUICK_SETTINGS, **ALONE, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    config = load_broker_config(None, {}, [f"{key}={value}" for key, value in settings.items()])
    made = Broker(config, clock=StoppedClock(), disk=UnsyncedDisk(), store=MemoryTree())
    await made.start()
    yield made
    await made.stop()


class Replicated:
    """A leader with a follower, or with a consumer, that waits for the records of a producer."""

    def __init__(self, directory: Path, partitions: int, isr: tuple[int, ...]) -> None:
        self.served = served = Served(directory, partitions=partitions, segment_bytes=1 << 20)
        served.services.deadlines = Deadlines()
        served.dispatcher = Dispatcher(served.services)
        for partition in served.partitions:
            partition.lead(0, isr, isr)
        self.producer, self.reader = Client(served), Client(served)
        self.read, self.session = 0, (0, 0)
        self.partitions = partitions
        self.follower = FOLLOWER if FOLLOWER in isr else None

    def fetch(self, offset: int) -> bytes:
        """Return the next request of the fetch session."""
        asked = fetch(
            offset,
            partitions=self.partitions if self.session[0] == 0 else 1,
            session=self.session,
            wait_ms=LONG_MS if self.session[0] else 0,
            topic=SERVED_TOPIC,
            follower=self.follower,
        )
        self.session = self.session[0], self.session[1] + 1
        return self.reader._frame(asked, ApiKey.FETCH, 17)

    async def begin(self) -> None:
        """Begin the fetch session and send its first request, which waits."""
        self.reader._receive(self.fetch(0))
        ((_, answer),) = await self.reader.answered(1)
        self.session = answer.session_id, 1
        self.read = 1
        self.reader._receive(self.fetch(0))
        await turns()

    async def count(self) -> Calls:
        """Count the calls for one produced record, until the waiting reader has received the record and its next fetch
        waits.
        """
        found = []
        for number in range(1, REPEATS + 1):
            frame = self.producer._frame(produce(bytes(make_batch())), ApiKey.PRODUCE, 9)
            next_fetch = self.fetch(number)
            with Counter(None) as counter:
                self.producer._receive(frame)
                await turns()
                self.reader._receive(next_fetch)
                await turns()
            found.append(Calls(counter.python, counter.c))
            self.read += 1
            assert len(await self.producer.answered(number)) == number
            _, answer = (await self.reader.answered(self.read))[-1]
            assert len(answer.responses[0].partitions[0].records) > 0
        return Calls(min(calls.python for calls in found), min(calls.c for calls in found))


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def counted_with_readers(directory: Path) -> dict[str, Calls]:
    found: dict[str, Calls] = {}
    for name, partitions, isr in (
        ("fetch that waits, and the record that it waits for", 1, (LEADER,)),
        ("produce with a follower, and the follower's fetch", 1, (LEADER, FOLLOWER)),
        ("produce with a follower, and the follower's fetch of 20 partitions", 20, (LEADER, FOLLOWER)),
    ):
        world = Replicated(directory / f"{partitions}-{len(isr)}", partitions, isr)
        await world.begin()
        found[name] = await world.count()
        world.served.leave()
    return found


async def test_no_request_takes_more_calls_than_it_did(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purgatory, "NEWS_SECONDS", LONG_MS / 1000)
    found = {**await counted(broker), **await counted_with_readers(tmp_path / "readers")}
    dearer = [
        f"{what}: {calls.python} Python and {calls.c} C calls, the budget is {BUDGETS[what]}"
        for what, calls in found.items()
        if calls.python > BUDGETS[what].python * TOLERANCE or calls.c > BUDGETS[what].c * TOLERANCE
    ]
    assert dearer == []
    assert found.keys() == BUDGETS.keys()
