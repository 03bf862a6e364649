"""A GroupMachine and members of streams groups that send it heartbeats, as Kafka Streams does.

The driver records what a broker would do after a heartbeat: `wanted` has the internal topics that the last response
required, and `create_topics` creates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.consumer_groups import ConsumerDriver, topic
from tests.support.groups import Answer

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.streams.configured_topology import WantedTopic
from oncelog_broker.coordinator.group.streams.heartbeat_request import StreamsAnswer, StreamsHeartbeat
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams_tasks import Task
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
)

Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology
Copartition = Subtopology.CopartitionGroup
REBALANCE_TIMEOUT_MS = 30_000
Tasks = frozenset[Task]


def internal(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> TopicInfo:
    return TopicInfo(
        name=name,
        partitions=partitions,
        replication_factor=replicas,
        topic_configs=[KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def subtopology(
    name: str,
    *sources: str,
    changelogs: Iterable[TopicInfo] = (),
    sinks: Iterable[str] = (),
    repartition: Iterable[TopicInfo] = (),
    copartition: Iterable[tuple[Sequence[int], Sequence[int]]] = (),
    regex: Iterable[str] = (),
) -> Subtopology:
    """Return a subtopology; `copartition` lists groups of topics that must have equal partition counts, as
    indexes into `sources` and `repartition`.
    """
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=list(regex),
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartition),
        copartition_groups=[
            Copartition(
                source_topics=list(of_sources),
                source_topic_regex=[],
                repartition_source_topics=list(of_repartition),
            )
            for of_sources, of_repartition in copartition
        ],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


SIMPLE = topology(subtopology("0", "t"))
"""A topology of four tasks without state stores."""
STATEFUL = topology(subtopology("0", "t", changelogs=[internal("store-changelog")]))
"""A topology of four tasks with a state store."""
WORD_COUNT = topology(
    subtopology("0", "t", sinks=["words-repartition"]),
    subtopology(
        "1",
        repartition=[internal("words-repartition", cleanup_policy="delete")],
        changelogs=[internal("counts-changelog", cleanup_policy="compact")],
    ),
)


@dataclass
class Client1071:
    """One client of a streams group; its member id, epoch and tasks come from the responses to its heartbeats. The
    member
    gives up tasks when a response requires it, and reports its remaining tasks in the next heartbeat; `active` and
    `standby` are the tasks that it has.
    """

    driver: StreamsDriver
    member_id: str
    topology: Topology = field(default_factory=lambda: SIMPLE)
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    tags: dict[str, str] = field(default_factory=dict)
    group_id: str = "g"
    epoch: int = 0
    endpoint_epoch: int = -1
    active: Tasks = frozenset()
    standby: Tasks = frozenset()
    interval_ms: int = 0
    statuses: dict[int, str] = field(default_factory=dict)
    endpoints: list[Any] = field(default_factory=list)
    last: Answer = field(default_factory=Answer)

    def join(self, **said: Any) -> Answer:
        """Join with a first heartbeat, which has all fields. The member gives up the tasks that it had."""
        self.epoch, self.active, self.standby = 0, frozenset(), frozenset()
        at = self.endpoint
        fields = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "topology": self.topology,
            "process_id": self.process_id or self.member_id,
            "user_endpoint": None if at is None else Endpoint(host=at[0], port=at[1]),
            "client_tags": [KeyValue(key=key, value=value) for key, value in self.tags.items()],
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        return self.send(**fields | said)

    def beat(self, **said: Any) -> Answer:
        """Send a heartbeat with the tasks that the member has."""
        tasks = {"active_tasks": ids_of(self.active), "standby_tasks": ids_of(self.standby), "warmup_tasks": []}
        return self.send(**tasks | said)

    def idle(self) -> Answer:
        """Send a heartbeat without optional fields."""
        return self.send()

    def leave(self, **said: Any) -> Answer:
        answer = self.driver.streams_heartbeat(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1, **said
        )
        self.epoch, self.active, self.standby = 0, frozenset(), frozenset()
        return answer

    def send(self, **said: Any) -> Answer:
        said.setdefault("member_epoch", self.epoch)
        said.setdefault("endpoint_information_epoch", self.endpoint_epoch)
        return self.believe(self.driver.streams_heartbeat(group_id=self.group_id, member_id=self.member_id, **said))

    def believe(self, answer: Answer) -> Answer:
        self.last = answer
        if answer.code is ErrorCode.NONE:
            response: StreamsGroupHeartbeatResponse = answer.response
            self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
            self.statuses = {status.status_code: status.status_detail for status in response.status or ()}
            self.endpoint_epoch = response.endpoint_information_epoch
            if response.partitions_by_user_endpoint is not None:
                self.endpoints = response.partitions_by_user_endpoint
            if response.active_tasks is not None:
                self.active = tasks_in(response.active_tasks)
                self.standby = tasks_in(response.standby_tasks or [])
        elif answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch, self.active, self.standby = 0, frozenset(), frozenset()
        return answer


class StreamsDriver(ConsumerDriver):
    """Drives a GroupMachine and members of streams groups; the cluster has the topics "t" with four partitions and "u"
    with two. Members that join an empty group wait three seconds for
    others, as by default."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.wanted: tuple[WantedTopic, ...] = ()
        super().__init__(*arguments, **named)

    @property
    def streams_group(self) -> StreamsGroup:
        group = self.machine.groups["g"]
        assert isinstance(group, StreamsGroup)
        return group

    def streams_heartbeat(self, *, client_id: str = "c", group_id: str = "g", **said: Any) -> Answer:
        said.setdefault("endpoint_information_epoch", 0)
        request = StreamsGroupHeartbeatRequest(group_id=group_id, **said)
        asked = Client(client_id, "/127.0.0.1")
        answer = self.run(lambda answer: self.machine.streams.heartbeat(StreamsHeartbeat(request, asked, answer)))
        if isinstance(answer.response, StreamsAnswer):
            self.wanted, answer.response = answer.response.topics, answer.response.response
        return answer

    def create_topics(self) -> None:
        """Create the internal topics that the last response required."""
        self.set_topics(*(topic(wanted.name, wanted.partitions) for wanted in self.wanted))

    def streams_client(self, member_id: str | None = None, **what: Any) -> Client1071:
        return Client1071(self, member_id or f"m{next(self.numbers)}", **what)

    def streams_joined(self, **what: Any) -> Client1071:
        """Create a client and let it join; return it when the internal topics exist and the initial rebalance delay has
        passed.
        """
        client = self.streams_client(**what)
        assert client.join().code is ErrorCode.NONE
        self.create_topics()
        self.advance(3.0)
        client.beat()
        return client

    def settle_streams(self, *clients: Client1071, rounds: int = 8) -> None:
        """Let all members send a heartbeat each second until each member has the tasks of its target assignment."""
        for _ in range(rounds):
            self.advance(1.0)
            for client in clients:
                if client.beat().code is not ErrorCode.NONE:
                    client.join()
                self.create_topics()
            self.run_jobs()


def ids_of(tasks: Tasks) -> list[TaskIds]:
    found: dict[str, list[int]] = {}
    for name, number in sorted(tasks):
        found.setdefault(name, []).append(number)
    return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in found.items()]


def tasks_in(listed: Iterable[TaskIds]) -> Tasks:
    return frozenset((ids.subtopology_id, number) for ids in listed for number in ids.partitions)


def each_task(*clients: Client1071) -> list[Task]:
    """Return the active tasks of these clients, sorted; a task that two clients have is listed twice."""
    return sorted(task for client in clients for task in client.active)
