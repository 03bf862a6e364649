"""Two copies of a group coordinator, one with fast code paths (lanes) and one without, for tests that compare them."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.support.groups import state_of
from tests.support.internal_topic import InternalTopic
from tests.support.served import Client
from tests.support.storage import FaultyDisk

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.limits import Limits
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest
from oncelog_protocol.quotas import QuotaEntity, QuotaKey

CONFIG: Final[Any] = {key: key.default for key in BROKER_KEYS.values()}
CLASSIC, CONSUMER = "classic", "consumer"
MEMBERS: Final = ("member", "static")
ORDERS: Final = "orders"
TURNS: Final = 20
"""After this many iterations of the event loop a broker has handled everything that a step causes."""
FOLLOWER: Final = 2


class NoLanes(dict[int, Any]):
    """Replaces a connection's lanes and stores no lane, so that the general handlers process every request."""

    def __setitem__(self, key: int, lane: Any) -> None:
        pass


class Sender:
    """A member of a group, with its own connection. The member takes its id and its generation or member epoch from
    its responses.
    """

    def __init__(self, world: World, name: str) -> None:
        self.client = Client(world)  # type: ignore[arg-type]
        if not world.has_lanes:
            self.client.connection.lanes = NoLanes()
        self.name = name
        self.taken_bytes = 0
        self.member_id, self.generation = (
            "" if name in MEMBERS else "chosen-by-the-client",
            -1 if name in MEMBERS else 0,
        )
        self.instance_id = "instance" if name == "static" else None
        self.version = {ApiKey.HEARTBEAT: 4, ApiKey.OFFSET_COMMIT: 9, ApiKey.CONSUMER_GROUP_HEARTBEAT: 1}

    @property
    def group_id(self) -> str:
        return CLASSIC if self.name in MEMBERS else CONSUMER

    def take(self) -> None:
        """Take the ids and generations of the received responses."""
        answers, self.taken_bytes = self.client.answers(self.taken_bytes), len(self.client.wire.bytes)
        for _, response in answers:
            kind = type(response).__name__
            if kind == "JoinGroupResponse":
                self.member_id = response.member_id or self.member_id
                if not response.error_code:
                    self.generation = response.generation_id
            elif kind == "ConsumerGroupHeartbeatResponse" and not response.error_code:
                self.generation = response.member_epoch

    def send(self, request: Any, api: ApiKey, version: int | None = None) -> None:
        self.client.send(request, api=api, version=self.version[api] if version is None else version)


