"""The membership of this broker in its cluster: the registration, the controller role, and the image of the cluster.

Start: register -> claim the controller role if no broker has the role -> read the cluster image, which must not be
older than the registration, because in an older image a log of this broker could look like a stray log -> apply the
settings in the image -> keep a copy of the image on disk. Close: write a last copy of the cluster image, then stop
watching the metadata store. The registration ends with the session, which `storage` closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from oncelog_broker.assembly.settings import Settings
from oncelog_broker.assembly.storage import Storage
from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import leadership_keys, zookeeper_keys
from oncelog_broker.config.listeners import Listener
from oncelog_broker.config.topic_defaults import UNCLEAN_LEADER_ELECTION_ENABLE
from oncelog_broker.controller.balancing import balance_leaders
from oncelog_broker.controller.elector import Elector
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.metadata.membership.membership import ClusterMember
from oncelog_broker.metadata.membership.registration import Membership, check_store, register_broker
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.metadata_copy import MetadataCopier
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint
from oncelog_broker.runtime.host import Host
from oncelog_broker.server.replicas.log_end_calls import LogEndCalls

logger = logging.getLogger(__name__)

NOTE_SECONDS: Final = 60.0
"""Seconds between two writes of the id of the metadata store's last write (zxid) to the data directories."""
GIVE_UP_SECONDS: Final = 5.0
"""Seconds that a stopping broker may take to resign as controller; if this takes longer, the broker gives up, and the
end of its session releases the controller role.
"""


class ClusterMembership:
    """The registration, controller role and image of one broker. Created by `start`. Call `close` after the tasks of
    this broker's host (clock, disk, network and tasks) have ended.
    """

    def __init__(
        self,
        member: ClusterMember,
        elector: Elector,
        log_end_calls: LogEndCalls,
        metadata: MetadataCache,
        copier: MetadataCopier,
        *,
        is_clustered: bool,
    ) -> None:
        self._copier = copier
        self.member = member
        self.elector = elector
        self.log_end_calls = log_end_calls
        """The object that requests the log end offsets that an election needs; its requests wait until its method
        `begin` is called.
        """
        self.metadata = metadata
        self.is_clustered = is_clustered
        """Whether the cluster may have other brokers."""

    @classmethod
    async def start(
        cls, settings: Settings, storage: Storage, advertised: Sequence[Listener], host: Host
    ) -> ClusterMembership:
        """`advertised`: the listeners that the registration names.

        Raises BrokerIdInUse, EndpointInUse, NoCommonLevel, StoreUnavailable, MalformedPayload, OSError.
        """
        config, store = settings.current(), storage.store
        is_clustered = storage.data.kind.is_shared
        async with AsyncExitStack() as undo:
            registrar = _Registrar(settings, storage, advertised, host)
            is_strict = config[zookeeper_keys.BROKER_SESSION_LEASE] == "strict"
            member = ClusterMember(store, registrar.register, host, is_strict=is_strict)
            await member.join()
            log_end_calls = LogEndCalls(config.node_id, host.slices.pauses().here)
            elector = Elector(
                store,
                config.node_id,
                host,
                config[UNCLEAN_LEADER_ELECTION_ENABLE],
                log_end_calls if is_clustered else None,
            )
            undo.callback(elector.close)
            await elector.start()
            read = partial(MetadataCache.start, store, host.slices.pauses().here, registrar.check_store)
            metadata = await member.patiently(read)
            undo.push_async_callback(metadata.close)
            settings.follow(metadata.image)
            metadata.subscribe(settings.on_image)
            copier = MetadataCopier(metadata, storage.data.home, host)
            copier.start()
            host.tasks.every("note of the store", NOTE_SECONDS, storage.note_store)
            if is_clustered and config[leadership_keys.AUTO_LEADER_REBALANCE_ENABLE]:
                seconds = config[leadership_keys.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
                percentage = config[leadership_keys.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE]
                host.tasks.every("preferred leaders", seconds, partial(balance_leaders, elector.term, percentage))
            undo.pop_all()
        return cls(member, elector, log_end_calls, metadata, copier, is_clustered=is_clustered)

    async def give_up_control(self) -> None:
        """Resign as controller, if this broker has the controller role. A failed resignation is logged."""
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await self.elector.give_up()
        except TimeoutError:
            logger.warning("resigning as controller timed out; the role is released when the session is closed")

    async def close(self) -> None:
        """Write a last copy of the metadata, and stop following the cluster. This method may be called twice."""
        await self._copier.finish()
        await self.metadata.close()
        self.elector.close()


class _Registrar:
    """Registers this broker in the current session: at the start, and again after a session has expired."""

    def __init__(self, settings: Settings, storage: Storage, advertised: Sequence[Listener], host: Host) -> None:
        self._settings = settings
        self._storage = storage
        self._advertised = advertised
        self._host = host
        self._membership: Membership | None = None
        """The last registration of this broker."""

    async def register(self) -> Membership:
        """Register this broker in the cluster. Before the registration, the session's key is written to disk, so that
        the next process of this broker can end this session.
        """
        storage, store, predecessor = self._storage, self._storage.store, self._storage.predecessor
        node_id = self._settings.node_id
        await feature_levels.check_levels(store, node_id)
        if self._membership is None:
            await storage.before_registering()
        if store.session_key is not None:
            await asyncio.to_thread(predecessor.leave_trace)
        registration = BrokerRegistration(
            tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in self._advertised),
            rack=self._settings.current()[keys.RACK],
            timestamp_ms=self._host.clock.now_ms(),
            boot=predecessor.boot,
            is_log_tail_kept=predecessor.is_log_tail_kept,
            features=feature_levels.supported(),
        )
        membership = await register_broker(
            store,
            node_id,
            registration,
            storage.found_logs,
            # The session of a killed process expires after its timeout, and ZooKeeper reports the expiry up to one tick
            # later.
            wait_seconds=store.session_timeout * 1.5,
            process=storage.data.process,
            before=self._membership,
        )
        await storage.on_registered(membership)
        self._membership = membership
        return membership

    async def check_store(self) -> None:
        """Check that the metadata store is still the store in which this broker registered; called before the cluster
        image is read in a new session. Raises WrongStore, StoreUnavailable.
        """
        if self._membership is not None:
            await check_store(self._storage.store, self._settings.node_id, self._membership)
