"""Two copies of a transaction coordinator with its partitions, one with fast code paths (lanes) and one without, for
tests that compare them.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.support.internal_topic import InternalTopic
from tests.support.memory_peers import MemoryPeers
from tests.support.producers import sequenced
from tests.support.served import TOPIC, Client, Served
from tests.support.storage import FaultyDisk

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.coordinator.transaction import verification
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.marker_sender import MarkerSender
from oncelog_broker.coordinator.transaction.markers import MarkerAppender
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.topic_names import TRANSACTION_STATE
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.replication.partition import Partition
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.quotas import QuotaEntity, QuotaKey
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

CONFIG: Final[Any] = {key: key.default for key in BROKER_KEYS.values()}
OLD, NEW = "old", "new"
"""The transactional ids of a producer with transactions V1, and of a producer with transactions V2."""
BROKER, FOLLOWER = 1, 2
FIRST: Final = {OLD: 0, NEW: 2}
"""The first partition to which each producer writes. The producers share neither these partitions nor a partition of
`__transaction_state`, because after a wait the lanes may serve another of the two producers first.
"""
PARTITIONS: Final = 4
TURNS: Final = 20
"""After this many iterations of the event loop a broker has handled everything that a step causes."""


class NoLanes(dict[int, Any]):
    """Replaces a connection's lanes and stores no lane, so that the general handlers process every request."""

    def __setitem__(self, key: int, lane: Any) -> None:
        pass


class StateTopic(InternalTopic):
    """`__transaction_state`, and the partitions of TOPIC to which the producers write."""

    served: Served

    def leader(self, topic: str, index: int) -> Partition:
        return super().leader(topic, index) if topic == TRANSACTION_STATE else self.served.leader(topic, index)

    led_by_name = leader


class Sender:
    """A producer with its own connection. It takes its producer id and epoch from the responses."""

    def __init__(self, world: World, name: str) -> None:
        self.client = Client(world)  # type: ignore[arg-type]
        if not world.has_lanes:
            self.client.connection.lanes = NoLanes()
        self.name = name
        self.taken_bytes = 0
        self.producer_id, self.epoch = -1, -1
        self.sequences = [0] * PARTITIONS
        self.versions = {ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.PRODUCE: 9, ApiKey.END_TXN: 3}
        if name == NEW:
            self.versions = {ApiKey.ADD_PARTITIONS_TO_TXN: 2, ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5}

    def take(self) -> None:
        """Take the producer id and epoch of the received responses."""
        answers, self.taken_bytes = self.client.answers(self.taken_bytes), len(self.client.wire.bytes)
        for _, response in answers:
            if type(response).__name__ not in ("InitProducerIdResponse", "EndTxnResponse") or response.error_code:
                continue
            if response.producer_id >= 0:
                if response.producer_epoch != self.epoch:
                    self.sequences = [0] * PARTITIONS
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def send(self, request: Any, api: ApiKey, version: int | None = None) -> None:
        self.client.send(request, api=api, version=self.versions[api] if version is None else version)


