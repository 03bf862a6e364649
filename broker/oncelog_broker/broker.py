"""One broker: starts its parts (`assembly/`) in order, and stops them in reverse order.

Start: lock the data directories -> open the metadata store -> compare the directories with the store, refuse the start
or continue (`starting/`) -> open the logs -> bind the listeners (port 0 becomes an actual port) -> register, claim the
controller role, elect leaders -> read the cluster image, open the partitions that the image assigns to this broker ->
serve. No request is served before the cluster image is complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from oncelog_broker.assembly.coordinators import Coordinators
from oncelog_broker.assembly.membership import ClusterMembership
from oncelog_broker.assembly.replication import Replication
from oncelog_broker.assembly.serving import Serving
from oncelog_broker.assembly.settings import Settings
from oncelog_broker.assembly.socket_server import SocketServer
from oncelog_broker.assembly.storage import BrokerStartError, Storage
from oncelog_broker.config import leadership_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.http_keys import HTTP_LISTENER
from oncelog_broker.config.listeners import Listener
from oncelog_broker.metadata.opening import StoreOpening, configured_opening
from oncelog_broker.metadata.stores.store import SessionState
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.network import Network
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.zookeeper_tls import tls_to_zookeeper
from oncelog_broker.upkeep.controlled_shutdown import ControlledShutdown, Patience
from oncelog_broker.web.http_service import HttpService
from oncelog_protocol.light_classes import NamedTuple

__all__ = ["Broker", "BrokerStartError"]

logger = logging.getLogger(__name__)

DOUBT_SECONDS: Final = 2.0
"""Seconds for which a stopping broker waits for a late response of ZooKeeper that confirms its session, because without
a session it cannot hand over its leaderships. If ZooKeeper is unreachable, the stop is delayed by this number of
seconds.
"""


class Parts(NamedTuple):
    """The parts of a started broker; package `assembly` has the class of each part."""

    advertised: tuple[Listener, ...]
    storage: Storage
    membership: ClusterMembership
    replication: Replication
    coordinators: Coordinators
    serving: Serving


class Broker:
    """One broker, which serves from `await start()` until `await stop()`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        store: StoreOpening | None = None,
        tasks: Tasks | None = None,
        shared_listeners: Sequence[Listener] = (),
    ) -> None:
        """`clock`, `disk`, `network`: None means the clock, disk or network of the operating system. `store`: opens the
        metadata store; None means the store that the configuration names. Several brokers of one process may share a
        `MemoryTree`. `tasks`: owns the background work; None means a new owner. `shared_listeners`: addresses on which
        all workers of this machine listen; empty if this broker is not a worker.
        """
        self._host = Host.of(clock, disk, network, tasks)
        self._settings = Settings(config, self._host.clock)
        self._opening = store
        self._shared_listeners = shared_listeners
        self._undo = AsyncExitStack()
        """The steps that `stop` runs, in reverse order of the start."""
        self._parts: Parts | None = None
        self.failed = asyncio.Event()
        """An event that is set when the broker cannot continue and must be stopped; the reason is logged. This event is
        not set while ZooKeeper is unreachable; the broker then only stops leading until ZooKeeper is reachable again.
        """
        self.http_service = HttpService()

    @property
    def config(self) -> BrokerConfig:
        """The present configuration of this broker."""
        return self._settings.current()

    @property
    def node_id(self) -> int:
        return self._settings.node_id

    @property
    def parts(self) -> Parts:
        """The parts of the broker, available after `start`."""
        assert self._parts is not None, "the broker has not started"
        return self._parts

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """The listeners at which clients and other brokers can connect to this broker, available after `start`."""
        return self.parts.advertised

    async def start(self) -> None:
        """Start serving. Raises BrokerStartError, InvalidConfig, OSError; the parts that had started are stopped."""
        try:
            self._parts = await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> Parts:
        """Start the parts of the broker. Before the next part starts, the stop of the previous part is registered, so
        that `stop` runs in reverse order."""
        settings, host, undo, says = self._settings, self._host, self._undo, self.http_service.report_doing
        config = settings.current()
        opening = self._opening or configured_opening(config, tls_to_zookeeper(config))
        sockets = SocketServer(settings, host, is_clustered=opening.kind.is_shared, shared=self._shared_listeners)
        http = config[HTTP_LISTENER]
        if http is not None:
            await self.http_service.listen(http, settings.node_id, host)
            undo.push_async_callback(self.http_service.close)

        storage = await Storage.start(settings, opening, host, says)
        undo.push_async_callback(storage.close)
        if not opening.kind.is_shared:
            undo.callback(storage.store.watch_session(self._on_session))

        undo.push_async_callback(sockets.close)
        advertised = await sockets.bind()

        says("the broker joins its cluster")
        undo.push_async_callback(host.tasks.close)
        membership = await ClusterMembership.start(settings, storage, advertised, host)
        undo.push_async_callback(membership.close)
        # Tasks end before the parts that the tasks use.
        undo.push_async_callback(host.tasks.close)
        await sockets.learn_users(storage.store, membership.member, membership.metadata)

        says("logs are loaded")
        replication = await Replication.start(settings, storage, membership, sockets.securities, host)
        undo.push_async_callback(replication.close)
        # Fetchers must end before the high watermarks are written, because fetchers move the high watermarks.
        undo.push_async_callback(host.tasks.close)
        undo.callback(replication.peers.close)
        # Connections close before the peers, because handlers may still send requests to other brokers.
        undo.push_async_callback(sockets.close)
        # Leadership ends before connections close, so that no further append is acknowledged.
        undo.callback(replication.resign)

        coordinators = Coordinators.start(settings, membership, replication, host)
        undo.callback(coordinators.close)

        serving = await Serving.start(
            settings, storage, membership, replication, coordinators, sockets, self.http_service, host
        )
        return Parts(advertised, storage, membership, replication, coordinators, serving)

    async def leave(self) -> None:
        """Move this broker's leaderships and the controller role to other brokers, as far as possible. Call this method
        before `stop`, while this broker still serves; the call may be cancelled. A failed step is logged."""
        membership, replication = self.parts.membership, self.parts.replication
        if not membership.is_clustered or not await membership.member.is_back(DOUBT_SECONDS):
            return  # no other broker exists, or other brokers already lead this broker's partitions
        self.http_service.report_doing("the broker stops: others take over")
        config = self.config
        if config[leadership_keys.CONTROLLED_SHUTDOWN_ENABLE]:
            replication.replicas.leave()
            patience = Patience(
                config[leadership_keys.CONTROLLED_SHUTDOWN_MAX_RETRIES],
                config[leadership_keys.CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS] / 1000,
            )
            ask = replication.controller_calls.controlled_shutdown
            await ControlledShutdown(self.node_id, membership.metadata, ask, patience).prepare()
        await membership.give_up_control()

    async def stop(self) -> None:
        """Stop serving, flush everything, and write the mark of a clean shutdown. Has no effect on a stopped broker."""
        self.http_service.stop()
        await self._undo.aclose()

    def _on_session(self, state: SessionState) -> None:
        """Stop a broker without a cluster when its metadata store fails, for example at an fsync, because the broker
        can then no longer determine the leaders of partitions. Not called when the broker closes the store itself.
        """
        if state is SessionState.LOST:
            logger.error("the metadata store is lost: the broker stops")
            self.failed.set()
