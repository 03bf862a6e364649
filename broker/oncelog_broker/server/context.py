"""What a request handler may reach: the parts of the broker, and who asks in which version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.markers import MarkerAppender
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.cache import MetadataCache
from oncelog_broker.metadata.image import ClusterImage
from oncelog_broker.metadata.producer_ids import ProducerIdManager
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.tasks import Deadlines, Tasks
from oncelog_broker.server.connection import BrokerConnection
from oncelog_broker.server.fetch_sessions import FetchSessions


@dataclass(slots=True)
class Services:
    """The parts of one broker that serve requests. `config` is replaced when dynamic settings change."""

    config: BrokerConfig
    clock: Clock
    tasks: Tasks
    deadlines: Deadlines
    logs: LogManager
    metadata: MetadataCache
    replicas: Replicas
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerAppender
    topics: TopicController
    producer_ids: ProducerIdManager
    fetch_sessions: FetchSessions
    create_topic: Callable[[str], Awaitable[None]]
    """Creates a topic with the broker's defaults (auto-creation, internal topics); see Broker.create_topic."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it now."""
        return self.metadata.image

    @property
    def node_id(self) -> int:
        return self.config.node_id


class RequestContext:
    """What a handler may know beside its request. Valid while the request is handled."""

    __slots__ = ("api_key", "client_id", "connection", "correlation_id", "services", "version")

    def __init__(
        self,
        services: Services,
        connection: BrokerConnection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.services = services
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def client(self) -> Client:
        """Who asks, as others may be shown."""
        return Client(self.client_id or "", f"/{self.connection.client_host}")
