"""The fast code paths (lanes) for Fetch, and for Produce that waits for replicas, behave like the general handlers. Two
brokers, one of them without lanes, get the same requests.

Both brokers must send the same bytes, write the same files, count the same metrics, and keep the same sessions,
followers and waiting requests. Three readers fetch: one consumer for each of the two isolation levels, and one
follower.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.producers import COMMIT, sequenced
from tests.support.served import EPOCH, FOLLOWER, LEADER, TOPIC, Client, Coordinator, Served, produce
from tests.support.storage import FaultyDisk, make_batch, open_log

from oncelog_broker.config.broker_keys import BROKER_KEYS, FETCH_MAX_BYTES
from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.quotas import QuotaEntity, QuotaKey
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.control import EndTransactionMarker

WHO: Final = ("uncommitted", "committed", "follower")
CONFIG: Final[Any] = {key: key.default for key in BROKER_KEYS.values()}
PARTITIONS: Final = 2
BOTH: Final = (LEADER, FOLLOWER)
TRANSACTIONAL_ID: Final = "txn"
TURNS: Final = 50
"""After this many iterations of the event loop both brokers have handled everything that a step causes."""


class NoLanes(dict[int, Any]):
    """Replaces a connection's lanes and stores no lane, so that the general handlers process every request."""

    def __setitem__(self, key: int, lane: Any) -> None:
        pass