class World:
    """Two copies of a broker, one with lanes and one without. Each public method is a step that both copies perform."""

    def __init__(self, directory: str, *, has_lanes: bool) -> None:
        self.directory, self.has_lanes = Path(directory), has_lanes
        self.directory.mkdir()
        self.disk = FaultyDisk()
        self.state = StateTopic(self.directory, disk=self.disk, partitions=2, topic=TRANSACTION_STATE)
        self.state.clock.advance_ms(1000)
        self.state.may_lead = lambda: self.is_open
        self.is_open = True
        self.served = self.state.served = Served(self.directory, partitions=PARTITIONS, clock=self.state.clock)
        for partition in self.served.partitions:
            partition.lead(0, (BROKER,))
        image = ClusterImage("").with_broker(Broker(BROKER, 1, ()))
        self.metadata: Any = SimpleNamespace(image=image, synced=self._synced)
        topic: Any = self.state
        appender = MarkerAppender(topic, SimpleNamespace(), self.metadata)  # type: ignore[arg-type]
        peers: Any = MemoryPeers()
        ids = itertools.count(1000)

        async def generate() -> int:
            return next(ids)

        producer_ids: Any = SimpleNamespace(generate=generate, note_known=lambda producer_id: None)
        self.transactions = TransactionCoordinator(
            BrokerConfig.of({}),
            topic,
            MarkerSender(BROKER, self.metadata, appender, peers, self.state.host),
            RemoteCoordinators(peers, self.state.tasks),
            producer_ids,
            self.state.host,
        )
        self.authorizer = StandardAuthorizer()
        self.services = self.served.services
        self.services.transactions = self.transactions
        self.services.tasks, self.services.slices = self.state.tasks, self.state.host.slices
        self.services.deadlines = self.state
        self.services.config = CONFIG
        self.services.at_work = asyncio.Semaphore(10)
        self.services.is_clustered = False
        self.times = RequestTimes()
        self.connections = self.served.connections
        self.dispatcher = Dispatcher(self.services, self.times)
        self.throttling = Throttling(CONFIG, self.state.clock)
        self.gone: list[Client] = []
        self.make_topic(PARTITIONS)
        self.lead_anew()
        self.senders = {name: Sender(self, name) for name in (OLD, NEW)}

    async def _synced(self) -> ClusterImage:
        image: ClusterImage = self.metadata.image
        return image

    async def perform(self, step: str, *arguments: Any) -> None:
        """Perform a step, and wait until the broker has handled everything that the step causes."""
        timed = SimpleNamespace(Future=asyncio.Future, get_running_loop=self._loop)
        with patch.object(verification, "asyncio", timed):
            for sender in self.senders.values():
                sender.take()
            getattr(self, step)(*arguments)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def _loop(self) -> Any:
        """Return the loop with the time of the manual clock, for registrations that are repeated for some time."""
        loop = asyncio.get_event_loop()
        return SimpleNamespace(time=self.state.clock.monotonic, create_future=loop.create_future)

    # --- steps of the producers

    def init(self, name: str) -> None:
        sender = self.senders[name]
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        sender.send(request, ApiKey.INIT_PRODUCER_ID, 4)

    def add(self, name: str, indexes: tuple[int, ...], step: int) -> None:
        """Add partitions to the transaction; a `step` other than 0 makes the epoch wrong."""
        sender = self.senders[name]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=sender.producer_id,
            v3_and_below_producer_epoch=sender.epoch + step,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=TOPIC, partitions=[FIRST[name] + index for index in indexes])
            ],
        )
        sender.send(request, ApiKey.ADD_PARTITIONS_TO_TXN)

    def produce(self, name: str, indexes: tuple[int, ...], step: int, acks: int = -1) -> None:
        """Send a transactional batch for each of the partitions; `step` 0 sends the next batches, a negative `step`
        repeats earlier ones.
        """
        sender, data = self.senders[name], []
        for index in (FIRST[name] + index for index in indexes):
            sequence = max(0, sender.sequences[index] + step)
            batch = sequenced(sender.producer_id, sequence, epoch=sender.epoch, transactional=True)
            data.append(ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=bytes(batch)))
            sender.sequences[index] += step == 0
        topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=data)]
        sender.send(
            ProduceRequest(transactional_id=name, acks=acks, timeout_ms=1000, topic_data=topics), ApiKey.PRODUCE
        )

    def end(self, name: str, commits: bool, step: int) -> None:
        """End the transaction; a `step` other than 0 makes the epoch wrong."""
        sender = self.senders[name]
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=sender.producer_id,
            producer_epoch=sender.epoch + step,
            committed=commits,
        )
        sender.send(request, ApiKey.END_TXN)

    def encoded_otherwise(self, name: str, tail: int) -> None:
        """Send additional bytes after EndTxn, or fewer bytes than it needs."""
        sender = self.senders[name]
        request = EndTxnRequest(
            transactional_id=name, producer_id=sender.producer_id, producer_epoch=sender.epoch, committed=True
        )
        frame = sender.client._frame(request, ApiKey.END_TXN, sender.versions[ApiKey.END_TXN])
        body = frame[4:] + bytes(tail) if tail > 0 else frame[4 : len(frame) + tail]
        sender.client._receive(len(body).to_bytes(4, "big") + body)

    def reconnect(self, name: str, add: int, end: int) -> None:
        """Open a new connection of the same producer; it uses other versions of AddPartitionsToTxn and EndTxn."""
        before = self.senders[name]
        self.gone.append(before.client)
        if not before.client.connection.eof_received():
            before.client.connection.connection_lost(None)
        after = self.senders[name] = Sender(self, name)
        after.producer_id, after.epoch, after.sequences = before.producer_id, before.epoch, before.sequences
        after.versions = {**before.versions, ApiKey.ADD_PARTITIONS_TO_TXN: add, ApiKey.END_TXN: end}

    # --- steps of the broker

    def lead_anew(self) -> None:
        self.state.image = self.metadata.image
        self._show(self.state.lead())

    def resign(self) -> None:
        if self.state.led:
            self.state.image = self.metadata.image
            self._show(self.state.resign(*self.state.led))

    def grow(self) -> None:
        """Add a partition to `__transaction_state`, so that a transactional id may belong to another partition."""
        if self.state.count < 4:
            self.state.count += 1
            self.lead_anew()

    def gain_follower(self, is_in_sync: bool) -> None:
        """Add a follower of `__transaction_state` that has no records, so that responses wait from then on."""
        self.state.epoch += 1
        isr = (BROKER, FOLLOWER) if is_in_sync else (BROKER,)
        for partition in self.state.led.values():
            partition.lead(self.state.epoch, isr, (BROKER, FOLLOWER))

    def follow(self) -> None:
        """Let the follower fetch all records."""
        for partition in self.state.led.values():
            partition.on_follower_fetch(FOLLOWER, partition.log.log_end_offset, now=self.state.clock.monotonic())

    def gate(self, is_open: bool) -> None:
        self.is_open = is_open

    def break_disk(self, fault: int | None) -> None:
        self.disk.append_fault = fault

    def mark(self, name: str, index: int, coordinator_epoch: int) -> None:
        """Write a marker of another coordinator to a partition."""
        sender = self.senders[name]
        with suppress(KafkaError):
            self.served.partitions[FIRST[name] + index].append_marker(
                EndTransactionMarker(ControlType.ABORT, coordinator_epoch),
                producer_id=sender.producer_id,
                producer_epoch=max(0, sender.epoch),
            )

    def make_topic(self, partitions: int) -> None:
        """Create the topic that the producers write to, or replace it with a topic with another number of partitions
        in the image.
        """
        state = PartitionState((BROKER,), (BROKER,), BROKER, 0, 0)
        self._show(self.metadata.image.with_topic(Topic(TOPIC, bytes(16), dict.fromkeys(range(partitions), state))))

    def delete_topic(self) -> None:
        if TOPIC in self.metadata.image.topics:
            self._show(self.metadata.image.without_topic(TOPIC))

    def _show(self, image: ClusterImage) -> None:
        self.metadata.image = self.served.services.image = image
        self.transactions.on_image(image)

    def verify(self, verifies: bool) -> None:
        self.transactions.verifies = verifies

    def authorize(self, mode: str) -> None:
        """Change what the authorizer allows: `deny` everything, `allow` everything, or `forget` cached decisions and
        then deny what was allowed.
        """
        if mode == "forget":
            self.authorizer._super_users = frozenset()
            self.authorizer.use({})
        else:
            self.authorizer = StandardAuthorizer([ANONYMOUS] if mode == "allow" else [])
        self.services.authorizer = None if mode == "off" else self.authorizer

    def quota(self, rate: float | None, key: QuotaKey, client: str) -> None:
        quotas = {} if rate is None else {QuotaEntity(None, client): {key: rate}}
        image = ClusterImage("c").with_quotas(quotas)
        self.dispatcher.throttling = self.throttling.on_image(image)

    def advance(self, seconds: float) -> None:
        with suppress(KafkaError):
            self.state.advance(seconds)

    def abort_timed_out(self) -> None:
        self.state.tasks.spawn("timed out transactions", self.transactions.abort_timed_out())

    # --- comparison of the two brokers

    def outcome(self) -> dict[str, Any]:
        clients = [*(sender.client for sender in self.senders.values()), *self.gone]
        shards = self.transactions.runtime.all_shards()
        return {
            "answers": [client.wire.bytes for client in clients],
            "throttled": [client.connection._unthrottle is not None for client in clients],
            "aborted": [client.wire.aborted for client in clients],
            "states": [shard.machine.transactions for shard in shards],
            "begun": [shard.machine._begun for shard in shards],
            "waiting": [len(shard.all_waiting()) for shard in shards],
            "markers": self.transactions.markers_outstanding,
            "clients": [self.transactions.last_clients.of(name) for name in (OLD, NEW)],
            "sequences": dict(self.transactions.refused_sequences.lowest),
            "logs": [
                (p.index, p.high_watermark, p.last_stable_offset, p.log.log_end_offset, p.log.is_offline, _fields(p))
                for p in (*self.state.led.values(), *self.served.partitions)
            ],
            "requests": sorted(self.dispatcher.requests()),
            "timed": {
                api: (*(len(times.samples(stage)) for stage in ("total", "local", "remote", "send")), times.waited)
                for api, times in self.times.apis.items()
            },
        }

    async def files(self) -> dict[str, bytes]:
        self.transactions.close()
        await self.state.tasks.close()
        self.state.close()
        for partition in self.served.partitions:
            partition.log.abandon()
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }


def _fields(partition: Partition) -> dict[str, Any]:
    return {name: getattr(partition.traffic, name) for name in partition.traffic.__slots__}


def transaction(name: str, indexes: tuple[int, ...] = (0,), *, commits: bool = True) -> list[tuple[Any, ...]]:
    """Return the steps of a usual transaction."""
    steps: list[tuple[Any, ...]] = [("produce", name, indexes, 0), ("end", name, commits, 0)]
    return steps if name == NEW else [("add", name, indexes, 0), *steps]


USUAL: Final = [*transaction(OLD), *transaction(NEW)]
BEGUN: Final[list[tuple[Any, ...]]] = [("init", OLD), ("init", NEW), *USUAL * 3]
"""Steps after which the lanes recognise the next requests."""
