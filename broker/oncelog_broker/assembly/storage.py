"""The storage of one broker: its data directories, its metadata store and its logs.

Start: lock the directories -> open the store -> compare the directories with the store, and refuse the start or
continue (`starting/`) -> open the logs -> end the session of the previous process. A refused start changes nothing.
Close: the logs are closed first, which writes the mark of a clean shutdown and unlocks the directories. After that, the
metadata store is closed, which ends the session.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from oncelog_broker.assembly.settings import Settings
from oncelog_broker.coordinator.internal_topics import needed_settings
from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.data_directory import UNKNOWN_BROKER_EPOCH, make_data_directory
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.membership.founding import FoundLogs
from oncelog_broker.metadata.membership.incarnation import Predecessor
from oncelog_broker.metadata.membership.membership import patiently
from oncelog_broker.metadata.membership.registration import Membership
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.opening import METADATA_FILE, StoreOpening
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.replication.lost_epochs import epochs_above_store
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.private_files import readable_by_others
from oncelog_broker.security.weak_settings import StoreFile
from oncelog_broker.starting.data_start import DataStart
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)


MAX_NAMED: Final = 10
"""Maximum number of partitions that one log line names."""


class BrokerStartError(Exception):
    """The broker cannot start; the message says why and what to do."""


class Storage:
    """The locked data directories, the open store, and the open logs. Created by `start`."""

    def __init__(
        self,
        settings: Settings,
        data: DataStart,
        store: MetadataStore,
        logs: LogManager,
        predecessor: Predecessor,
        epochs_above: Mapping[TopicPartition, int],
    ) -> None:
        self._settings = settings
        self._broker_epoch = UNKNOWN_BROKER_EPOCH
        """The broker epoch of the last registration, which the mark of a clean shutdown contains."""
        self.data = data
        self.store = store
        self.logs = logs
        self.predecessor = predecessor
        self.may_lack_ends = not predecessor.is_log_tail_kept
        """Whether this computer had a power failure since the last run, so that logs may have lost their last records.
        """
        self._has_noted_cut = bool(logs.cut_at_start)
        """Whether the data directories note cut logs, and no registration has told the cluster so yet."""
        self.epochs_above = epochs_above
        """Partitions whose logs have a newer leader epoch than the store had before this broker registered."""

    @classmethod
    async def start(cls, settings: Settings, opening: StoreOpening, host: Host, says: Callable[[str], None]) -> Storage:
        """Open the storage; `says` is called with a description of each step. Raises BrokerStartError, StartRefused,
        LockHeld, StoreUnavailable, OSError and the other errors of `DataStart`, with messages for operators."""
        config = settings.current()
        async with AsyncExitStack() as undo:
            _make_directories(settings, host.disk)
            says("the data directories are locked")
            data = DataStart.lock(config, opening, host)
            undo.callback(data.unlock)
            says("the metadata store is opened")
            store = await data.open_store()
            undo.push_async_callback(store.close)
            says("logs are found")
            open_locked = partial(
                LogManager.open_locked,
                node_id=config.node_id,
                cluster_id=await data.cluster_id(store),
                config_of=lambda topic: settings.of_log({}),
                disk=host.disk,
                clock=host.clock,
            )
            logs = data.open_logs(open_locked)
            try:
                predecessor = _predecessor(store, data, logs, host.disk)
            except BaseException:
                # The doubt about the logs is not on the disk, so the next start must not find a clean shutdown.
                await _close_logs(logs, UNKNOWN_BROKER_EPOCH, is_clean=logs.was_closed_cleanly)
                raise
            undo.push_async_callback(_close_logs, logs, UNKNOWN_BROKER_EPOCH)
            await predecessor.end_session()
            compare = partial(epochs_above_store, store, tuple(logs.logs()), host.slices.pauses().here)
            epochs_above = await patiently(compare, store.session_timeout, host.clock)
            undo.pop_all()
        return cls(settings, data, store, logs, predecessor, epochs_above)

    # --- records of this broker's registrations in the data directories

    def needed_settings(self, topic: str) -> Mapping[str, str]:
        """Return the topic settings that an internal topic needs."""
        return needed_settings(topic, self._settings.current())

    async def before_registering(self) -> None:
        """Add topics that only the logs have to an older embedded store, and record in the data directories that this
        process is about to register. Call this method before the first registration. Raises StoreUnavailable,
        OSError."""
        await self.data.adopt_unknown(self.store, self.logs, self.needed_settings)
        await self.data.note_pending()

    def found_logs(self) -> FoundLogs:
        """Return the logs whose topics a new cluster takes over when this broker founds the cluster. Raises OSError."""
        return self.data.found_logs(self.logs, self.needed_settings)

    async def on_registered(self, membership: Membership) -> None:
        """Record a registration of this broker in the data directories. Raises OSError."""
        await self.data.note_registered(membership, self.store.last_zxid)
        self._broker_epoch = membership.broker_epoch
        await asyncio.to_thread(self.predecessor.on_registered)
        if self._has_noted_cut:
            await asyncio.to_thread(self.logs.forget_cut_logs)
            self._has_noted_cut = False

    async def note_store(self) -> None:
        """Record the id of the metadata store's last write (zxid) in the data directories. A later start that finds a
        lower id detects that the store is older."""
        await self.data.note_seen(self.store.last_zxid)

    async def forget_lost_directories(self, image: ClusterImage) -> None:
        """Remove the missing data directories from the record, if every partition of this broker has a log in one of
        the present directories.
        """
        hosted = {(topic.name, index) for topic, index, _ in image.partitions_on(self._settings.node_id)}
        if hosted.isdisjoint(self.logs.failures) and hosted <= set(self.logs.partitions()):
            await self.data.forget_lost()

    def store_file(self, image: ClusterImage) -> StoreFile | None:
        """Return the embedded metadata store, for the check of its file mode at the start; None if several brokers
        share the store.
        """
        if self.data.kind.is_shared:
            return None
        path = os.path.join(self.data.home, METADATA_FILE)
        return StoreFile(path, readable_by_others(path), any(image.user_configs.values()))

    # --- closing

    async def note_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermark checkpoint for the next start. A failure is logged, and the next start uses older
        values."""
        try:
            await asyncio.to_thread(self.logs.checkpoint_high_watermarks, high_watermarks)
        except OSError as error:
            logger.error("high watermark checkpoint could not be written", extra={"reason": error})

    async def close(self) -> None:
        """Close the logs, which writes the mark of a clean shutdown and unlocks the directories; then close the store.
        If a write fails, the error is logged.
        """
        try:
            try:
                if self._broker_epoch != UNKNOWN_BROKER_EPOCH:
                    await self._note_store_at_the_end()
            finally:
                await _close_logs(self.logs, self._broker_epoch)
        finally:
            await self.store.close()

    async def _note_store_at_the_end(self) -> None:
        try:
            await self.note_store()
        except OSError as error:  # harmless: the next start compares the store with an older id
            logger.error(
                "the id of the metadata store's last write could not be written to oncelog.identity",
                extra={"reason": error},
            )