class Reader:
    """Fetches over a connection of its own, and continues from the offsets of its earlier responses."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.client = Client(world.served)
        self.lanes: dict[int, Any] = {} if world.has_lanes else NoLanes()
        self.client.connection.lanes = self.lanes
        self.name, self.version = name, version
        self.session_id, self.epoch, self.asked = 0, 0, 0
        self.offsets = [0] * PARTITIONS

    def take(self) -> None:
        """Continue from the offsets of the received responses."""
        for _, response in self.client.answers()[self.asked :]:
            self.asked += 1
            if response.session_id and not response.error_code:
                self.session_id = response.session_id
            for topic in response.responses:
                for answer in topic.partitions:
                    for batch in batches(bytes(answer.records or b"")):
                        self.offsets[answer.partition_index] = batch.next_offset

    def request(self, indexes: Iterable[int], leader_epochs: list[int], **fields: Any) -> FetchRequest:
        is_follower = self.name == "follower"
        wanted = [
            FetchRequest.FetchTopic.FetchPartition(
                partition=index,
                current_leader_epoch=leader_epochs[index] if is_follower or index else -1,
                fetch_offset=max(0, self.offsets[index] + fields.get("step", 0)),
                last_fetched_epoch=fields.get("last_epoch", -1),
                log_start_offset=0 if is_follower else -1,
                partition_max_bytes=fields.get("partition_bytes", 1 << 20),
            )
            for index in indexes
        ]
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=EPOCH) if is_follower else None,
            max_wait_ms=fields.get("wait_ms", 0),
            min_bytes=fields.get("min_bytes", 1),
            max_bytes=1 << 20,
            isolation_level=int(self.name == "committed"),
            session_id=fields.get("session_id", 0),
            session_epoch=fields.get("session_epoch", -1),
            topics=[FetchRequest.FetchTopic(topic=TOPIC, topic_id=bytes(16), partitions=wanted)] if wanted else [],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=TOPIC, topic_id=bytes(16), partitions=[index])
                for index in fields.get("forgotten", ())
            ],
        )

    def send(self, request: FetchRequest) -> None:
        self.client.send(request, api=ApiKey.FETCH, version=self.version)


class World:
    """Two copies of a broker with readers and a producer: one copy has lanes, the other does not. Each public method is
    a step
    that both copies perform.
    """

    def __init__(self, directory: str, *, has_lanes: bool) -> None:
        self.directory, self.has_lanes = Path(directory), has_lanes
        self.served = served = Served(self.directory, partitions=PARTITIONS, min_insync_replicas=1)
        self.disks = [FaultyDisk() for _ in range(PARTITIONS)]
        for index, partition in enumerate(served.partitions):
            partition.log.close()
            log = open_log(
                self.directory / f"{TOPIC}-{index}", served.partitions[index].log.config, disk=self.disks[index]
            )
            partition.__init__(  # type: ignore[misc]
                TOPIC, bytes(16), index, log, broker_id=LEADER, may_lead=lambda: served.may_lead
            )
            partition.lead(0, BOTH, BOTH)
        served.services.transactions = Coordinator()
        numbers = count(1)
        served.services.fetch_sessions._new_id = lambda: next(numbers)
        served.clock.advance_ms(1000)
        self.times = RequestTimes()
        served.dispatcher = Dispatcher(served.services, self.times)
        self.authorizer = StandardAuthorizer()
        self.throttling = Throttling(CONFIG, served.clock)
        self.sequence = 0
        self.gone: list[Client] = []
        self.producer = self.connected()
        self.readers: dict[str, Reader] = {}
        for name in WHO:
            self.reconnect(name, 17)

    def connected(self) -> Client:
        client = Client(self.served)
        if not self.has_lanes:
            client.connection.lanes = NoLanes()
        for _ in range(2):
            client.send(produce(bytes(make_batch()), acks=-1))
        return client

    # --- steps of the readers

    def reconnect(self, who: str, version: int) -> None:
        """Open a new connection. If the reader uses a fetch session, a new session begins there."""
        if who in self.readers:
            reader = self.readers[who]
            self.gone.append(reader.client)
            if not reader.client.connection.eof_received():
                reader.client.connection.connection_lost(None)
        self.readers[who] = Reader(self, who, version if who != "follower" else max(15, version))

    def full(self, who: str, wait_ms: int) -> None:
        """Begin a fetch session."""
        reader = self.reader(who)
        reader.epoch = 1
        reader.send(
            reader.request(
                range(PARTITIONS), self.epochs(), session_id=reader.session_id, session_epoch=0, wait_ms=wait_ms
            )
        )

    def next(self, who: str, indexes: tuple[int, ...], fields: dict[str, Any]) -> None:
        """Send the next incremental request of the fetch session."""
        reader = self.reader(who)
        request = reader.request(
            indexes, self.epochs(), session_id=reader.session_id, session_epoch=reader.epoch, **fields
        )
        reader.epoch += 1
        reader.send(request)

    def alone(self, who: str, index: int, fields: dict[str, Any]) -> None:
        """Fetch without a fetch session."""
        reader = self.reader(who)
        for _ in range(fields.get("times", 1)):
            reader.send(reader.request([index], self.epochs(), **fields))

    def confused(self, who: str) -> None:
        """Send a fetch session epoch that is not the expected one."""
        reader = self.reader(who)
        reader.send(reader.request([0], self.epochs(), session_id=reader.session_id, session_epoch=reader.epoch + 7))

    def encoded_otherwise(self, who: str, tail: int) -> None:
        """Send additional bytes after the message, or fewer bytes than the message needs."""
        reader = self.reader(who)
        request = reader.request([0], self.epochs())
        frame = reader.client._frame(request, ApiKey.FETCH, reader.version)
        body = frame[4:] + bytes(tail) if tail > 0 else frame[4 : len(frame) + tail]
        reader.client._receive(len(body).to_bytes(4, "big") + body)

    def reader(self, who: str) -> Reader:
        self.readers[who].take()
        return self.readers[who]

    def epochs(self) -> list[int]:
        return [partition.leader_epoch for partition in self.served.partitions]

    # --- steps of the broker and the producer

    def write(self, index: int, acks: int, size: int) -> None:
        self.producer.send(produce(bytes(make_batch(b"v" * size)), acks=acks, index=index))

    def transact(self, index: int) -> None:
        batch = sequenced(7, self.sequence, transactional=True)
        self.producer.send(produce(bytes(batch), acks=1, index=index, transactional_id=TRANSACTIONAL_ID))
        self.sequence += 1

    def end_transaction(self, index: int, is_committed: bool) -> None:
        marker = EndTransactionMarker(COMMIT if is_committed else 1 - COMMIT, 0)
        with suppress(KafkaError):
            self.served.partitions[index].append_marker(marker, producer_id=7, producer_epoch=0)

    def lead_anew(self, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        for partition in self.served.partitions:
            if not partition.log.is_offline:
                partition.lead(partition.leader_epoch + 1, isr, replicas, now=self.served.clock.monotonic())

    def resign(self, index: int) -> None:
        partition = self.served.partitions[index]
        partition.follow(FOLLOWER, partition.leader_epoch + 1)

    def gate(self, is_open: bool) -> None:
        self.served.may_lead = is_open

    def configure(self, index: int, change: dict[str, Any]) -> None:
        partition = self.served.partitions[index]
        partition.update_config(replace(partition.log.config, **change))

    def limit(self, fetch_max_bytes: int) -> None:
        services = self.served.services
        services.config = {**services.config, FETCH_MAX_BYTES: fetch_max_bytes}

    def throttle(self, rate: int) -> None:
        self.served.services.throttles.leader.limit(rate, self.served.clock.monotonic())

    def delete(self, index: int) -> None:
        partition = self.served.partitions[index]
        with suppress(KafkaError):
            partition.delete_records_before(partition.high_watermark)

    def break_log(self, index: int) -> None:
        self.disks[index].append_fault = errno.EIO

    def authorize(self, mode: str) -> None:
        """Change what the authorizer allows: `deny` everything, `allow` everything, or `forget` cached decisions and
        then deny what was allowed.
        """
        if mode == "forget":
            self.authorizer._super_users = frozenset()
            self.authorizer.use({})
        else:
            self.authorizer = StandardAuthorizer([ANONYMOUS] if mode == "allow" else [])
        self.served.services.authorizer = None if mode == "off" else self.authorizer

    def register(self, epoch: int) -> None:
        """Register the follower's broker with another broker epoch."""
        self.served.services.image = ClusterImage("", {each: Broker(each, epoch, ()) for each in BOTH})

    def quota(self, rate: float | None, key: QuotaKey, client: str) -> None:
        quotas = {} if rate is None else {QuotaEntity(None, client): {key: rate}}
        image = ClusterImage("c").with_quotas(quotas)  # type: ignore[arg-type]
        self.served.dispatcher.throttling = self.throttling.on_image(image)

    def advance(self, seconds: float) -> None:
        self.served.clock.advance_ms(int(seconds * 1000))

    def fire(self) -> None:
        """Let all deadlines expire."""
        self.served.deadlines.fire()

    # --- comparison of the two brokers

    def outcome(self) -> dict[str, Any]:
        served, sessions = self.served, self.served.services.fetch_sessions
        clients = [self.producer, *(reader.client for reader in self.readers.values()), *self.gone]
        return {
            "answers": [client.wire.bytes for client in clients],
            "throttled": [client.connection._unthrottle is not None for client in clients],
            "aborted": [client.wire.aborted for client in clients],
            "offsets": [(p.high_watermark, p.last_stable_offset, p.log.log_end_offset) for p in served.partitions],
            "followers": [
                {broker: _fields(follower) for broker, follower in p.followers.items()} for p in served.partitions
            ],
            "waiting": [
                (len(p.purgatory.fetches), len(p.purgatory.replica_fetches), len(p.purgatory.appends))
                for p in served.partitions
            ],
            "followers that waited": len(served.waiting_followers),
            "deadlines": sorted(seconds for seconds, _ in served.deadlines.set),
            "joining": [partition.index for partition in served.joining],
            "traffic": [_fields(p.traffic) for p in served.partitions],
            "requests": sorted(served.dispatcher.requests()),
            "timed": {
                api: (*(len(times.samples(stage)) for stage in ("total", "local", "remote", "send")), times.waited)
                for api, times in self.times.apis.items()
            },
            "sessions": [_session(session) for session in sessions._sessions.values()],
            "sessions of followers": [_session(session) for session in sessions._of_followers.values()],
        }

    def files(self) -> dict[str, bytes]:
        self.served.leave()
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _session(session: Any) -> Any:
    partitions = [
        (index, each.high_watermark, each.log_start_offset, each.wanted)
        for (_, index), each in session.partitions.items()
    ]
    return session.session_id, session.epoch, session.last_used, partitions


