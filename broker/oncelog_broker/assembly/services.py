"""One value with all parts of a broker that a handler or a metric may use, one field for each part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from oncelog_broker.assembly.coordinators import Coordinators
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.acls import AclController
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.elector import Elector
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.membership.producer_ids import ProducerIdManager
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.directory_moves import DirectoryMoves
from oncelog_broker.replication.isr_keeper import IsrKeeper
from oncelog_broker.replication.peers import Peers
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.replication.throttle import Throttles
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Deadlines, Tasks
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.server.groups.internal_topic_creations import InternalTopicCreations
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.kept.refused_batches import RefusedBatches
from oncelog_broker.telemetry.client_telemetry import ClientTelemetry
from oncelog_protocol.light_classes import dataclass


@dataclass(slots=True)
class Services:
    """The parts of one broker that serve requests. `config` is replaced when dynamic settings change.

    The type of a handler's context restricts which fields the handler can use. Handlers are divided into *rooms*, the
    folders of `server/`, each with its own `services.py`. The `services.py` of each room declares the fields that the
    room's handlers need.
    """

    config: BrokerConfig
    is_clustered: bool
    """Whether the cluster may have other brokers."""
    clock: Clock
    tasks: Tasks
    slices: Slices
    at_work: asyncio.Semaphore
    """A semaphore that limits the concurrent requests whose work takes several slices (queued.max.requests)."""
    deadlines: Deadlines
    logs: LogManager
    directory_moves: DirectoryMoves
    metadata: MetadataCache
    peers: Peers
    replicas: Replicas
    throttles: Throttles
    isr_keeper: IsrKeeper
    coordinators: Coordinators
    """The coordinators, which the first use of `groups`, `transactions`, `markers`, `shares` or `share_partitions`
    creates.
    """
    elector: Elector
    topics: TopicController
    configs: ConfigController
    acls: AclController
    producer_ids: ProducerIdManager
    fetch_sessions: FetchSessions
    telemetry: ClientTelemetry
    create_topic: Callable[[str], Awaitable[None]]
    """Async function that creates a topic without a CreateTopics request (auto-creation, internal topics), and returns
    when the topic can be used.
    """
    internal_topics: InternalTopicCreations
    refused_batches: RefusedBatches
    authorizer: StandardAuthorizer | None
    """The object that checks the rights of clients; None means that every client may do everything."""
    key_ages: Callable[[], Iterable[tuple[str, float]]]
    """Function that returns, for each listener that accepts signed tokens, the seconds since the listener's signing
    keys were last read (`Securities`).
    """

    @property
    def image(self) -> ClusterImage:
        """The present image of the cluster."""
        return self.metadata.image

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def groups(self) -> GroupCoordinator:
        return (self.coordinators.present or self.coordinators.running).groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return (self.coordinators.present or self.coordinators.running).transactions

    @property
    def markers(self) -> MarkerAppender:
        return (self.coordinators.present or self.coordinators.running).markers

    @property
    def shares(self) -> ShareCoordinator:
        return (self.coordinators.present or self.coordinators.running).shares

    @property
    def share_partitions(self) -> SharePartitions:
        return (self.coordinators.present or self.coordinators.running).share_partitions

    @property
    def loading(self) -> str | None:
        """An internal topic with partitions that are being loaded; None if no partition is being loaded."""
        return self.coordinators.loading


if TYPE_CHECKING:  # the type checker proves that `Services` has the fields of every room
    from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
    from oncelog_broker.coordinator.share.share_coordinator import ShareCoordinator
    from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
    from oncelog_broker.coordinator.transaction.markers import MarkerAppender
    from oncelog_broker.metrics.source import Observed
    from oncelog_broker.server.access.services import AccessServices
    from oncelog_broker.server.cluster.services import ClusterServices
    from oncelog_broker.server.groups.services import GroupServices
    from oncelog_broker.server.records.services import RecordServices
    from oncelog_broker.server.replicas.services import ReplicaServices
    from oncelog_broker.server.shares.services import ShareServices
    from oncelog_broker.server.topics.services import TopicServices
    from oncelog_broker.server.transactions.services import TransactionServices
    from oncelog_broker.sharing.share_partitions import SharePartitions

    def _rooms(services: Services) -> None:
        _access: AccessServices = services
        _cluster: ClusterServices = services
        _groups: GroupServices = services
        _records: RecordServices = services
        _replicas: ReplicaServices = services
        _shares: ShareServices = services
        _topics: TopicServices = services
        _transactions: TransactionServices = services
        _observed: Observed = services
