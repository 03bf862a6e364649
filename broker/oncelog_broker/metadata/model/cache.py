"""Provides the current cluster image, and keeps it current by a single mechanism: the store's watches.

A broker's own changes arrive through the watches like all other changes, so that the broker always serves the state of
the store. After a handler has changed a node, it calls `wait_for`, which returns when the cluster image contains the
change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import (
    ConnectionLost,
    MetadataStore,
    SessionExpired,
    StoreUnavailable,
    Unsubscribe,
)
from oncelog_broker.runtime.slices import Pause, no_pause
from oncelog_protocol.acls import ResourcePattern
from oncelog_protocol.quotas import QuotaEntity

_log = logging.getLogger(__name__)

ImageCallback = Callable[[ClusterImage, ClusterImage], None]
"""Type of a callback: `on_image(old, new)`, which must be synchronous and fast, is called after `MetadataCache.image`
has become `new`.
"""

CheckStore = Callable[[], Awaitable[None]]
"""Type of a function that raises an error if the store is not the store in which this broker is registered."""


async def _no_check() -> None:
    """Accept any store; the default of `check_store`."""


WATCHED: Final = (paths.BROKERS, paths.CONFIG, paths.LITERAL_ACLS, paths.EXTENDED_ACLS)
"""The watched paths. A notification that names one of these paths means that any node below the path may have changed.
"""
AGAIN_SECONDS: Final = 1.0
"""If nodes could not be read although the store was available, they are read again after this number of seconds; the
delay doubles with each failure.
"""
MAX_AGAIN_SECONDS: Final = 60.0


class _Stale:
    """The paths that watches have reported as changed and that have not been read since."""

    def __init__(self) -> None:
        self.everything = False
        self.controller = False
        self.brokers: set[int] = set()
        self.topics: set[str] = set()
        self.partitions: set[PartitionKey] = set()
        self.topic_configs: set[str] = set()
        self.broker_configs: set[str] = set()
        self.acls: set[ResourcePattern] = set()
        self.user_configs: set[str] = set()
        self.group_configs: set[str] = set()
        self.client_metrics: set[str] = set()
        self.quotas: set[QuotaEntity] = set()

    def add(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        topic = paths.parse_topic_path(path)
        if topic is not None and topic.partition is not None:
            self.partitions.add(PartitionKey(topic.topic, topic.partition))
        elif topic is not None:
            if path == paths.topic(topic.topic):  # skip the empty nodes between a topic and its states
                self.topics.add(topic.topic)
        elif parent == paths.BROKER_IDS and name.isdecimal():
            self.brokers.add(int(name))
        elif parent == paths.TOPIC_CONFIGS:
            self.topic_configs.add(name)
        elif parent == paths.BROKER_CONFIGS:
            self.broker_configs.add(name)
        elif parent == paths.USER_CONFIGS:
            self.user_configs.add(name)
        elif parent == paths.GROUP_CONFIGS:
            self.group_configs.add(name)
        elif parent == paths.CLIENT_METRICS_CONFIGS:
            self.client_metrics.add(name)
        elif path == paths.CONTROLLER:
            self.controller = True
        elif (pattern := paths.parse_acl_path(path)) is not None:
            self.acls.add(pattern)
        elif (entity := paths.parse_quota_path(path)) is not None:
            self.quotas.add(entity)
        elif path in WATCHED:
            self.everything = True

    def add_all(self, other: _Stale) -> None:
        for kind, named in vars(other).items():
            setattr(self, kind, getattr(self, kind) | named)

    def is_empty(self) -> bool:
        return not any(vars(self).values())


class MetadataCache:
    """Provides the current cluster image. Create an instance with `MetadataCache.start`."""

    def __init__(
        self, store: MetadataStore, image: ClusterImage, pause: Pause = no_pause, check_store: CheckStore = _no_check
    ) -> None:
        self._store = store
        self._check_store = check_store
        self._is_doubted = False
        """Whether the last call of `check_store` failed: the store may not be the store in which this broker is
        registered."""
        self._pause = pause
        self._image = image
        self._stale = _Stale()
        self._unread = _Stale()
        """The paths that a refresh failed to read. These paths are kept separately, so that paths that watches report
        later can be read without a delay.
        """
        self._refreshing: asyncio.Task[bool] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._again_seconds = 0.0
        """The last delay in seconds before reading again; 0 once everything was read."""
        self._is_closed = False
        self._subscribers: list[ImageCallback] = []
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[ClusterImage]]] = []
        self._watches: list[Unsubscribe] = []
        self._has_read_all = False
        """Whether the first cluster image is complete. Before the first cluster image, changes are only noted, because
        a refresh must not publish an incomplete image.
        """

    @classmethod
    async def start(
        cls, store: MetadataStore, pause: Pause = no_pause, check_store: CheckStore = _no_check
    ) -> MetadataCache:
        """Read the entire cluster, and follow its changes from then on.

        `pause` is awaited between the parts of a long read. `check_store` is called before the entire cluster is read
        again in a new session. If `check_store` raises, the cluster image is not changed, because every topic that is
        missing in a replaced store would be treated as deleted. Raises NoNode if no broker has ever registered in the
        store, MalformedPayload if the cluster's id is invalid, StoreUnavailable.
        """
        cache = cls(store, ClusterImage(""), pause, check_store)
        # Watch before reading, because otherwise a change between read and watch would be missed.
        cache._watches = [store.watch(root, cache._on_change) for root in WATCHED]
        cache._watches.append(store.watch(paths.CONTROLLER, cache._on_change))
        try:
            cache._image = await reader.read_image(store, pause=pause)
        except BaseException:
            await cache.close()
            raise
        cache._has_read_all = True
        if not cache._stale.is_empty():
            cache._begin_refresh()
        return cache

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, on_image: ImageCallback) -> Unsubscribe:
        """Call `on_image` with every later cluster image. If a callback raises, the exception is logged, and the other
        callbacks are still called.
        """
        self._subscribers.append(on_image)

        def unsubscribe() -> None:
            if on_image in self._subscribers:
                self._subscribers.remove(on_image)

        return unsubscribe

    async def wait_for(self, shows: Callable[[ClusterImage], bool]) -> ClusterImage:
        """Return the first cluster image for which `shows(image)` is True, beginning with the current image. All
        subscribers have been called with the returned image.

        The call waits forever if such a cluster image never appears (for example because another broker may have undone
        the change meanwhile), so use a timeout.
        """
        if shows(self._image):
            return self._image
        shown: asyncio.Future[ClusterImage] = asyncio.get_running_loop().create_future()
        entry = (shows, shown)
        self._waiting.append(entry)
        try:
            return await shown
        finally:
            self._waiting.remove(entry)

    async def until_current(self) -> None:
        """Wait until the cluster image contains all changes that the watches have reported so far. Raises
        StoreUnavailable if a changed node could not be read.

        To include the earlier changes of other brokers, first call `MetadataStore.sync`.
        """
        self._read_unread()
        refreshing = self._refreshing
        if refreshing is not None:
            await asyncio.wait([refreshing])
            if refreshing.cancelled() or not refreshing.result():
                raise StoreUnavailable("", "the cluster image is not current")

    async def synced(self) -> ClusterImage:
        """Return a cluster image that is at least as new as the state of the store at the time of this call. Raises
        StoreUnavailable.

        Use this method for decisions for which an older cluster image would be wrong, for example the decision that a
        topic is deleted.
        """
        await self._store.sync()
        await self.until_current()
        return self._image

    async def close(self) -> None:
        """Stop following changes; the last cluster image remains available."""
        for unsubscribe in self._watches:
            unsubscribe()
        self._watches.clear()
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _on_change(self, path: str) -> None:
        self._stale.add(path)
        if self._has_read_all:
            self._begin_refresh()

    def _begin_refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> bool:
        """Read stale paths (reported as changed, not read since) until none is left; returns whether all paths were
        read. If a watch reports a change during a pass over the stale paths, the next pass reads the changed node.

        A stale path (reported as changed) remains stale until it was read successfully. After a failure, the kind of
        failure decides when the read is retried. If the store is unavailable, the path is read after the reconnect,
        because the watch then reports the root of the path as changed; if loop iterations are long, the watch may
        report the root before this task learns that its read failed. A node with invalid content is logged, and its
        part of the cluster image remains unchanged.
        """
        while not self._stale.is_empty():
            stale, self._stale = self._stale, _Stale()
            if stale.everything:
                self._unread = _Stale()
            image: ClusterImage | None = None
            try:
                image = await self._read(stale)
            except (ConnectionLost, SessionExpired) as error:
                _log.warning("the cluster image is not current, the metadata store is unavailable: %s", error)
            except StoreUnavailable as error:
                _log.warning("the cluster image is not current, the metadata store refuses reads: %s", error)
                self._read_unread_later()
            except Exception:
                _log.exception("the cluster image is not current, a part of it could not be read")
                self._read_unread_later()
            finally:
                if image is None:
                    self._unread.add_all(stale)
            if image is not None and image is not self._image:
                self._publish(image)
        if not self._unread.is_empty():
            return False
        self._again_seconds = 0.0
        return True

    def _read_unread_later(self) -> None:
        if self._again is None and not self._is_closed:
            self._again_seconds = min(max(AGAIN_SECONDS, 2 * self._again_seconds), MAX_AGAIN_SECONDS)
            self._again = asyncio.get_running_loop().call_later(self._again_seconds, self._on_again)

    def _on_again(self) -> None:
        self._again = None
        self._read_unread()

    def _read_unread(self) -> None:
        """Start to read the paths that could not be read before, together with all other stale paths (reported as
        changed).
        """
        unread, self._unread = self._unread, _Stale()
        self._stale.add_all(unread)
        if not self._stale.is_empty():
            self._begin_refresh()

    async def _read(self, stale: _Stale) -> ClusterImage:
        """Return the cluster image after all stale paths (reported as changed) were read again."""
        image = self._image
        if stale.everything or self._is_doubted:
            self._is_doubted = True
            await self._check_store()
            self._is_doubted = False
        if stale.everything:
            return await reader.read_image(self._store, image, self._pause)
        # The changes of one write may be reported separately, so a new topic is always read together with its settings.
        stale.topic_configs |= stale.topics
        if stale.brokers:
            for broker_id, broker in (await reader.read_brokers(self._store, image, sorted(stale.brokers))).items():
                image = image.without_broker(broker_id) if broker is None else image.with_broker(broker)
        if stale.controller:
            image = image.with_controller(await reader.read_controller(self._store, image))
        if stale.topic_configs:
            names = sorted(stale.topic_configs)
            image = image.with_topic_configs(await reader.read_topic_configs(self._store, image, names, self._pause))
        if stale.broker_configs:
            names = sorted(stale.broker_configs)
            image = image.with_broker_configs(await reader.read_broker_configs(self._store, image, names))
        if stale.acls:
            patterns = sorted(stale.acls)
            image = image.with_acls(await reader.read_acls(self._store, image, patterns, self._pause))
        if stale.user_configs:
            names = sorted(stale.user_configs)
            image = image.with_user_configs(await reader.read_user_configs(self._store, image, names, self._pause))
        if stale.group_configs:
            names = sorted(stale.group_configs)
            image = image.with_group_configs(await reader.read_group_configs(self._store, image, names, self._pause))
        if stale.client_metrics:
            names = sorted(stale.client_metrics)
            image = image.with_client_metrics(await reader.read_client_metrics(self._store, image, names, self._pause))
        if stale.quotas:
            image = image.with_quotas(await reader.read_quotas(self._store, image, list(stale.quotas), self._pause))
        if stale.topics:
            image = (await reader.read_topics(self._store, image, sorted(stale.topics), self._pause)).put_into(image)
        # A topic that was read completely already has the states of its partitions.
        moved = sorted(key for key in stale.partitions if key.topic not in stale.topics)
        if moved:
            changed = await reader.read_partitions(self._store, image, moved, self._pause)
            image = image.with_topics(changed) if changed else image
        return image

    def _publish(self, image: ClusterImage) -> None:
        before, self._image = self._image, image
        for on_image in tuple(self._subscribers):
            try:
                on_image(before, image)
            except Exception:
                _log.exception("a subscriber failed on a new cluster image")
        for shows, shown in tuple(self._waiting):
            try:
                if not shown.done() and shows(image):
                    shown.set_result(image)
            except Exception as error:
                shown.set_exception(error)