who = st.sampled_from([*WHO, "follower"])
indexes = st.sampled_from([0, 0, 1])
fields = st.fixed_dictionaries(
    {},
    optional={
        "wait_ms": st.sampled_from([0, 500, 500, 500, 500, 500]),
        "min_bytes": st.sampled_from([1, 1, 1, 0, 300]),
        "partition_bytes": st.sampled_from([1 << 20, 100]),
        "step": st.sampled_from([0, 0, 0, -1, 3, 50]),
        "last_epoch": st.sampled_from([-1, 0, 0, 1, 5]),
    },
)
named = st.sampled_from([(), (), (0,), (0,), (1,), (0, 1)])
usual = st.just({"wait_ms": 500})
requests = st.one_of(
    st.tuples(st.just("next"), who, named, fields),
    st.tuples(st.just("next"), who, named, usual),
    st.tuples(st.just("follow"), who, indexes, st.sampled_from([1, -1, -1])),
    st.tuples(st.just("follow"), who, indexes, st.sampled_from([1, -1, -1])),
    st.tuples(st.just("follow"), who, indexes, st.sampled_from([1, -1, -1])),
    st.tuples(st.just("alone"), who, indexes, fields),
    st.tuples(st.just("write"), indexes, st.sampled_from([1, -1, -1]), st.sampled_from([10, 400])),
    st.tuples(st.just("transact"), indexes),
    st.tuples(st.just("fire")),
)
SETTINGS: Final = (
    {"min_insync_replicas": 2},
    {"min_insync_replicas": 1},
    {"segment_bytes": 400},
    {"leader_replication_throttled_replicas": ("*",)},
    {"leader_replication_throttled_replicas": ()},
)
changes = st.one_of(
    st.tuples(st.just("full"), who, st.sampled_from([0, 500])),
    st.tuples(st.just("full"), who, st.sampled_from([0, 500])),
    st.tuples(st.just("return"), who, st.sampled_from([17, 17, 12, 10, 18, 9])),
    st.tuples(st.just("return"), who, st.sampled_from([17, 17, 12, 10, 18, 9])),
    st.tuples(st.just("confused"), who),
    st.tuples(st.just("encoded_otherwise"), who, st.sampled_from([1, -1, -9])),
    st.tuples(st.just("next"), who, st.just(()), st.just({"forgotten": [1]})),
    st.tuples(st.just("end_transaction"), indexes, st.booleans()),
    st.tuples(st.just("lead_anew"), st.sampled_from([(LEADER,), BOTH]), st.sampled_from([BOTH, BOTH, (LEADER,)])),
    st.tuples(st.just("resign"), indexes),
    st.tuples(st.just("gate"), st.booleans()),
    st.tuples(st.just("configure"), indexes, st.sampled_from(SETTINGS)),
    st.tuples(st.just("limit"), st.sampled_from([100, 1 << 20])),
    st.tuples(st.just("throttle"), st.sampled_from([0, 100, 2**63 - 1])),
    st.tuples(st.just("delete"), indexes),
    st.tuples(st.just("break_log"), indexes),
    st.tuples(st.just("authorize"), st.sampled_from(["deny", "allow", "allow", "forget", "off"])),
    st.tuples(st.just("register"), st.sampled_from([EPOCH, EPOCH + 1])),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 200.0])),
    st.tuples(
        st.just("quota"),
        st.sampled_from([None, 10.0, 5000.0]),
        st.sampled_from(list(QuotaKey)),
        st.sampled_from(["test", "other"]),
    ),
)
scripts = st.lists(st.tuples(changes, st.lists(requests, min_size=3, max_size=10)), min_size=2, max_size=5)
IN_SESSION: Final = [("next", "follower", (), {"wait_ms": 500}), ("fire",)]
CONSUMED: Final = [("next", "uncommitted", (0,), {"wait_ms": 500}), ("write", 0, 1, 10), ("fire",)]


