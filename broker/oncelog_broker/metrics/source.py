"""The data for one scrape: the parts of a broker, and values that are collected once for all metrics.

The broker continues to work between two slices of a scrape. Collections are therefore copied before iteration, and the
values of a scrape may be from slightly different moments, so that the sums of two related metrics may differ.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listeners import listeners
from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.membership.producer_ids import ProducerIdManager
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.observability.loop_watch import LoopWatch
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.observability.topic_traffic import TopicTraffic
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.steps import LightJob, Steps
from oncelog_broker.security.quotas.observed import Seen
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.sharing.share_partitions import SharePartitions
from oncelog_broker.telemetry.client_telemetry import ClientTelemetry
from oncelog_protocol.quotas import QuotaKey

PARTITIONS_PER_STEP: Final = 200
"""The number of partitions visited in one slice, which takes less than a millisecond."""
RUNNING: Final = 3
CONTROLLED_SHUTDOWN: Final = 6
"""Two values of Kafka's metric BrokerState."""


class Observed(Protocol):
    """The services of a broker that metrics and health checks use."""

    config: BrokerConfig
    clock: Clock
    logs: LogManager
    replicas: Replicas
    producer_ids: ProducerIdManager
    fetch_sessions: FetchSessions
    telemetry: ClientTelemetry

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator."""

    @property
    def share_partitions(self) -> SharePartitions:
        """The share partitions that this broker leads."""

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator."""

    @property
    def loading(self) -> str | None:
        """An internal topic with partitions that are being loaded; None if no partition is being loaded."""

    def key_ages(self) -> Iterable[tuple[str, float]]:
        """Return each listener that accepts signed tokens, with the seconds since its keys were last read
        (`Securities`).
        """

    @property
    def image(self) -> ClusterImage:
        """The present cluster image."""

    @property
    def node_id(self) -> int:
        """The id of this broker."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a broker that metrics use."""

    services: Observed
    connections: Connections
    dispatcher: Dispatcher
    times: RequestTimes
    loop: LoopWatch


class ClusterCounts:
    """The controller's counts of the entire cluster; all are 0 on other brokers."""

    def __init__(self) -> None:
        self.is_controller = False
        self.brokers = 0
        self.topics = 0
        self.partitions = 0
        self.offline = 0
        self.not_preferred = 0

    def counted(self, image: ClusterImage, node_id: int) -> Steps[None]:
        self.is_controller = image.controller_id == node_id
        if not self.is_controller:
            return
        self.brokers, self.topics = len(image.brokers), len(image.topics)
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions.values(), 1):
                self.partitions += 1
                self.offline += not image.is_led(state)
                self.not_preferred += bool(state.replicas) and state.leader != state.replicas[0]
                if number % PARTITIONS_PER_STEP == 0:
                    yield None
            yield None


class Source:
    """The values that the metrics of one scrape share. The generator `look` collects the values; the values are
    complete when `look` has finished.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.services = parts.services
        self.hosted: list[Partition] = []
        self.led: list[Partition] = []
        self.topics: dict[str, TopicTraffic] = {}
        """Maps each topic to its traffic, which includes the counters of the topic's present partitions. Topics without
        traffic are omitted, because thousands of idle topics would make up most of the text. Kafka, too, creates a
        topic's metrics at the topic's first traffic.
        """
        self.hosted_used: list[Partition] = []
        """The partitions on this broker whose topics were used: the topic has traffic or records."""
        self.led_used: list[Partition] = []
        """The partitions of `hosted_used` that this broker leads."""
        self.all_topics = TopicTraffic()
        """The sum of the traffic of all topics, including deleted topics."""
        self.cluster = ClusterCounts()
        self.lag: dict[int, int] = {}
        """Maps the id of each follower to its largest lag, in records, among the partitions that this broker leads."""
        self.connections: Counter[str] = Counter()
        """Maps each listener's name to its number of connections."""
        self.open_files: int | None = None
        """The number of open file descriptors; None if unknown."""
        self.rooms: dict[str, tuple[int, int]] = {}
        """Maps each data directory to a pair: the bytes of its file system, and the bytes that the broker may still
        write. A directory whose file system does not respond is omitted.
        """

    @property
    def replicas(self) -> Replicas:
        return self.services.replicas

    def quotas(self, key: QuotaKey) -> Iterator[Seen]:
        """Return the usage of a quota by each reported user or client."""
        observed = self.parts.dispatcher.observed
        return iter(()) if observed is None else observed.seen(key, self.services.clock.monotonic())

    def look(self) -> Steps[None]:
        """Copy the collections that are iterated over, and compute the counts that several metrics use."""
        self.open_files = yield LightJob(_open_files)
        self.rooms = yield LightJob(partial(_rooms, self.services.logs))
        replicas = self.replicas
        self.hosted = list(replicas.partitions())
        self.led = [partition for partition in self.hosted if partition.leads]
        traffic = [*replicas.traffic.items()]
        for number, (topic, counted) in enumerate(traffic, 1):
            copy = self.topics[topic] = TopicTraffic()
            copy.add(counted)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        for number, partition in enumerate(self.hosted, 1):
            self._add(partition)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        self.all_topics.add(replicas.traffic_of_deleted)
        for number, counted in enumerate(self.topics.values(), 1):
            self.all_topics.add(counted)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        yield from self._leave_out_unused()
        yield from self.cluster.counted(self.services.image, self.services.node_id)
        self.connections.update({listener.name: 0 for listener in listeners(self.services.config)})
        self.connections.update(connection.listener for connection in self.parts.connections)
        yield None

    def _leave_out_unused(self) -> Steps[None]:
        used = {topic for topic, counted in self.topics.items() if counted.has_counted}
        yield None
        for partition, ends_step in in_steps(self.hosted):
            if partition.log.log_end_offset > 0:
                used.add(partition.topic)  # the topic has records, perhaps of an earlier process
            if ends_step:
                yield None
        self.topics = {topic: counted for topic, counted in self.topics.items() if topic in used}
        for partition, ends_step in in_steps(self.hosted):
            if partition.topic in used:
                self.hosted_used.append(partition)
                if partition.leads:
                    self.led_used.append(partition)
            if ends_step:
                yield None

    def _add(self, partition: Partition) -> None:
        counted = self.topics.get(partition.topic)
        if counted is None:
            return  # skip a topic that is new, or was deleted, since the scrape began
        counted.fold(partition.log.producer_state.counters)
        if not partition.leads:
            return
        counted.messages_in += partition.messages_in_epoch
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        for broker_id, follower in partition.followers.items():
            # do not count deleted records as lag, because no follower fetches them
            behind = end - max(start, follower.log_end_offset or 0)
            self.lag[broker_id] = max(self.lag.get(broker_id, 0), behind)


def _open_files() -> int | None:
    """Count the open file descriptors; this takes some milliseconds if there are very many."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def _rooms(logs: LogManager) -> dict[str, tuple[int, int]]:
    rooms = {}
    for directory in logs.data_directories():
        with suppress(OSError):
            rooms[directory] = logs.room_in(directory)
    return rooms


def in_steps(things: Iterable[Partition]) -> Iterable[tuple[Partition, bool]]:
    """Yield each partition, and whether other work should run after it."""
    for number, thing in enumerate(things, 1):
        yield thing, number % PARTITIONS_PER_STEP == 0
