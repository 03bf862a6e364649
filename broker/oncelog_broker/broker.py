"""The composition root: one broker, all its parts put together, started in order and stopped in reverse.

Start: lock the data directories -> open the metadata store -> compare the two, refuse or go on (`starting/`) -> open
the logs -> bind the listeners (port 0 becomes a real port) -> register, claim the controller's part, elect leaders ->
read the cluster image, open what it gives us -> serve. Nothing is served before the image is complete.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import leadership_keys, security_keys, throttle_keys, zookeeper_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.effectless_warnings import EffectlessWarnings
from oncelog_broker.config.http_keys import HTTP_LISTENER
from oncelog_broker.config.listeners import (
    Listener,
    advertised_listeners,
    inter_broker_listener,
    listeners,
    with_bound_ports,
)
from oncelog_broker.config.resolve import resolve_topic
from oncelog_broker.config.stored import readable_broker_overrides
from oncelog_broker.config.topic_defaults import UNCLEAN_LEADER_ELECTION_ENABLE
from oncelog_broker.controller.acls import AclController
from oncelog_broker.controller.balancing import balance_leaders
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.elector import Elector
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.coordinator.internal_topics import needed_settings, tell_deleted_by_age
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.marker_sender import MarkerSender
from oncelog_broker.coordinator.transaction.markers import MarkerAppender
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.data_directory import UNKNOWN_BROKER_EPOCH, make_data_directory
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata import feature_levels
from oncelog_broker.metadata.cache import MetadataCache
from oncelog_broker.metadata.image import NO_LEADER, ClusterImage
from oncelog_broker.metadata.incarnation import Predecessor
from oncelog_broker.metadata.login_key import login_key
from oncelog_broker.metadata.membership import ClusterMember, patiently
from oncelog_broker.metadata.metadata_copy import MetadataCopier
from oncelog_broker.metadata.opening import METADATA_FILE, StoreOpening, configured_opening
from oncelog_broker.metadata.payloads import BrokerRegistration, Endpoint
from oncelog_broker.metadata.producer_ids import MAX_KNOWN_ID, ProducerIdManager
from oncelog_broker.metadata.registration import Membership, check_store, register_broker
from oncelog_broker.metadata.store import MetadataStore, SessionState
from oncelog_broker.replication.epoch_raiser import EpochRaiser
from oncelog_broker.replication.fetch_plan import FetchLimits
from oncelog_broker.replication.fetcher import Fetchers
from oncelog_broker.replication.isr_keeper import IsrKeeper
from oncelog_broker.replication.lost_epochs import epochs_above_store
from oncelog_broker.replication.peers import BrokerPeers
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.replication.returning_logs import ReturningLogs
from oncelog_broker.replication.strays import set_strays_aside
from oncelog_broker.replication.throttle import Throttles
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.descriptors import SPARES, descriptor_limit, divide
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.mappings import MAPPINGS
from oncelog_broker.runtime.network import Network
from oncelog_broker.runtime.open_files import OPEN_FILES
from oncelog_broker.runtime.private_files import readable_by_others
from oncelog_broker.runtime.turns import TurnBudget
from oncelog_broker.security.authorizer.configured import configured_authorizer
from oncelog_broker.security.first_users import make_first_users, parse_first_users
from oncelog_broker.security.securities import Securities
from oncelog_broker.security.weak_settings import StoreFile, warn_of_weak_settings
from oncelog_broker.security.zookeeper_tls import tls_to_zookeeper
from oncelog_broker.server.connection_rates import ConnectionRates
from oncelog_broker.server.connections import Connections
from oncelog_broker.server.context import Services
from oncelog_broker.server.controller_calls import ControllerCalls
from oncelog_broker.server.dispatch import Dispatcher, follow_quotas
from oncelog_broker.server.fetch_sessions import FetchSessions
from oncelog_broker.server.limits import Limits
from oncelog_broker.server.listener import SWEEP_SECONDS, Listeners
from oncelog_broker.server.log_end_calls import LogEndCalls
from oncelog_broker.server.throttling import Throttling
from oncelog_broker.server.topic_creation import TopicCreation
from oncelog_broker.starting.data_start import DataStart
from oncelog_broker.upkeep.cleaning import LogCleaner
from oncelog_broker.upkeep.departure import Departure, Patience
from oncelog_broker.upkeep.maintenance import LogMaintenance
from oncelog_broker.web.telling import Telling
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS: Final = 5.0
"""How long a broker that stops may take to give up being controller; its session's end does the same."""
DOUBT_SECONDS: Final = 2.0
"""How long a broker that is told to stop waits for its session to be confirmed: who leads the only copy in sync must
not go because ZooKeeper answered late just then. Without ZooKeeper, it stops so much later."""
NOTE_SECONDS: Final = 60.0
"""Between two notes of the metadata store's last write in the data directories."""
KEYS_OF_LOGS: Final = (
    keys.IDEMPOTENCE_DUPLICATE_CLASSIFICATION,
    keys.IDEMPOTENCE_UNKNOWN_PRODUCER,
    keys.MESSAGE_MAX_DECOMPRESSED_BYTES,
)
"""What every log must know of the broker's own settings, beside those that topics inherit."""


