"""A GroupMachine and members of the consumer protocol (KIP-848) that send it heartbeats as clients do.

Jobs (assignments of large groups, regular expressions) run when a test calls `run_jobs`.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.support.groups import Answer, GroupDriver

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.heartbeat import Heartbeat
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions
REBALANCE_TIMEOUT_MS = 30_000
Partitions = frozenset[tuple[str, int]]


def topic(name: str, partitions: int, *, incarnation: int = 0, replicas: tuple[int, ...] = (1,)) -> Topic:
    """Create a topic whose id is derived from its name and incarnation, as `label_of` describes."""
    label = f"{name}.{incarnation}" if incarnation else name
    return Topic(name, id_of(label), {number: PartitionState(replicas) for number in range(partitions)})


def id_of(label: str) -> bytes:
    return label.encode().ljust(16, b"\0")


def label_of(topic_id: bytes) -> str:
    """Return the topic's name, followed by the incarnation if the topic was re-created: "t.1"."""
    return topic_id.rstrip(b"\0").decode()


@dataclass
class Client848:
    """One client of the consumer protocol; its member id, epoch and partitions come from the responses to its
    heartbeats.

    The member revokes partitions when a response tells it to, and reports the revocation in its next heartbeat; `owns`
    are the partitions that it may read.
    """

    driver: ConsumerDriver
    member_id: str
    topics: tuple[str, ...] | None = ("t",)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    group_id: str = "g"
    epoch: int = 0
    owns: Partitions = frozenset()
    interval_ms: int = 0
    last: Answer = field(default_factory=Answer)

    def join(self) -> Answer:
        """Join with a first heartbeat, which has all fields. The member first gives up the partitions that it owned."""
        self.epoch, self.owns = 0, frozenset()
        return self.send(
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=None if self.topics is None else list(self.topics),
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            instance_id=self.instance_id,
            topic_partitions=[],
        )

    def beat(self, **said: Any) -> Answer:
        """Send a heartbeat that contains the owned partitions, and further fields from `said`."""
        return self.send(topic_partitions=self.driver.named_partitions(self.owns), **said)

    def idle(self) -> Answer:
        """Send a heartbeat that has only the required fields."""
        return self.send()

    def subscribe(self, *topics: str) -> Answer:
        self.topics = topics
        return self.beat(subscribed_topic_names=list(topics))

    def leave(self, epoch: int = -1) -> Answer:
        answer = self.driver.consumer_heartbeat(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.epoch, self.owns = 0, frozenset()
        return answer

    def send(self, **said: Any) -> Answer:
        said.setdefault("instance_id", self.instance_id)
        answer = self.driver.consumer_heartbeat(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, **said
        )
        return self.believe(answer)

    def believe(self, answer: Answer) -> Answer:
        self.last = answer
        if answer.code is ErrorCode.NONE:
            response: ConsumerGroupHeartbeatResponse = answer.response
            self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
            if response.assignment is not None:
                self.owns = self.driver.partitions_in(response.assignment.topic_partitions)
        elif answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch, self.owns = 0, frozenset()
        return answer


class ConsumerDriver(GroupDriver):
    """Drives a GroupMachine and the members of its groups; by default the cluster has the topics "t" with four
    partitions and "u" with two.
    """

    def __init__(
        self, config: GroupConfig | None = None, topics: Iterable[Topic] | None = None, racks: Mapping[int, str] = {}
    ) -> None:
        brokers = {number: Broker(number, 1, (), rack) for number, rack in racks.items()}
        self.view = TopicView(ClusterImage("", brokers).with_topics(topics or (topic("t", 4), topic("u", 2))))
        self.overrides: dict[str, dict[str, str]] = {}
        self.numbers = count(1)
        super().__init__(config)

    def new_machine(self, held: HeldBytes) -> GroupMachine:
        return GroupMachine(
            self.config,
            lambda: self.now_ms,
            lambda: f"id{next(self.ids)}",
            held,
            lambda: self.view,
            lambda group_id: self.overrides.get(group_id, {}),
        )

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.machine.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    # --- topics

    def set_topics(self, *topics: Topic, without: Iterable[str] = ()) -> None:
        """Publish a newer image in which these topics are new or changed, and the topics in `without` deleted."""
        self.view = self.view.changed(self.view._image.with_topics(topics, without))

    def named_partitions(self, owned: Partitions) -> list[TopicPartitions]:
        ids: dict[bytes, list[int]] = {}
        for label, partition in sorted(owned):
            ids.setdefault(id_of(label), []).append(partition)
        return [TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in ids.items()]

    def partitions_in(self, topics: Iterable[Any]) -> Partitions:
        return frozenset((label_of(each.topic_id), partition) for each in topics for partition in each.partitions)

    # --- requests

    def client(self, **what: Any) -> Client848:
        return Client848(self, what.pop("member_id", None) or f"m{next(self.numbers)}", **what)

    def joined(self, **what: Any) -> Client848:
        """Create a client and let it join the group."""
        client = self.client(**what)
        assert client.join().code is ErrorCode.NONE
        return client

    def consumer_heartbeat(
        self,
        *,
        client_id: str = "c",
        wrong_regex: str | None = None,
        may_describe: Any = lambda name: True,
        group_id: str = "g",
        **said: Any,
    ) -> Answer:
        request = ConsumerGroupHeartbeatRequest(group_id=group_id, **said)
        return self.run(
            lambda answer: self.machine.consumer_heartbeat(
                Heartbeat(request, Client(client_id, "/127.0.0.1"), answer, may_describe, wrong_regex)
            )
        )

    def settle(self, *clients: Client848, rounds: int = 12) -> None:
        """Let all members send a heartbeat each second until each member owns its target assignment."""
        for _ in range(rounds):
            self.advance(1.0)
            for client in clients:
                if client.beat().code is not ErrorCode.NONE:
                    client.join()
            self.run_jobs()


def owned(*clients: Client848) -> list[tuple[str, int]]:
    """Return the owned partitions of these clients, sorted; a partition with two owners is listed twice."""
    return sorted(partition for client in clients for partition in client.owns)
