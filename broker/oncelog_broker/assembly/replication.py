"""The partitions that this broker leads and follows, and the maintenance of their logs.

Start: reserve producer ids above the producer ids in the logs -> find missing logs, and rename stray logs -> create the
replicas, the fetchers, the ISR keeper and the recovery of offline logs -> follow the cluster image -> let the
membership answer log end requests of other brokers. `resign` must be called before `close`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from oncelog_broker.assembly.membership import ClusterMembership
from oncelog_broker.assembly.settings import Settings
from oncelog_broker.assembly.storage import Storage
from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import throttle_keys
from oncelog_broker.config.listeners import inter_broker_listener
from oncelog_broker.metadata.membership.producer_ids import MAX_KNOWN_ID, ProducerIdManager
from oncelog_broker.metadata.membership.registration import Membership
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.replication.directory_moves import DirectoryMoves
from oncelog_broker.replication.epoch_raiser import EpochRaiser
from oncelog_broker.replication.fetch_plan import FetchLimits
from oncelog_broker.replication.fetcher import Fetchers
from oncelog_broker.replication.isr_keeper import IsrKeeper
from oncelog_broker.replication.leader_check import LeaderCheck
from oncelog_broker.replication.offline_log_recovery import OfflineLogRecovery
from oncelog_broker.replication.peers import BrokerPeers
from oncelog_broker.replication.replicas import MakeFetching, Replicas
from oncelog_broker.replication.stray_logs import set_strays_aside
from oncelog_broker.runtime.host import Host
from oncelog_broker.security.securities import Securities
from oncelog_broker.server.replicas.controller_calls import ControllerCalls
from oncelog_broker.upkeep.cleaning import LogCleaner
from oncelog_broker.upkeep.maintenance import LogMaintenance


class Replication:
    """The replicas of this broker, with their fetchers, ISR keeper and other parts. Created by `start`."""

    def __init__(
        self,
        storage: Storage,
        peers: BrokerPeers,
        producer_ids: ProducerIdManager,
        replicas: Replicas,
        isr_keeper: IsrKeeper,
        controller_calls: ControllerCalls,
        directory_moves: DirectoryMoves,
    ) -> None:
        self._storage = storage
        self.peers = peers
        self.producer_ids = producer_ids
        self.replicas = replicas
        self.isr_keeper = isr_keeper
        self.controller_calls = controller_calls
        self.directory_moves = directory_moves

    @classmethod
    async def start(
        cls, settings: Settings, storage: Storage, membership: ClusterMembership, securities: Securities, host: Host
    ) -> Replication:
        """Create and start the replicas. Raises StoreUnavailable, KafkaError, OSError."""
        metadata = membership.metadata
        async with AsyncExitStack() as undo:
            listener = inter_broker_listener(settings.current())
            security = securities[listener].towards_brokers
            peers = BrokerPeers(settings.node_id, listener, metadata, host, security=security)
            undo.callback(peers.close)
            metadata.subscribe(peers.on_image)
            producer_ids = await _producer_ids(settings, storage, membership, host)
            await _look_at_logs(settings, storage, membership)
            leaders = LeaderCheck(settings.node_id, peers)
            replicas = Replicas(
                settings.node_id,
                storage.logs,
                settings.of_log,
                host,
                _fetching(settings, storage, metadata, peers, leaders, host),
                broker_epoch=membership.member.broker_epoch,
                may_lead=membership.member.may_lead if membership.is_clustered else None,
            )
            is_store_older = producer_ids.was_behind or storage.data.verdict.has_older_store
            _doubt(replicas, storage, is_store_older=is_store_older)
            calls = ControllerCalls(settings.node_id, metadata, peers, membership.elector, host.slices)
            isr_keeper = IsrKeeper(
                settings.node_id,
                replicas,
                metadata,
                calls.alter_partition,
                lambda: settings.current()[keys.REPLICA_LAG_TIME_MAX_MS] / 1000,
                host,
            )
            isr_keeper.start()
            OfflineLogRecovery(replicas, isr_keeper.ask_for_new_epochs, leaders, host).start()
            undo.callback(replicas.close)
            _follow(metadata, replicas)
            membership.log_end_calls.begin(peers, replicas)
            await replicas.until_opened()
            await storage.forget_lost_directories(metadata.image)
            back = WayBack(settings.node_id, storage.store, metadata, replicas, producer_ids)
            epochs = EpochRaiser(settings.node_id, replicas, metadata, calls.alter_partition, host)
            if is_store_older:
                epochs.doubt_all()
            # In a cluster, do not wait for the raised leader epochs here. Raising them may need the log end offsets of
            # other brokers, which also wait for this broker's log end offsets.
            if not membership.is_clustered:
                await epochs.until_raised(back.until_current)
            epochs.start()
            membership.member.follow(back)
            LogMaintenance(settings.current, storage.logs, replicas, host).start()
            LogCleaner(settings.current, storage.logs, replicas, host).start()
            moves = DirectoryMoves(
                replicas, storage.logs, host, lambda: settings.current()[throttle_keys.ALTER_LOG_DIRS_MAX_RATE]
            )
            undo.pop_all()
        return cls(storage, peers, producer_ids, replicas, isr_keeper, calls, moves)

    def resign(self) -> None:
        """Stop leading partitions: appends are refused, and requests that wait for replicas get an error."""
        self.replicas.close()

    async def close(self) -> None:
        """Write the high watermark checkpoint. Call this method after fetching has ended."""
        await self._storage.note_high_watermarks(self.replicas.high_watermarks())


class WayBack:
    """Updates the cluster image and the replicas after the session was resumed, or after the broker has registered
    again. Implements the protocol `metadata.membership.membership.Return`.
    """

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        metadata: MetadataCache,
        replicas: Replicas,
        producer_ids: ProducerIdManager,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._replicas = replicas
        self._producer_ids = producer_ids

    async def until_current(self) -> None:
        """Wait until the replicas have applied the present contents of the metadata store. Raises StoreUnavailable."""
        await self._metadata.until_current()
        await self._replicas.until_settled()

    async def on_resumed(self) -> None:
        await self._store.sync()
        await self.until_current()

    async def on_rejoined(self, membership: Membership) -> None:
        await self._producer_ids.raise_block()
        await self._replicas.on_registered(membership.broker_epoch)
        await self._metadata.wait_for(lambda image: _epoch_of(image, self._node_id) == membership.broker_epoch)
        await self.until_current()


def _epoch_of(image: ClusterImage, broker_id: int) -> int:
    broker = image.brokers.get(broker_id)
    return -1 if broker is None else broker.epoch


async def _producer_ids(
    settings: Settings, storage: Storage, membership: ClusterMembership, host: Host
) -> ProducerIdManager:
    """Raise the next producer id above all producer ids in the logs, before any request is served, and then follow the
    blocks in the store. Call this method
    before stray logs are renamed (S75): it also reads the producer ids in stray logs, because a stray log may be used
    again.
    """
    member = membership.member
    producer_ids = ProducerIdManager(
        storage.store,
        settings.node_id,
        is_alone=not membership.is_clustered,
        is_registered=lambda: member.is_registered,
    )
    pauses = host.slices.pauses()
    for log in storage.logs.logs():
        producer_ids.note_known(log.producers.state.highest_id(MAX_KNOWN_ID))
        await pauses.here()
    await member.patiently(producer_ids.raise_block)
    host.tasks.supervise("producer id blocks", producer_ids.follow)
    return producer_ids


async def _look_at_logs(settings: Settings, storage: Storage, membership: ClusterMembership) -> None:
    """Note which logs are missing, and rename the stray logs, which no partition of this broker needs."""
    node_id, data, logs, image = settings.node_id, storage.data, storage.logs, membership.metadata.image
    expected = {
        (topic.name, index): len(state.replicas) > 1
        for topic, index, state in image.partitions_on(node_id)
        # Skip a partition in which this broker is an out-of-sync follower, because such a follower may start with an
        # empty log and fetch all records again.
        if state.leader == node_id or node_id in state.isr or state.leader == NO_LEADER
    }
    lost = sorted(each.path for each in data.verdict.lost.values())
    logs.note_missing(expected, lost, replicated=expected.__getitem__)
    keeps = membership.member.is_new or data.keeps_left_over
    set_strays_aside(logs, image, node_id, data.described_store, keeps_left_over=keeps)
    await data.strays_are_aside()


def _fetching(
    settings: Settings,
    storage: Storage,
    metadata: MetadataCache,
    peers: BrokerPeers,
    leaders: LeaderCheck,
    host: Host,
) -> MakeFetching:
    """Return a function that creates the fetchers; `Replicas` calls this function in its constructor."""

    def limits() -> FetchLimits:
        return FetchLimits.of(settings.current())

    return lambda on_truncated: Fetchers(
        settings.node_id,
        peers,
        metadata,
        limits,
        host,
        on_truncated,
        storage.logs.checkpoint_log_start_offsets,
        leaders,
        settings.throttles.follower,
    )


def _doubt(replicas: Replicas, storage: Storage, *, is_store_older: bool) -> None:
    """Pass two lists to the replicas: the logs that may have lost their last records, and the partitions whose leader
    epoch in the store is too low.
    """
    if storage.may_lack_ends:
        replicas.doubt_logs()
    replicas.lost_epochs.expect(storage.epochs_above)
    if is_store_older:
        replicas.lost_epochs.expect(
            {(log.topic, log.partition): log.latest_epoch for log in storage.logs.logs() if log.latest_epoch >= 0}
        )


def _follow(metadata: MetadataCache, replicas: Replicas) -> None:
    """Apply the present cluster image to the replicas, and subscribe the replicas to every later image."""

    def on_image(old: ClusterImage, new: ClusterImage) -> None:
        if new.broker_configs is not old.broker_configs:
            replicas.reconfigure_all()
        replicas.on_image(old, new)

    replicas.on_image(ClusterImage(""), metadata.image)
    metadata.subscribe(on_image)
