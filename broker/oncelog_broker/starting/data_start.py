"""Locks the data directories when a broker starts, opens the metadata store, compares directories and store, and
records the broker's registration in the directories.

`broker.py` calls the steps in this order:

1. lock the directories, and read their identity notes;
2. open the store, and read its id and the last registration of this broker;
3. compare directories and store; if the start is refused, neither the directories nor the store have changed;
4. claim the directories, open the logs;
5. write the nonce of this process as pending into every directory, register, then write the registration into every
directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from oncelog_broker.config import authorizer_keys, security_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import START_ACCEPT
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.config.listeners import listeners
from oncelog_broker.identity.comparison import compare, past_of
from oncelog_broker.identity.facts import Adoption, DirectoryFacts, Past, StartFacts, StoreFacts, Verdict
from oncelog_broker.identity.note import NEVER, DirectoryNote, StoreKind
from oncelog_broker.identity.refusals import Kind, StartRefused
from oncelog_broker.log.directories.data_directory import DataDirectory, lock_directories
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.membership.cluster_id import agreed_cluster_id
from oncelog_broker.metadata.membership.founding import UNKNOWN_STORE, FoundLogs
from oncelog_broker.metadata.membership.incarnation import SESSION_FILE, trace_directory
from oncelog_broker.metadata.membership.membership import patiently
from oncelog_broker.metadata.membership.registration import Membership
from oncelog_broker.metadata.membership.restoring import restored_nodes
from oncelog_broker.metadata.membership.store_identity import alone_in_sync, read_store_facts
from oncelog_broker.metadata.model.metadata_copy import MetadataCopy, read_copy
from oncelog_broker.metadata.opening import METADATA_FILE, StoreOpening
from oncelog_broker.metadata.stores.embedded import EmbeddedStore, StoreFileError
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.replication.older_store import adopt_unknown
from oncelog_broker.replication.startup_logs import Needed, found_logs, found_topics, highest_producer_id
from oncelog_broker.runtime.entropy import Entropy, random_uuid, system_entropy
from oncelog_broker.runtime.host import Host
from oncelog_protocol.uuids import uuid_to_string

logger = logging.getLogger(__name__)

MOVED_SUFFIX: Final = ".moved"
"""The suffix that is appended to the name of an embedded store after its broker has moved to ZooKeeper."""
DOUBTED_STORES: Final = (Kind.NEW_STORE, Kind.ALONE, Kind.OLDER_STORE, Kind.OTHER_STORE)
"""Kinds of accepted differences (`start.accept`). If a start has accepted one of these differences, the metadata store
may lack partitions that this broker had.
"""


class DataStart:
    """The directories and the store of one start. The object is created by `lock`. Call `open_store` before all other
    methods.
    """

    def __init__(
        self,
        config: BrokerConfig,
        opening: StoreOpening,
        host: Host,
        directories: Sequence[DataDirectory],
        entropy: Entropy,
    ) -> None:
        """The constructor is internal: use `lock`."""
        self._config = config
        self._opening = opening
        self._disk = host.disk
        self._clock = host.clock
        self._entropy = entropy
        self.directories = directories
        self.process = uuid_to_string(random_uuid(entropy))
        """The nonce of this process: a random id that each process creates at its start."""
        self._is_locked_by_us = True
        self._noting = threading.Lock()
        """A lock that is held while identity notes are written. The lock is necessary because the thread of a cancelled
        start keeps writing during the shutdown.
        """
        self._taken_over: Mapping[str, bytes] = {}
        """Maps the path of each node in the embedded store of a broker that moves to ZooKeeper to the node's
        contents.
        """
        self.facts: StartFacts
        self.verdict: Verdict
        self._copy = self._newest_copy()
        """The newest copy of the cluster's metadata. The copy is used only if the store is empty."""
        self.kind = opening.kind
        self.home = self._store_home()
        """The data directory that has the embedded store, or in which the store will be created."""
        self.place = opening.place(self.home)
        """The path or address of the metadata store, as text for messages."""

    @classmethod
    def lock(
        cls,
        config: BrokerConfig,
        opening: StoreOpening,
        host: Host,
        entropy: Entropy = system_entropy,
    ) -> DataStart:
        """Lock the data directories. Raises LockHeld, MetaPropertiesError, NoteError, StoreFileError, OSError."""
        directories = lock_directories(config.log_dirs, node_id=config.node_id, cluster_id=None, disk=host.disk)
        try:
            return cls(config, opening, host, directories, entropy)
        except BaseException:
            for each in directories:
                each.close(clean=False)
            raise

    @property
    def described_store(self) -> str:
        """The name of the metadata store for messages."""
        return f"ZooKeeper at {self.place}" if self.kind is StoreKind.ZOOKEEPER else self.place

    def unlock(self) -> None:
        """Unlock the directories, unless the logs were opened; in that case closing the logs unlocks the
        directories."""
        if self._is_locked_by_us:
            self._is_locked_by_us = False
            for each in self.directories:
                each.close(clean=False)

    # --- opening the store

    async def open_store(self) -> MetadataStore:
        """Open the metadata store, compare it with the directories, and log the differences.

        Raises StartRefused, MetaPropertiesError; StoreFileError, StoreUnavailable, InvalidConfig, MalformedPayload.
        """
        if self.kind is StoreKind.EMBEDDED and not os.path.exists(self.place):
            # The comparison is finished before an empty store is created.
            self._judge(StoreFacts(self.kind, self.place))
            return await self._opening.open(self.home, self._clock)
        store = await self._opening.open(self.home, self._clock)
        try:
            ask = partial(read_store_facts, store, self._config.node_id, self.kind, self.place)
            found = await patiently(ask, store.session_timeout, self._clock)
            for each in self.directories:
                each.check_owner(node_id=self._config.node_id, cluster_id=found.cluster_id)
            if self.kind.is_shared and found.cluster_id is None:
                await self._read_store_file(found)
            else:
                await self._judge_with(store, found)
        except BaseException:
            await store.close()
            raise
        return store

    async def cluster_id(self, store: MetadataStore) -> str:
        """Return the cluster id. A new cluster gets the id in the directories, or a random id if the directories have
        no id. Raises StoreUnavailable."""
        known = next((each.cluster_id for each in self.directories if each.cluster_id is not None), None)
        agree = partial(agreed_cluster_id, store, known, is_shared=self.kind.is_shared)
        return await patiently(agree, store.session_timeout, self._clock)

    def _store_home(self) -> str:
        """Return the directory of the embedded store. Raises StoreFileError if several directories have an embedded
        store."""
        found = [each.path for each in self.directories if self._disk.exists(each.join(METADATA_FILE))]
        if len(found) > 1 and self._needs_store_file():
            raise StoreFileError(
                f"{METADATA_FILE} exists in {' and in '.join(found)}, and only one of them is this broker's "
                "metadata. Move the wrong one (with its -wal file) away: the right file contains the topics "
                "that the broker had last"
            )
        return found[0] if found else self.directories[0].path

    def _newest_copy(self) -> MetadataCopy | None:
        """Return the newest copy of this cluster's metadata in the data directories; None if there is no copy."""
        clusters = {each.cluster_id for each in self.directories}
        copies = [read_copy(self._disk, each.path) for each in self.directories]
        of_cluster = [each for each in copies if each is not None and each.cluster_id in clusters]
        return max(of_cluster, key=lambda each: each.written_ms, default=None)

    def _needs_store_file(self) -> bool:
        if self.kind is StoreKind.EMBEDDED:
            return True
        facts = self._facts(StoreFacts(self.kind, ""))
        return past_of(facts) is Past.ALONE

    async def _read_store_file(self, found: StoreFacts) -> None:
        """Compare the directories with an empty ZooKeeper; a broker without a cluster may move to ZooKeeper with the
        contents of its embedded store.
        """
        path = os.path.join(self.home, METADATA_FILE)
        if not self._disk.exists(path) or past_of(self._facts(found)) is not Past.ALONE:
            self._judge(found)
            return
        try:
            store = EmbeddedStore.open(Path(path))
        except StoreFileError as error:
            self._judge(found, fault=str(error))
            return
        try:
            inside = await read_store_facts(store, self._config.node_id, StoreKind.EMBEDDED, path)
            for each in self.directories:
                each.check_owner(node_id=self._config.node_id, cluster_id=inside.cluster_id)
            self._judge(found, inside)
            self._taken_over = store.nodes()
        finally:
            await store.close()

    async def _judge_with(self, store: MetadataStore, found: StoreFacts) -> None:
        """Compare the directories with a store that is not empty. If a directory is older, first read from the store
        the partitions whose only in-sync replica is this broker. Raises StartRefused, StoreUnavailable.
        """
        alone: Sequence[str] = ()
        if self.kind.is_shared and compare(self._facts(found)).has_older_directories:
            ask = partial(alone_in_sync, store, self._config.node_id)
            alone = await patiently(ask, store.session_timeout, self._clock)
        self._judge(found, alone=alone)

    def _facts(
        self, store: StoreFacts, inside: StoreFacts | None = None, fault: str = "", alone: Sequence[str] = ()
    ) -> StartFacts:
        directories = [
            DirectoryFacts(
                each.path,
                each.cluster_id,
                each.directory_id,
                each.note,
                each.has_logs(),
                self._disk.exists(each.join(SESSION_FILE)),
                self._disk.exists(each.join(METADATA_FILE)),
            )
            for each in self.directories
        ]
        copied = "" if self._copy is None else utc_time(self._copy.written_ms)
        rights = has_rights(self._config)
        return StartFacts(self._config.node_id, directories, store, rights, inside, fault, alone, copied)

    def _judge(
        self, found: StoreFacts, inside: StoreFacts | None = None, fault: str = "", alone: Sequence[str] = ()
    ) -> None:
        """Decide whether the start is refused or accepted (the verdict), and log the messages of this verdict. Raises
        StartRefused.
        """
        self.facts = self._facts(found, inside, fault, alone)
        self.verdict = compare(self.facts, self._config[START_ACCEPT])
        if self.verdict.refusals:
            raise StartRefused(self.verdict.refusals)
        for said in self.verdict.errors:
            logger.error(said)
        for said in self.verdict.warnings:
            logger.warning(said)
        for refusal in self.verdict.accepted:
            logger.warning("start.accept=%s: %s: %s", refusal.accept, refusal.difference, refusal.consequence)
        for each in self.verdict.unused:
            logger.info("start.accept=%s matches no difference of this start and was ignored", each)

    # --- opening the logs

    def open_logs(self, open_locked: Callable[[Sequence[DataDirectory]], LogManager]) -> LogManager:
        """Open the logs with `open_locked`. From now on the LogManager owns the directories and their locks."""
        self._is_locked_by_us = False
        return open_locked(self.directories)

    @property
    def trace_directory(self) -> str:
        """The directory with the session file of the previous process. Raises OSError."""
        return trace_directory(self._disk, [each.path for each in self.directories])

    def found_logs(self, logs: LogManager, needed: Needed) -> FoundLogs:
        """Return the store contents with which this broker founds a cluster in an empty store. Raises OSError."""
        paths = [each.path for each in self.directories]
        if self.verdict.adoption is Adoption.COPY:
            return self._restored(logs, needed)
        if self.verdict.adoption is not Adoption.STORE_FILE:
            return found_logs(logs, paths, self._disk, needed, is_refounded=self.verdict.is_refounded)
        topics = found_topics(logs, paths, self._disk, needed) if self.verdict.adopts_unknown else ()
        return FoundLogs(logs.cluster_id, topics, nodes=self._taken_over)

    def _restored(self, logs: LogManager, needed: Needed) -> FoundLogs:
        """Return the store contents for a cluster whose store was lost and that is founded again from the copy of its
        metadata. Raises OSError.
        """
        assert self._copy is not None
        paths = [each.path for each in self.directories]
        found = found_logs(logs, paths, self._disk, needed, is_refounded=self.verdict.is_refounded)
        epochs = {(topic.name, index): epoch for topic in found.topics for index, epoch in topic.leader_epochs.items()}
        nodes = restored_nodes(self._copy, lambda topic, index: epochs.get((topic, index), -1), found.epoch_leap)
        # The note of a directory that was just added has no store id.
        lost = next((each.note.store_id for each in self.directories if each.note and each.note.store_id), "")
        return replace(
            found,
            highest_producer_id=highest_producer_id(logs),
            nodes=nodes,
            replaces_store=(lost or UNKNOWN_STORE) if self.verdict.is_refounded else "",
        )

    async def adopt_unknown(self, store: MetadataStore, logs: LogManager, needed: Needed) -> None:
        """Add to an older embedded store the topics that exist only as logs in the data directories. Call this method
        before the broker registers. Raises StoreUnavailable, OSError."""
        if self.verdict.adopts_unknown and not self.verdict.may_found:
            paths = [each.path for each in self.directories]
            await adopt_unknown(store, found_topics(logs, paths, self._disk, needed), self._config.node_id)

    # --- writing the identity notes

    async def note_pending(self) -> None:
        """Write this process's nonce as `pending` into the identity notes of all directories. Call this method before
        the first registration. Raises OSError."""
        nonce, keeps = self.facts.store.nonce, self.keeps_left_over
        await asyncio.to_thread(self._note, lambda note: replace(
            note,
            process=nonce if note.is_of(nonce) else note.process,
            pending=self.process,
            keeps_left_over=keeps,
        ))  # fmt: skip

    async def note_registered(self, membership: Membership, zxid: int) -> None:
        """Write a registration into the identity notes of all directories. Call this method after each registration. If
        an identity note cannot be written, the next start finds that the directory is older than the store, and assumes
        that the broker's logs may have lost their ends.
        """
        sisters = {each.directory_id: each.path for each in self.directories if each.directory_id is not None}

        def registered(note: DirectoryNote) -> DirectoryNote:
            return DirectoryNote(
                note.directory_id,
                sisters,
                self.verdict.lost,
                self.kind,
                membership.store_id,
                self.place,
                self.process,
                "",
                membership.incarnation,
                membership.broker_epoch,
                max(zxid, membership.broker_epoch),
                note.keeps_left_over,
                self.facts.node_id,
            )

        await self._note_or_say(registered)
        if self.kind is StoreKind.ZOOKEEPER:
            try:
                await asyncio.to_thread(self._put_store_files_away)
            except OSError as error:
                logger.error(
                    "metadata.db could not be renamed: move it away before this broker is started without ZooKeeper",
                    extra={"reason": error},
                )

    async def note_seen(self, zxid: int) -> None:
        """Write the id of the store's last write (zxid) into the identity notes. Call this method periodically, and at
        a controlled shutdown.
        """
        if any(each.note is not None and each.note.zxid < zxid for each in self.directories):
            await self._note_or_say(lambda note: replace(note, zxid=max(note.zxid, zxid)))

    @property
    def keeps_left_over(self) -> bool:
        """Whether to keep the logs of partitions that the metadata store assigns to other brokers, because these logs
        may be the only copies. True if the broker has not used this store before, if the store is an older copy, or if
        the previous process was killed before it renamed such logs as stray.
        """
        return (
            any(each.note is not None and each.note.keeps_left_over for each in self.directories)
            or self.facts.store.registration == NEVER
            or self.verdict.has_older_store
            or any(each.kind in DOUBTED_STORES for each in self.verdict.accepted)
        )

    async def strays_are_aside(self) -> None:
        """Record in the identity notes that this start has renamed the directories of its stray logs. A log that
        becomes a stray log after this start may be deleted, because this cluster has moved its partition to other
        brokers.
        """
        if any(each.note is not None and each.note.keeps_left_over for each in self.directories):
            await self._note_or_say(lambda note: replace(note, keeps_left_over=False))

    async def forget_lost(self) -> None:
        """Remove the lost directories from the identity notes, because every partition that was in a lost directory has
        a log in another directory now.
        """
        if self.verdict.lost:
            self.verdict = replace(self.verdict, lost={})
            await self._note_or_say(lambda note: replace(note, lost={}))

    async def _note_or_say(self, change: Callable[[DirectoryNote], DirectoryNote]) -> None:
        try:
            await asyncio.to_thread(self._note, change)
        except OSError as error:
            logger.error(
                "oncelog.identity could not be written in a data directory: the next start will treat this "
                "directory as older",
                extra={"reason": error},
            )

    def _note(self, change: Callable[[DirectoryNote], DirectoryNote]) -> None:
        """Change the identity note in every directory. The first OSError is raised after all directories were tried."""
        failure: OSError | None = None
        with self._noting:
            for each in self.directories:
                if each.directory_id is None:
                    continue
                try:
                    each.write_note(change(each.note or DirectoryNote(each.directory_id)))
                except OSError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _put_store_files_away(self) -> None:
        """Rename the embedded stores of a broker that is registered in ZooKeeper, so that a later start without
        ZooKeeper does not use the old metadata. Raises OSError."""
        for each in self.directories:
            path = each.join(METADATA_FILE)
            if not self._disk.exists(path):
                continue
            target, number = path + MOVED_SUFFIX, 1
            while self._disk.exists(target):
                number += 1
                target = f"{path}{MOVED_SUFFIX}-{number}"
            self._disk.rename(path, target)
            self._disk.sync_directory(each.path)
            logger.warning("the metadata of this broker is in ZooKeeper now: %s was renamed to %s", path, target)


def utc_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def has_rights(config: BrokerConfig) -> bool:
    """Whether the configuration uses users or ACLs that are stored in the metadata store."""
    if config[authorizer_keys.AUTHORIZER_CLASS_NAME]:
        return True
    return any(
        each.security_protocol.name.startswith("SASL")
        and any(
            name.startswith("SCRAM")
            for name in ListenerConfig(config, each.name)[security_keys.SASL_ENABLED_MECHANISMS]
        )
        for each in listeners(config)
    )