def _predecessor(store: MetadataStore, data: DataStart, logs: LogManager, disk: Disk) -> Predecessor:
    """Return the previous process, and note on the disk if the logs may lack records since then. Raises OSError."""
    shortened = logs_below_high_watermarks(logs)
    if shortened:
        logger.warning(
            "logs end below their high watermark checkpoints: replicated records were lost on this broker. Its logs "
            "count as unsure, and replicas that have more records lead",
            extra={"count": len(shortened), "partitions": " ".join(shortened[:MAX_NAMED])},
        )
    return Predecessor(
        store,
        disk,
        data.trace_directory,
        was_closed_cleanly=logs.was_closed_cleanly,
        is_whole=not (data.verdict.is_unsure or logs.cut_at_start or shortened),
    )


def logs_below_high_watermarks(logs: LogManager) -> list[str]:
    """Return the names of the open logs that end below their high watermark checkpoint: records that were replicated
    are no longer there, for example because the file was replaced by an older copy.
    """
    noted = logs.high_watermarks()
    return [log.name for log in logs.logs() if log.log_end_offset < noted.get((log.topic, log.partition), 0)]


async def _close_logs(logs: LogManager, broker_epoch: int, *, is_clean: bool = True) -> None:
    try:
        await asyncio.to_thread(partial(logs.close, broker_epoch=broker_epoch, is_clean=is_clean))
    except (OSError, KafkaError) as error:
        logger.error("not a clean shutdown", extra={"reason": error})


def _make_directories(settings: Settings, disk: Disk) -> None:
    for path in map(os.path.abspath, settings.current().log_dirs):
        try:
            make_data_directory(disk, path)
        except OSError as error:
            raise BrokerStartError(
                f"the data directory {path} cannot be created: {error.strerror}. Choose another directory with "
                "--data or log.dirs."
            ) from error
