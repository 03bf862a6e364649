"""Starts to serve requests when all other parts are ready."""

from __future__ import annotations

import asyncio

from oncelog_broker.assembly.coordinators import Coordinators
from oncelog_broker.assembly.membership import ClusterMembership
from oncelog_broker.assembly.replication import Replication
from oncelog_broker.assembly.services import Services
from oncelog_broker.assembly.settings import Settings
from oncelog_broker.assembly.socket_server import SocketServer
from oncelog_broker.assembly.storage import Storage
from oncelog_broker.config import broker_keys as keys
from oncelog_broker.controller.acls import AclController
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.host import Host
from oncelog_broker.security.authorizer.configured import configured_authorizer
from oncelog_broker.security.weak_settings import warn_of_weak_settings
from oncelog_broker.server.dispatch.dispatcher import Dispatcher, follow_quotas
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_broker.server.groups.internal_topic_creations import InternalTopicCreations
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.kept.refused_batches import RefusedBatches
from oncelog_broker.server.topics.topic_creation import TopicCreation
from oncelog_broker.telemetry.client_telemetry import ClientTelemetry
from oncelog_broker.web.http_service import HttpService


class Serving:
    """Serves requests with all other parts. Created by `start`. There is no `close`, because serving ends with the
    listeners and tasks."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        membership: ClusterMembership,
        replication: Replication,
        coordinators: Coordinators,
        socket_server: SocketServer,
        host: Host,
    ) -> None:
        config, store = settings.current(), storage.store
        creation = TopicCreation(
            settings.current,
            membership.metadata,
            replication.replicas,
            membership.elector.topics,
            replication.peers,
            may_degrade=not membership.is_clustered,  # an embedded store belongs to this broker alone
        )
        self._settings = settings
        self._services = Services(
            config=config,
            is_clustered=membership.is_clustered,
            clock=host.clock,
            tasks=host.tasks,
            slices=host.slices,
            at_work=asyncio.Semaphore(config[keys.QUEUED_MAX_REQUESTS]),
            deadlines=host.deadlines,
            logs=storage.logs,
            directory_moves=replication.directory_moves,
            metadata=membership.metadata,
            peers=replication.peers,
            replicas=replication.replicas,
            throttles=settings.throttles,
            isr_keeper=replication.isr_keeper,
            coordinators=coordinators,
            elector=membership.elector,
            topics=membership.elector.topics,
            configs=ConfigController(store),
            acls=AclController(store),
            producer_ids=replication.producer_ids,
            fetch_sessions=FetchSessions(config[keys.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]),
            telemetry=ClientTelemetry(membership.metadata.image),
            create_topic=creation.create,
            internal_topics=InternalTopicCreations(
                lambda topic: creation.create_as_asked(
                    topic.name, topic.partitions, topic.replication_factor, topic.configs
                ),
                host.clock,
                host.tasks,
            ),
            refused_batches=RefusedBatches(),
            authorizer=configured_authorizer(config, membership.metadata),
            key_ages=socket_server.securities.key_ages,
        )

    @classmethod
    async def start(
        cls,
        settings: Settings,
        storage: Storage,
        membership: ClusterMembership,
        replication: Replication,
        coordinators: Coordinators,
        socket_server: SocketServer,
        http_service: HttpService,
        host: Host,
    ) -> Serving:
        """Begin to accept connections. Raises InvalidConfig, OSError."""
        made, metadata = (
            cls(settings, storage, membership, replication, coordinators, socket_server, host),
            membership.metadata,
        )
        services = made._services
        metadata.subscribe(made._on_image)
        warn_of_weak_settings(services.config, storage.store_file(metadata.image))
        dispatcher = Dispatcher(services, http_service.times)
        throttling = Throttling(services.config, host.clock, is_observed=http_service.times is not None)
        follow_quotas(metadata, throttling, dispatcher, socket_server.connections)
        await socket_server.serve(dispatcher)
        http_service.begin(services, socket_server.connections, dispatcher)
        return made

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self._services.config = self._settings.current()
        self._services.telemetry.follow(new)