@settings(examples(60, of=300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scripts)
@example([(("fire",), [*IN_SESSION * 3, ("write", 0, -1, 10), ("next", "follower", (0,), {}), ("fire",)])])
@example([(("fire",), CONSUMED * 4), (("lead_anew", (LEADER,), (LEADER,)), CONSUMED * 3)])
@example([(("lead_anew", (LEADER,), (LEADER,)), [("write", 0, 1, 10), ("alone", "uncommitted", 0, {"times": 9})])])
def test_the_fetch_lane_answers_like_the_usual_way(script: list[tuple[Any, list[Any]]]) -> None:
    asyncio.run(_compare(_steps(script)))


def _steps(script: list[tuple[Any, list[Any]]]) -> Iterable[tuple[Any, ...]]:
    """Let all readers fetch in sessions, then run `script`; a reader whose API version the script changes begins a
    session with that version, too.
    """
    for name in WHO:
        yield from _begun(name)
    for change, following in script:
        if change[0] == "return":
            yield ("reconnect", *change[1:])
            yield from _begun(change[1])
        else:
            yield change
        for step, *arguments in following:
            if step == "follow":
                yield from _followed(*arguments)
            else:
                yield step, *arguments


def _followed(name: str, index: int, acks: int) -> Iterable[tuple[Any, ...]]:
    """Let a reader wait at the end of a partition until a record is appended there."""
    yield "next", name, (index,), {"wait_ms": 500}
    yield "write", index, acks, 10
    yield "next", name, (index,), {"wait_ms": 500}


def _begun(name: str) -> Iterable[tuple[Any, ...]]:
    """Begin a fetch session, so that the lane recognises the next request."""
    yield "full", name, 0
    for indexes in ((), (), (0,), (1,)):
        yield "next", name, indexes, {"wait_ms": 500}
        yield ("fire",)
    for index in (0, 0, 1):
        yield "alone", name, index, {"wait_ms": 500}
        yield ("fire",)


async def _compare(steps: Iterable[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-lanes-") as directory:
        worlds = [World(os.path.join(directory, name), has_lanes=name == "fast") for name in ("fast", "usual")]
        for step, *arguments in steps:
            for world in worlds:
                getattr(world, step)(*arguments)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            fast, usual = (world.outcome() for world in worlds)
            for what, value in usual.items():
                assert fast[what] == value, (step, what)
        fast_files, usual_files = (world.files() for world in worlds)
        assert fast_files == usual_files