class BrokerStartError(Exception):
    """The broker cannot start; the message says why and what to do."""


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
    ) -> None:
        """`store`: how the metadata store is opened. None: as the configuration says."""
        self.config = config
        self._opening = store
        self.host = Host.of(clock, disk, network)
        self.connections = Connections(
            Limits(
                max_connections=config[keys.MAX_CONNECTIONS],
                max_connections_per_ip=config[keys.MAX_CONNECTIONS_PER_IP],
                request_max_bytes=config[keys.SOCKET_REQUEST_MAX_BYTES],
                queued_max_request_bytes=config[keys.QUEUED_MAX_REQUEST_BYTES],
                queued_max_response_bytes=config[keys.QUEUED_MAX_RESPONSE_BYTES],
                idle_seconds=config[keys.CONNECTIONS_MAX_IDLE_MS] / 1000,
                send_buffer_bytes=config[keys.SOCKET_SEND_BUFFER_BYTES],
                receive_buffer_bytes=config[keys.SOCKET_RECEIVE_BUFFER_BYTES],
            ),
            TurnBudget(self.host.clock.monotonic),
            ConnectionRates(config, self.host.clock),
        )
        self._listeners = Listeners(self.host, self.connections)
        self._services: Services | None = None
        self._undo = AsyncExitStack()
        """What `stop` does, in reverse order of the start."""
        self._throttles = Throttles()
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self._effectless_warnings = EffectlessWarnings()
        self.advertised: tuple[Listener, ...] = ()
        self._data: DataStart
        self._store: MetadataStore
        self.logs: LogManager
        self.member: ClusterMember
        self.metadata: MetadataCache
        self.peers: BrokerPeers
        self.replicas: Replicas
        self.groups: GroupCoordinator
        self.markers: MarkerAppender
        self.transactions: TransactionCoordinator
        self.elector: Elector
        self.topics: TopicController
        self.producer_ids: ProducerIdManager
        self._controller_calls: ControllerCalls
        self.failed = asyncio.Event()
        """Set when the broker can go on no more and must be stopped; the log says why. That ZooKeeper is away is no
        reason: the gate shuts, and opens again when it is back."""
        self._stopping = False
        self.telling = Telling()

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it now."""
        return self.metadata.image

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def _is_clustered(self) -> bool:
        """Whether there may be other brokers."""
        if self._opening is not None:
            return self._opening.kind.is_shared
        return self.config[zookeeper_keys.ZOOKEEPER_CONNECT] is not None

    def _current_config(self) -> BrokerConfig:
        """For those whose settings may change while they run."""
        return self.config

    async def start(self) -> None:
        """Start serving. Raises BrokerStartError, InvalidConfig, OSError; what was begun is undone."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def leave(self) -> None:
        """Before `stop`, and while serving: have others lead what this broker leads, as far as they can, and another
        one be the controller. May be cancelled. What cannot be done is logged."""
        if not self._is_clustered or not await self.member.is_back(DOUBT_SECONDS):
            return  # nobody else is there, or whoever is takes over anyway
        self.telling.does("the broker stops: others take over")
        if self.config[leadership_keys.CONTROLLED_SHUTDOWN_ENABLE]:
            self.replicas.leave()
            patience = Patience(
                self.config[leadership_keys.CONTROLLED_SHUTDOWN_MAX_RETRIES],
                self.config[leadership_keys.CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS] / 1000,
            )
            ask = self._controller_calls.controlled_shutdown
            await Departure(self.node_id, self.metadata, ask, patience).prepare()
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await self.elector.give_up()
        except TimeoutError:
            logger.warning("the part of controller goes with the session")

    async def stop(self) -> None:
        """Stop serving, flush everything, and leave the mark of a clean shutdown. Harmless when it has stopped."""
        self._stopping = True
        self.telling.stop()
        await self._undo.aclose()

    async def _start(self) -> None:
        self._divide_descriptors()
        advertised = advertised_listeners(self.config, socket.gethostname())
        brokers_listener = inter_broker_listener(self.config)
        securities = Securities(self.config, lambda: self.image, is_clustered=self._is_clustered)
        http = self.config[HTTP_LISTENER]
        if http is not None:
            await self.telling.listen(http, self.node_id, self.host)
            self._undo.push_async_callback(self.telling.close)
        store = await self._open_data()
        predecessor = Predecessor(
            store,
            self.host.disk,
            self._data.trace_directory,
            was_closed_cleanly=self.logs.was_closed_cleanly,
            is_whole=not self._data.verdict.is_unsure,
        )
        await predecessor.end_session()
        self._undo.push_async_callback(self._listeners.close)
        bound = {}
        for listener in listeners(self.config):
            bound[listener.name] = await self._listeners.listen(listener, securities[listener.name])
        self.advertised = with_bound_ports(advertised, bound)
        self._undo.push_async_callback(self.host.tasks.close)
        compare = partial(epochs_above_store, store, tuple(self.logs.logs()), self.host.slices.pauses().here)
        epochs_above = await patiently(compare, store.session_timeout, self.host.clock)
        self.telling.does("the broker joins its cluster")
        may_lack_ends = not predecessor.is_log_tail_kept
        await self._join(store, predecessor)
        securities.login_key = await login_key(store)
        first_users = parse_first_users(self.config[security_keys.SCRAM_FIRST_USERS])
        await self.member.patiently(partial(make_first_users, store, first_users))
        await securities.follow(self.host.tasks)
        self._undo.push_async_callback(self.metadata.close)
        copier = MetadataCopier(self.metadata, self._data.home, self.host)
        self._undo.push_async_callback(copier.finish)
        self._undo.push_async_callback(self.host.tasks.close)
        copier.start()
        self.peers = BrokerPeers(
            self.node_id,
            brokers_listener,
            self.metadata,
            self.host,
            security=securities[brokers_listener].towards_brokers,
        )
        self._undo.callback(self.peers.close)
        self._undo.push_async_callback(self._listeners.close)
        self.producer_ids = ProducerIdManager(store, self.node_id, is_alone=not self._is_clustered)
        await self._raise_producer_ids()
        self._follow_broker_configs(self.image)
        expected = {
            (topic.name, index): len(state.replicas) > 1
            for topic, index, state in self.image.partitions_on(self.node_id)
            # What nobody counts on, a follower that is not in sync, begins anew and fetches what it lost.
            if state.leader == self.node_id or self.node_id in state.isr or state.leader == NO_LEADER
        }
        lost = sorted(each.path for each in self._data.verdict.lost.values())
        self.logs.note_missing(expected, lost, replicated=expected.__getitem__)
        keeps = self.member.is_new or self._data.keeps_left_over
        set_strays_aside(self.logs, self.image, self.node_id, self._data.described_store, keeps_left_over=keeps)
        await self._data.strays_are_aside()
        self.telling.does("logs are loaded")
        self.replicas = Replicas(
            self.node_id,
            self.logs,
            self.log_config,
            ClusterImage(""),
            self.host.tasks,
            self.host.clock.monotonic,
            self.member.broker_epoch,
            self.member.may_lead if self._is_clustered else None,
            self.host.slices.pauses(0.0).here,
        )
        if may_lack_ends:
            self.replicas.doubt_logs()
        self.replicas.lost_epochs.expect(epochs_above)
        is_store_older = self.producer_ids.was_behind or self._data.verdict.has_older_store
        if is_store_older:
            self.replicas.lost_epochs.expect(
                {(log.topic, log.partition): log.latest_epoch for log in self.logs.logs() if log.latest_epoch >= 0}
            )
        self._controller_calls = ControllerCalls(
            self.node_id, self.metadata, self.peers, self.elector, self.host.slices
        )
        tell_deleted_by_age(None, self.image)
        isr_keeper = self._replicate()
        epochs = EpochRaiser(
            self.node_id,
            self.replicas,
            self.metadata,
            self._controller_calls.alter_partition,
            self.host,
        )
        self.replicas.on_image(ClusterImage(""), self.image)
        self._log_end_calls.begin(self.peers, self.replicas)
        self._undo.callback(self.replicas.close)
        self.replicas.on_opened = self._on_opened
        self.groups = GroupCoordinator(self.config, self.replicas, self.host)
        self._undo.callback(self.groups.close)
        self.groups.on_image(ClusterImage(""), self.image)
        self.markers = MarkerAppender(self.replicas, self.groups.runtime, self.metadata)
        self.transactions = TransactionCoordinator(
            self.config,
            self.replicas,
            MarkerSender(
                self.node_id,
                self.metadata,
                self.markers,
                self.peers,
                self.host,
            ),
            RemoteCoordinators(self.peers, self.host.tasks),
            self.producer_ids,
            self.host,
        )
        self._undo.callback(self.transactions.close)
        self.transactions.on_image(self.image)
        self.metadata.subscribe(self._on_image)
        await self.replicas.until_opened()
        await self._forget_lost_directories()
        if is_store_older:
            epochs.doubt_all()
        if not self._is_clustered:  # others may have to be asked, and need this broker first
            await epochs.until_raised(self._until_current)
        epochs.start()
        self.member.follow()
        LogMaintenance(self._current_config, self.logs, self.replicas, self.host).start()
        LogCleaner(self._current_config, self.logs, self.replicas, self.host).start()
        self.groups.start()
        self.transactions.start()
        if self._is_clustered and self.config[leadership_keys.AUTO_LEADER_REBALANCE_ENABLE]:
            seconds = self.config[leadership_keys.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            percentage = self.config[leadership_keys.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE]
            self.host.tasks.every("preferred leaders", seconds, partial(balance_leaders, self.elector.term, percentage))
        self.host.tasks.every("connection sweep", SWEEP_SECONDS, self._listeners.sweep)
        self.host.tasks.every("note of the store", NOTE_SECONDS, self._note_store)
        self._services = Services(
            config=self.config,
            is_clustered=self._is_clustered,
            clock=self.host.clock,
            tasks=self.host.tasks,
            slices=self.host.slices,
            at_work=asyncio.Semaphore(self.config[keys.QUEUED_MAX_REQUESTS]),
            deadlines=self.host.deadlines,
            logs=self.logs,
            metadata=self.metadata,
            peers=self.peers,
            replicas=self.replicas,
            throttles=self._throttles,
            isr_keeper=isr_keeper,
            groups=self.groups,
            transactions=self.transactions,
            markers=self.markers,
            elector=self.elector,
            topics=self.topics,
            configs=ConfigController(store),
            acls=AclController(store),
            producer_ids=self.producer_ids,
            fetch_sessions=FetchSessions(self.config[keys.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]),
            create_topic=self._topic_creation().create,
            authorizer=configured_authorizer(self.config, self.metadata),
            key_ages=securities.key_ages,
        )
        warn_of_weak_settings(self.config, self._store_file())
        dispatcher = Dispatcher(self._services, self.telling.times)
        throttling = Throttling(self.config, self.host.clock, is_observed=self.telling.times is not None)
        follow_quotas(self.metadata, throttling, dispatcher, self.connections)
        await self._listeners.start(dispatcher)
        self.telling.begin(self._services, self.connections, dispatcher)

    def _store_file(self) -> StoreFile | None:
        """The embedded metadata store, whose mode is checked at the start; None with ZooKeeper."""
        if self._is_clustered:
            return None
        path = os.path.join(self._data.home, METADATA_FILE)
        return StoreFile(path, readable_by_others(path), any(self.image.user_configs.values()))

    async def _until_current(self) -> None:
        """Return when the replicas have taken over the store's present state."""
        await self.metadata.until_current()
        await self.replicas.until_settled()

    async def _raise_producer_ids(self) -> None:
        """Before anything is served, and before logs of no topic are set aside: they may come back (S75)."""
        pauses = self.host.slices.pauses()
        for log in self.logs.logs():
            self.producer_ids.note_known(log.producers.state.highest_id(MAX_KNOWN_ID))
            await pauses.here()
        await self.member.patiently(self.producer_ids.raise_block)

    def _replicate(self) -> IsrKeeper:
        """Fetch what is followed, and see to the ISR of what is led."""
        self.replicas.fetching = Fetchers(
            self.node_id,
            self.peers,
            self.metadata,
            lambda: FetchLimits.of(self.config),
            self.host,
            self.replicas.on_truncated,
            self.logs.checkpoint_log_start_offsets,
            self._throttles.follower,
        )
        keeper = IsrKeeper(
            self.node_id,
            self.replicas,
            self.metadata,
            self._controller_calls.alter_partition,
            lambda: self.config[keys.REPLICA_LAG_TIME_MAX_MS] / 1000,
            self.host,
        )
        keeper.start()
        ReturningLogs(self.replicas, keeper.ask_for_new_epochs, self.host).start()
        return keeper

    def _topic_creation(self) -> TopicCreation:
        # An embedded store has no more brokers than this one.
        return TopicCreation(
            self._current_config,
            self.metadata,
            self.replicas,
            self.topics,
            self.peers,
            may_degrade=not self._is_clustered,
        )

    def _divide_descriptors(self) -> None:
        """Before the first log is opened: who may have how many."""
        SPARES.refill()
        limit, max_connections = descriptor_limit(), self.config[keys.MAX_CONNECTIONS]
        division = divide(limit, max_connections)
        self.connections.limits.connection_descriptors = division.connections
        OPEN_FILES.capacity, MAPPINGS.limit = division.files, division.mappings
        if division.connections < max_connections // 2:  # a few less surprise nobody
            logger.warning(
                "the limit of open files is much lower than max.connections needs",
                extra={"limit": limit, "connections": division.connections},
            )

    async def _open_data(self) -> MetadataStore:
        """Lock the data directories, open the metadata store, compare the two, open the logs. What the start is refused
        for has changed nothing."""
        for path in map(os.path.abspath, self.config.log_dirs):
            try:
                make_data_directory(self.host.disk, path)
            except OSError as error:
                raise BrokerStartError(
                    f"the data directory {path} cannot be made: {error.strerror}. "
                    "Choose another with --data or log.dirs."
                ) from error
        self.telling.does("the data directories are locked")
        opening = self._opening or configured_opening(self.config, tls_to_zookeeper(self.config))
        self._data = DataStart.lock(self.config, opening, self.host)
        self._undo.callback(self._data.unlock)
        self.telling.does("the metadata store is opened")
        store = await self._data.open_store()
        self._undo.push_async_callback(store.close)
        self._store = store
        if not self._is_clustered:
            store.watch_session(self._on_session)
        self.telling.does("logs are found")
        open_locked = partial(
            LogManager.open_locked,
            node_id=self.node_id,
            cluster_id=await self._data.cluster_id(store),
            config_of=lambda topic: self.log_config({}),
            disk=self.host.disk,
            clock=self.host.clock,
        )
        self.logs = self._data.open_logs(open_locked)
        self._undo.push_async_callback(self._close_logs)
        return store

    async def _forget_lost_directories(self) -> None:
        """When every partition has a log here, this broker lacks nothing that lies in a directory that is gone."""
        hosted = {(topic.name, index) for topic, index, _ in self.image.partitions_on(self.node_id)}
        if hosted.isdisjoint(self.logs.failures) and hosted <= set(self.logs.partitions()):
            await self._data.forget_lost()

    def _needed_settings(self, topic: str) -> Mapping[str, str]:
        """What an internal topic needs as settings of its own."""
        return needed_settings(topic, self.config)

    async def _join(self, store: MetadataStore, predecessor: Predecessor) -> None:
        """Register in the cluster, become its controller if there is none, read the image."""
        is_strict = self.config[zookeeper_keys.BROKER_SESSION_LEASE] == "strict"
        register = partial(self._register, store, predecessor)
        self.member = ClusterMember(store, register, self.host, is_strict=is_strict)
        await self.member.join()
        self._log_end_calls = LogEndCalls(self.node_id, self.host.slices.pauses().here)
        self.elector = Elector(
            store,
            self.node_id,
            self.host,
            self.config[UNCLEAN_LEADER_ELECTION_ENABLE],
            self._log_end_calls if self._is_clustered else None,
        )
        self._undo.callback(self.elector.close)
        self.topics = TopicController(store, self.elector.term)
        self.elector.on_term = self.topics.finish_deletions
        await self.elector.start()
        # Only now: what is read after a write of our own is never older than that, so no log is taken for a stray.
        start = partial(MetadataCache.start, store, self.host.slices.pauses().here, partial(self._check_store, store))
        self.metadata = await self.member.patiently(start)

        async def on_resumed() -> None:
            await store.sync()
            await self.metadata.until_current()
            await self.replicas.until_settled()

        async def on_rejoined(membership: Membership) -> None:
            await self.replicas.on_registered(membership.broker_epoch)
            await self.metadata.wait_for(lambda image: _epoch_of(image, self.node_id) == membership.broker_epoch)
            await self.metadata.until_current()
            await self.replicas.until_settled()

        self.member.on_resumed, self.member.on_rejoined = on_resumed, on_rejoined

    async def _register(self, store: MetadataStore, predecessor: Predecessor) -> Membership:
        """In the session that runs, which our successor must be able to end before it makes anything."""
        await feature_levels.check_levels(store, self.node_id)
        before = self.member.membership
        if before is None:
            await self._data.adopt_unknown(store, self.logs, self._needed_settings)
            await self._data.note_pending()
        if store.session_key is not None:
            await asyncio.to_thread(predecessor.leave_trace)
        registration = BrokerRegistration(
            tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in self.advertised),
            rack=self.config[keys.RACK],
            timestamp_ms=self.host.clock.now_ms(),
            boot=predecessor.boot,
            is_log_tail_kept=predecessor.is_log_tail_kept,
            features=feature_levels.supported(),
        )
        # A session that nobody has ended is over within its timeout, and told a tick later.
        wait_seconds = store.session_timeout * 1.5
        membership = await register_broker(
            store,
            self.node_id,
            registration,
            lambda: self._data.found_logs(self.logs, self._needed_settings),
            wait_seconds=wait_seconds,
            process=self._data.process,
            before=before,
        )
        await self._data.note_registered(membership, store.last_zxid)
        await asyncio.to_thread(predecessor.on_registered)
        return membership

    async def _check_store(self, store: MetadataStore) -> None:
        """Before the image is read in another session. WrongStore, StoreUnavailable."""
        if self.member.membership is not None:
            await check_store(store, self.node_id, self.member.membership)

    async def _note_store(self) -> None:
        """Note what the metadata store had written last: a start that finds less finds an older store."""
        await self._data.note_seen(self._store.last_zxid)

    def _on_session(self, state: SessionState) -> None:
        """The store is lost (a failed fsync, say): who leads what can no longer be known, so serving ends."""
        if state is SessionState.LOST and not self._stopping:
            logger.error("the metadata store is lost: the broker stops")
            self.failed.set()

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Follow the cluster: first its settings, then its topics, then what is coordinated through them."""
        if new.broker_configs is not old.broker_configs:
            self._follow_broker_configs(new)
            self.replicas.reconfigure_all()
            if self._services is not None:
                self._services.config = self.config
        tell_deleted_by_age(old, new)
        self.peers.on_image(new)
        self.replicas.on_image(old, new)
        self.groups.on_image(old, new)
        self.transactions.on_image(new)

    def _on_opened(self, topics: Collection[str]) -> None:
        """Partitions that the image gave us have got their logs: some may have coordinators."""
        for runtime in (self.groups.runtime, self.transactions.runtime):
            runtime.on_opened(topics)

    def _follow_broker_configs(self, image: ClusterImage) -> None:
        """Dynamic settings: those of this broker before those of all brokers."""
        self._effectless_warnings.of_broker(image.config_of_broker(self.node_id))
        self.config = self.config.with_dynamic(
            readable_broker_overrides(image.broker_configs.get(self.node_id, {})),
            readable_broker_overrides(image.broker_configs.get(None, {})),
        )
        self._log_configs.clear()
        now = self.host.clock.monotonic()
        self._throttles.leader.limit(self.config[throttle_keys.LEADER_REPLICATION_THROTTLED_RATE], now)
        self._throttles.follower.limit(self.config[throttle_keys.FOLLOWER_REPLICATION_THROTTLED_RATE], now)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """All settings of a topic with these overrides; topics with the same ones share them."""
        key = frozenset(overrides.items())
        found = self._log_configs.get(key)
        if found is None:
            self._effectless_warnings.of_topic(overrides)
            of_broker = {declared.name: self.config[declared] for declared in KEYS_OF_LOGS}
            found = LogConfig.from_values(resolve_topic(overrides, self.config) | of_broker)
            self._log_configs[key] = found
        return found

    async def _close_logs(self) -> None:
        if hasattr(self, "replicas"):  # else the start was cut short, and the checkpoint stays as it was
            try:
                await asyncio.to_thread(self.logs.checkpoint_high_watermarks, self.replicas.high_watermarks())
            except OSError as error:  # it may be older than the logs, which are closed all the same
                logger.error("high watermarks could not be written down", extra={"reason": error})
        epoch = self.member.broker_epoch if hasattr(self, "member") else UNKNOWN_BROKER_EPOCH
        if epoch != UNKNOWN_BROKER_EPOCH:
            await self._note_store()
        try:
            await asyncio.to_thread(partial(self.logs.close, broker_epoch=epoch))
        except (OSError, KafkaError) as error:
            logger.error("not a clean shutdown", extra={"reason": error})


def _epoch_of(image: ClusterImage, broker_id: int) -> int:
    broker = image.brokers.get(broker_id)
    return -1 if broker is None else broker.epoch
