"""One broker: its parts (`assembly/`) started in order, and stopped in the reverse.

Start: lock the data directories -> open the metadata store -> compare the two, refuse or continue (`starting/`) -> open
the logs -> bind the listeners (port 0 becomes a real port) -> register, claim the controller role, elect leaders ->
read the cluster image, open the partitions that it assigns to this broker -> serve. Nothing is served before the image
is complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

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
from oncelog_broker.security.zookeeper_tls import tls_to_zookeeper
from oncelog_broker.upkeep.controlled_shutdown import ControlledShutdown, Patience
from oncelog_broker.web.http_service import HttpService

__all__ = ["Broker", "BrokerStartError"]

logger = logging.getLogger(__name__)

DOUBT_SECONDS: Final = 2.0
"""How long a stopping broker waits until its session is confirmed: a broker with the only in-sync copy of a partition
must not stop just because ZooKeeper answered late. Without ZooKeeper, the stop is delayed by this time."""


class Parts(NamedTuple):
    """The parts of a broker that serves."""

    advertised: tuple[Listener, ...]
    storage: Storage
    membership: ClusterMembership
    replication: Replication
    coordinators: Coordinators
    serving: Serving


class Broker:
    """One broker. `await start()`, then serve until `await stop()`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        store: StoreOpening | None = None,
        shared_listeners: Sequence[Listener] = (),
    ) -> None:
        """Clock, disk, network and tasks that are not given are the real ones; the metadata store is then the one that
        the configuration names. `store`: how it is opened; several brokers of one process may share a `MemoryTree`.
        `shared_listeners`: addresses on which all workers of this machine listen, if this broker is one of several."""
        self._host = Host.of(clock, disk, network)
        self._settings = Settings(config, self._host.clock)
        self._opening = store
        self._shared_listeners = shared_listeners
        self._undo = AsyncExitStack()
        """The steps of `stop`, in reverse order of the start."""
        self._parts: Parts | None = None
        self.failed = asyncio.Event()
        """Set when the broker can go on no more and must be stopped; the log says why. An unreachable ZooKeeper does
        not fail the broker: the gate shuts, and opens again when ZooKeeper is back."""
        self.http_service = HttpService()

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it is now."""
        return self._settings.current()

    @property
    def node_id(self) -> int:
        return self._settings.node_id

    @property
    def parts(self) -> Parts:
        """The parts of the broker, once it has started."""
        assert self._parts is not None, "the broker has not started"
        return self._parts

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """Where clients and other brokers reach this broker, once it has started."""
        return self.parts.advertised

    async def start(self) -> None:
        """Start serving. Raises BrokerStartError, InvalidConfig, OSError; the parts that had started are stopped."""
        try:
            self._parts = await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> Parts:
        """Start each part, and register how to stop it before the next one starts: `stop` goes in reverse order."""
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
        undo.push_async_callback(host.tasks.close)  # before the parts that the tasks use
        await sockets.learn_users(storage.store, membership.member, membership.metadata)

        says("logs are loaded")
        replication = await Replication.start(settings, storage, membership, sockets.securities, host)
        undo.push_async_callback(replication.close)
        undo.push_async_callback(host.tasks.close)  # fetchers move the high watermarks, written later
        undo.callback(replication.peers.close)
        undo.push_async_callback(sockets.close)  # while its requests can still ask other brokers
        undo.callback(replication.resign)  # before connections close: no append is acknowledged now

        coordinators = Coordinators.start(settings, membership, replication, host)
        undo.callback(coordinators.close)

        serving = await Serving.start(
            settings, storage, membership, replication, coordinators, sockets, self.http_service, host
        )
        return Parts(advertised, storage, membership, replication, coordinators, serving)

    async def leave(self) -> None:
        """Move the leadership of this broker's partitions, and the controller role, to other brokers, as far as
        possible. The caller does this before `stop`, while this broker still serves, and may cancel it. A step that
        fails is logged."""
        membership, replication = self.parts.membership, self.parts.replication
        if not membership.is_clustered or not await membership.member.is_back(DOUBT_SECONDS):
            return  # there is no other broker, or the others take over anyway
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
        """Stop serving, flush everything, and leave the mark of a clean shutdown. Harmless when it has stopped."""
        self.http_service.stop()
        await self._undo.aclose()

    def _on_session(self, state: SessionState) -> None:
        """The store of a broker alone is lost (a failed fsync, say): the leaders of partitions can no longer be known,
        so serving ends. Not called when the broker stops by itself."""
        if state is SessionState.LOST:
            logger.error("the metadata store is lost: the broker stops")
            self.failed.set()