class World:
    """Two copies of a group coordinator, one with lanes and one without. Each public method is a step that both copies
    perform.
    """

    def __init__(self, directory: str, *, has_lanes: bool) -> None:
        self.directory, self.has_lanes = Path(directory), has_lanes
        self.directory.mkdir()
        self.disk = FaultyDisk()
        self.topic = InternalTopic(self.directory, disk=self.disk)
        self.topic.clock.advance_ms(1000)
        self.is_open = True
        self.topic.may_lead = lambda: self.is_open
        drawn = itertools.count(1)
        self.entropy = lambda count: next(drawn).to_bytes(count, "big")
        topic: Any = self.topic
        config = BrokerConfig.of({"group.initial.rebalance.delay.ms": "0", "offset.metadata.max.bytes": "10"})
        self.groups = GroupCoordinator(config, topic, SimpleNamespace(), self.topic.host)  # type: ignore[arg-type]
        self.authorizer = StandardAuthorizer()
        self.services: Any = SimpleNamespace(
            clock=self.topic.clock,
            tasks=self.topic.tasks,
            slices=self.topic.host.slices,
            deadlines=self.topic,
            authorizer=None,
            is_clustered=False,
            groups=self.groups,
            image=ClusterImage(""),
            config=CONFIG,
            at_work=asyncio.Semaphore(10),
        )
        self.times = RequestTimes()
        limits = Limits(100, 100, 1 << 20, -1, -1, 600.0)
        self.connections = Connections(limits, LoopBudget(self.topic.clock.monotonic))
        self.dispatcher = Dispatcher(self.services, self.times)
        self.throttling = Throttling(CONFIG, self.topic.clock)
        self.gone: list[Client] = []
        self.offset = 0
        self.lead_anew()
        self.make_topic(1)
        self.senders = {name: Sender(self, name) for name in (*MEMBERS, CONSUMER)}

    async def perform(self, step: str, *arguments: Any) -> None:
        """Perform a step, and wait until the broker has handled everything that the step causes. Both worlds draw the
        same member ids.
        """
        with patch("os.urandom", self.entropy):
            for sender in self.senders.values():
                sender.take()
            getattr(self, step)(*arguments)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    # --- steps of the members

    def join(self, name: str) -> None:
        sender = self.senders[name]
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=CLASSIC, session_timeout_ms=10_000, rebalance_timeout_ms=20_000, member_id=sender.member_id,
            group_instance_id=sender.instance_id, protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        sender.send(request, ApiKey.JOIN_GROUP, 7)

    def sync(self, name: str) -> None:
        sender = self.senders[name]
        ids = [other.member_id for other in self.senders.values() if other.member_id and other.name in MEMBERS]
        given = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=CLASSIC, generation_id=sender.generation, member_id=sender.member_id,
            group_instance_id=sender.instance_id, protocol_type="consumer", protocol_name="range",
            assignments=[given(member_id=member_id, assignment=b"partitions") for member_id in ids],
        )  # fmt: skip
        sender.send(request, ApiKey.SYNC_GROUP, 5)

    def leave(self, name: str) -> None:
        sender = self.senders[name]
        if name == CONSUMER:
            self.consumer_heartbeat({"member_epoch": -1})
            return
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=sender.member_id, group_instance_id=sender.instance_id, reason=None
        )
        sender.send(LeaveGroupRequest(group_id=CLASSIC, members=[identity]), ApiKey.LEAVE_GROUP, 5)

    def beat(self, name: str, step: int) -> None:
        """Send a heartbeat; a `step` other than 0 makes its generation or member epoch wrong."""
        sender = self.senders[name]
        if name == CONSUMER:
            self.consumer_heartbeat({"member_epoch": sender.generation + step})
            return
        request = HeartbeatRequest(
            group_id=CLASSIC, generation_id=sender.generation + step, member_id=sender.member_id,
            group_instance_id=sender.instance_id,
        )  # fmt: skip
        sender.send(request, ApiKey.HEARTBEAT)

    def consumer_heartbeat(self, fields: dict[str, Any]) -> None:
        sender = self.senders[CONSUMER]
        usual: dict[str, Any] = {
            "group_id": CONSUMER, "member_id": sender.member_id, "member_epoch": sender.generation, "instance_id": None,
            "rack_id": None, "rebalance_timeout_ms": -1, "subscribed_topic_names": None, "subscribed_topic_regex": None,
            "server_assignor": None, "topic_partitions": None,
        }  # fmt: skip
        sender.send(ConsumerGroupHeartbeatRequest(**{**usual, **fields}), ApiKey.CONSUMER_GROUP_HEARTBEAT)

    def subscribe(self, names: list[str]) -> None:
        """Join the group of the consumer protocol, with a subscription."""
        self.consumer_heartbeat(
            {
                "member_epoch": 0,
                "rebalance_timeout_ms": 30_000,
                "subscribed_topic_names": names,
                "topic_partitions": [],
            }
        )

    def commit(self, name: str, indexes: tuple[int, ...], step: int, metadata: str | None) -> None:
        """Commit the next offset of these partitions; a `step` other than 0 makes the generation wrong."""
        sender, topic = self.senders[name], OffsetCommitRequest.OffsetCommitRequestTopic
        self.offset += 1
        partitions = [
            topic.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=self.offset, committed_leader_epoch=self.offset % 3 - 1,
                committed_metadata=metadata,
            )
            for index in indexes
        ]  # fmt: skip
        request = OffsetCommitRequest(
            group_id=sender.group_id, generation_id_or_member_epoch=sender.generation + step,
            member_id=sender.member_id, group_instance_id=sender.instance_id,
            topics=[topic(name=ORDERS, topic_id=self.topic_id, partitions=partitions)],
        )  # fmt: skip
        sender.send(request, ApiKey.OFFSET_COMMIT)

    def encoded_otherwise(self, name: str, tail: int) -> None:
        """Send additional bytes after the message, or fewer bytes than the message needs."""
        sender = self.senders[name]
        request = HeartbeatRequest(
            group_id=CLASSIC, generation_id=sender.generation, member_id=sender.member_id,
            group_instance_id=sender.instance_id,
        )  # fmt: skip
        frame = sender.client._frame(request, ApiKey.HEARTBEAT, 4)
        body = frame[4:] + bytes(tail) if tail > 0 else frame[4 : len(frame) + tail]
        sender.client._receive(len(body).to_bytes(4, "big") + body)

    def reconnect(self, name: str, commit_version: int) -> None:
        """Open a new connection of the same member; it commits with another version of OffsetCommit."""
        before = self.senders[name]
        self.gone.append(before.client)
        if not before.client.connection.eof_received():
            before.client.connection.connection_lost(None)
        after = self.senders[name] = Sender(self, name)
        after.member_id, after.generation = before.member_id, before.generation
        after.version[ApiKey.OFFSET_COMMIT] = commit_version

    # --- steps of the broker

    def lead_anew(self) -> None:
        self.topic.image = self.services.image
        self._show(self.topic.lead())

    def resign(self) -> None:
        if self.topic.led:
            self.topic.image = self.services.image
            self._show(self.topic.resign(*self.topic.led))

    def grow(self) -> None:
        """Add a partition to the internal topic, so that a group may belong to another partition."""
        if self.topic.count < 3:
            self.topic.count += 1
            self.lead_anew()

    def gain_follower(self, is_in_sync: bool) -> None:
        """Add a follower that has no records, so that the responses to commits wait from then on."""
        self.topic.epoch += 1
        isr = (1, FOLLOWER) if is_in_sync else (1,)
        for partition in self.topic.led.values():
            partition.lead(self.topic.epoch, isr, (1, FOLLOWER))

    def follow(self) -> None:
        """Let the follower fetch all records."""
        for partition in self.topic.led.values():
            partition.on_follower_fetch(FOLLOWER, partition.log.log_end_offset, now=self.topic.clock.monotonic())

    def gate(self, is_open: bool) -> None:
        self.is_open = is_open

    def break_disk(self, fault: int | None) -> None:
        self.disk.append_fault = fault

    def make_topic(self, number: int) -> None:
        """Create the topic that the members read, or replace it with a topic with another id."""
        self.topic_id = bytes([number]) * 16
        state = PartitionState((1,), (1,), 1, 0, 0)
        self._show(self.services.image.with_topic(Topic(ORDERS, self.topic_id, {0: state, 1: state})))

    def use_topic_id(self, number: int) -> None:
        """Let the members send the id of an earlier topic from now on."""
        self.topic_id = bytes([number]) * 16

    def delete_topic(self) -> None:
        if ORDERS in self.services.image.topics:
            self._show(self.services.image.without_topic(ORDERS))

    def configure(self, overrides: dict[str, str]) -> None:
        """Change the settings of the group of the consumer protocol."""
        self._show(self.services.image.with_group_configs({CONSUMER: overrides}))

    def _show(self, image: ClusterImage) -> None:
        before, self.services.image = self.services.image, image
        self.groups.on_image(before, image)

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
            self.topic.advance(seconds)

    # --- comparison of the two brokers

    def outcome(self) -> dict[str, Any]:
        clients = [*(sender.client for sender in self.senders.values()), *self.gone]
        shards = self.groups.runtime.all_shards()
        return {
            "answers": [client.wire.bytes for client in clients],
            "throttled": [client.connection._unthrottle is not None for client in clients],
            "aborted": [client.wire.aborted for client in clients],
            "groups": [_groups(shard.machine) for shard in shards],
            "offsets": [shard.machine.offsets._groups for shard in shards],
            "timers": [shard.timers._deadlines for shard in shards],
            "waiting": [len(shard.all_waiting()) for shard in shards],
            "log": [
                (index, p.high_watermark, p.log.log_end_offset, p.log.is_offline, _fields(p.traffic))
                for index, p in self.topic.led.items()
            ],
            "requests": sorted(self.dispatcher.requests()),
            "timed": {
                api: (*(len(times.samples(stage)) for stage in ("total", "local", "remote", "send")), times.waited)
                for api, times in self.times.apis.items()
            },
        }

    async def files(self) -> dict[str, bytes]:
        self.groups.close()
        await self.topic.tasks.close()
        self.topic.close()
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }


def _groups(machine: Any) -> dict[str, dict[str, Any]]:
    """Return the state of all groups; of waiting requests only the member ids, because the requests of the two brokers
    are different objects."""
    groups = state_of(machine)
    for group in groups.values():
        group.update({name: list(group[name]) for name in ("joining", "syncing") if name in group})
    return groups


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


EACH: Final = [(step, name) for name in (*MEMBERS, CONSUMER) for step in ("beat", "commit")]
USUAL: Final[list[tuple[Any, ...]]] = [
    (step, name, 0) if step == "beat" else (step, name, (0,), 0, "") for step, name in EACH
]
BEGUN: Final[list[tuple[Any, ...]]] = [
    ("join", "member"), ("join", "member"), ("join", "static"), ("join", "member"),
    ("sync", "member"), ("sync", "static"), ("subscribe", [ORDERS]), ("beat", CONSUMER, 0), ("beat", CONSUMER, 0),
    *USUAL * 3,
]  # fmt: skip
"""Steps after which both groups are stable, and the lanes recognise the next requests."""
