"""Producer ids: the broker allocates PID blocks of 1000 ids through the store, and assigns their ids one by one (S1-S4,
S75).

No broker may ever assign an id twice, because every log would then treat two producers as one. This broker therefore
uses a block only after the store has confirmed the write of the block. When the process ends, the unassigned ids of its
block are lost.

The store may be older than the logs, because it was restored from a backup or created again. Before a broker serves
anything, it therefore compares the last block with the highest id in its own logs (`note_known`, `raise_block`), and
allocates its next block above both. Logs that a follower fetches later need no such check, because their leader checked
them when it started. If a broker already has a block from the older store, it discards that block when another broker
has raised the last block.

The store may also go back while brokers run. So each broker reads every block that any broker allocates, and remembers
the last one with the version of its node (`follow`). If the node has an older version later, or another block in the
same version, the broker raises the last block in the same way. It does so only in a session in which it is registered,
because any other store may belong to another cluster. One case is not noticed: a broker that starts before the others
are back allocates more blocks than the store has lost, and its own logs have none of their ids.

Two kinds of ids are not in the logs: ids with which no record was written, and ids whose producers have expired
(producer.id.expiration.ms). The most recently assigned ids matter, since their producers may still be active: a raised
block therefore leaves a gap of UNKNOWN_IDS. An older id that has expired in all logs may be assigned again, because no
log can then mistake the new producer for the earlier producer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import (
    MalformedPayload,
    ProducerIdBlock,
    encode_producer_id_block,
    parse_producer_id_block,
)
from oncelog_broker.metadata.stores.store import (
    BadVersion,
    ConnectionLost,
    MetadataStore,
    NodeExists,
    NoNode,
    Stat,
    StoreUnavailable,
)
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

_log = logging.getLogger(__name__)

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
UNKNOWN_IDS = 1_000_000
"""The number of ids that are skipped above the highest id in the logs if the store is older than the logs; producers
without records may have these ids. The number equals a thousand blocks, as many as a thousand startups of a broker
allocate.
"""
MAX_KNOWN_ID = 2**62
"""A higher producer id in a log is ignored, because only a faulty client can have used it, and a single record with
such an id must not use up all ids.
"""
MAX_CLAIM_ATTEMPTS = 100
"""The maximum number of attempts to allocate a block. An attempt may fail when several brokers allocate blocks
simultaneously; this many failures in a row must have another cause.
"""


class ProducerIdsExhausted(Exception):
    """Raised if all producer ids have been allocated (S3). A producer that needs a new id must fail, because a retry
    cannot help.
    """

    def __init__(self) -> None:
        super().__init__("Have exhausted all producerIds")


def next_block(latest: ProducerIdBlock | None, broker_id: int, known: int = -1) -> ProducerIdBlock:
    """Return the block after `latest`, or the ids 0 to 999 if there is no block yet. If `known`, the highest id in use,
    is above `latest`, the block begins UNKNOWN_IDS above `known`. Raises ProducerIdsExhausted.
    """
    end = -1 if latest is None else latest.end
    if end < known:
        end = known + UNKNOWN_IDS
    if end > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise ProducerIdsExhausted
    return ProducerIdBlock(broker_id, end + 1, end + BLOCK_SIZE)


class _Latest(NamedTuple):
    block: ProducerIdBlock | None
    """The last block; None if the node does not exist yet, or if its content is unreadable."""
    version: int
    """The node's version; -1 if the node does not exist yet."""
    mzxid: int = -1
    """The id of the node's last write; -1 if the node does not exist yet."""
    fault: MalformedPayload | None = None
    """The reason why the node cannot be read; None if it can be read."""


class ProducerIdManager:
    """Assigns producer ids from this broker's block, and allocates the next block when the block is used up."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        *,
        is_alone: bool = False,
        is_registered: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_alone` means that this broker has all logs, so that this broker may ignore an unreadable node of producer
        ids. `is_registered` returns whether this broker is registered in the present session of the store; otherwise
        the store may be another cluster's, and this broker neither learns from it nor writes to it.
        """
        self._store = store
        self._broker_id = broker_id
        self._is_alone = is_alone
        self._is_registered = is_registered
        self._next = 0
        self._end = -1
        self._known = -1
        """The highest producer id that `note_known` has recorded; -1 before the first call."""
        self._seen: _Latest | None = None
        """The last block as this process has last read or written it; None before that."""
        self._seen_end = -1
        """The end of the highest block, of any broker, that this process has read or written."""
        self._told: tuple[int, int] | None = None
        """The values in the last log line about an older store: the last id of the store's block, and the highest id in
        the logs.
        """
        self._fault_told = ""
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        """Set if the last block in the store may have changed since this broker last read it."""
        self._store.watch(paths.LATEST_PRODUCER_ID_BLOCK, lambda _: self._changed.set())
        self.blocks_taken = 0
        """The number of blocks allocated since the startup."""
        self.was_behind = False
        """Whether the store's last block ended below a known id, so that the store is older than the logs."""

    def note_known(self, producer_id: int) -> None:
        """Record a producer id that occurs in a log or in the state of a transactional id; after this call, only higher
        ids are assigned.
        """
        if producer_id <= MAX_KNOWN_ID:
            self._known = max(self._known, producer_id)

    async def follow(self) -> None:
        """Read each block that a broker allocates, and raise the store's last block if the store has gone back, until
        the task is cancelled. While the store is unavailable, or this broker is not registered in it, nothing is done:
        a reconnect reports a change, and a broker that has registered again calls `raise_block`.
        """
        while True:
            await self._changed.wait()
            async with self._lock:
                await self._look()

    async def raise_block(self) -> None:
        """Raise the store's last block above all known ids and all blocks seen, for all brokers. Call this method
        before this broker serves anything, and whenever it has registered again. Raises StoreUnavailable; does nothing
        if no block is left (S3).
        """
        async with self._lock:
            await self._raise_if_behind()

    async def generate(self) -> int:
        """Return a producer id that no other producer has or will have.

        Raises ProducerIdsExhausted; KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store is unavailable
        (KAFKA-14417: old producers treat REQUEST_TIMED_OUT as fatal).
        """
        async with self._lock:
            if self._changed.is_set() and self._next <= self._end:
                await self._look()
            if self._next > self._end or self._next <= self._known:
                if not self._is_registered():
                    message = "no producer ids, this broker is not registered in the metadata store"
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
                try:
                    await self._take_block()
                except StoreUnavailable as error:
                    message = f"no producer ids, the metadata store is unavailable: {error}"
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _look(self) -> None:
        """Read the last block, and raise it if the store has gone back. If the store cannot be reached, this broker
        keeps its block.
        """
        self._changed.clear()
        if self._is_registered():
            try:
                await self._raise_if_behind()
            except StoreUnavailable as error:
                _log.info("the last block of producer ids is not read: %s", error)

    async def _raise_if_behind(self) -> None:
        try:
            await self._take_block(self._is_behind)
        except (ProducerIdsExhausted, KafkaError) as error:
            _log.error("the block of producer ids was not raised", extra={"reason": error})

    def _is_behind(self, latest: _Latest) -> bool:
        """Whether the last block must be raised, because the store is older than what this broker knows."""
        end = -1 if latest.block is None else latest.block.end
        return latest.fault is not None or end < max(self._known, self._seen_end) or self._has_gone_back(latest)

    def _has_gone_back(self, latest: _Latest) -> bool:
        """Whether the node is older than this broker has seen it, and no broker has raised the last block since."""
        seen, block = self._seen, latest.block
        if seen is None or (block is not None and block.start > self._seen_end + UNKNOWN_IDS):
            return False
        is_other = latest.version == seen.version and block != seen.block
        return is_other or latest.version < seen.version or latest.mzxid < seen.mzxid

    def _note_seen(self, latest: _Latest) -> None:
        """Remember the last block. If another broker has allocated it far above this broker's own block, discard the
        own block: the other broker's logs contain higher ids, and may also contain ids of the own block.
        """
        self._seen, block = latest, latest.block
        if block is None:
            return
        if block.end <= MAX_KNOWN_ID:
            self._seen_end = max(self._seen_end, block.end)
        if self._next <= self._end and block.start > self._end + UNKNOWN_IDS:
            _log.warning("a block of producer ids is abandoned: another broker's logs may contain these ids")
            self._next = self._end + 1

    async def _take_block(self, is_needed: Callable[[_Latest], bool] = lambda _: True) -> None:
        """Allocate the next block, unless `is_needed` returns False for the last one."""
        for _ in range(MAX_CLAIM_ATTEMPTS):
            latest = await self._read_latest()
            if not is_needed(latest):
                self._note_seen(latest)
                return
            wanted = self._next_block(latest)
            if (stat := await self._write(wanted, latest.version)) is not None:
                self._next, self._end = wanted.start, wanted.end
                self._note_seen(_Latest(wanted, stat.version, stat.mzxid))
                self.blocks_taken += 1
                return
        raise StoreUnavailable(paths.LATEST_PRODUCER_ID_BLOCK, f"no block in {MAX_CLAIM_ATTEMPTS} attempts")

    def _next_block(self, latest: _Latest) -> ProducerIdBlock:
        """Return the block to allocate. Raises KafkaError if the last block cannot be read, because other brokers may
        have higher ids in their logs, and this broker cannot ask them.
        """
        if latest.fault is not None:
            self._tell_fault(latest.fault)
            if not self._is_alone:
                message = f"no producer ids: {latest.fault}"
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from latest.fault
            return next_block(None, self._broker_id, max(self._known, self._seen_end, 0))
        known = max(self._known, self._seen_end)
        end = -1 if latest.block is None else latest.block.end
        if self._has_gone_back(latest):
            known = max(known, end + 1)  # another broker may have the same block: both must discard it
        wanted = next_block(latest.block, self._broker_id, known)
        if end < known and self._told != (end, known):
            self._told = end, known
            self.was_behind = True
            _log.error(
                "the metadata store is older than the logs, or a client uses invented producer ids: new ids "
                "continue above the ids in the logs. If the store was restored from a backup, all changes of "
                "topics, settings, users and ACLs since the backup are lost: repeat them",
                extra={"last_id_of_store": end, "highest_known_id": known, "next_id": wanted.start},
            )
        return wanted

    def _tell_fault(self, fault: MalformedPayload) -> None:
        if str(fault) == self._fault_told:
            return
        self._fault_told = str(fault)
        if self._is_alone:
            _log.error("producer ids continue above the ids in the logs: %s", fault)
        else:
            _log.error(
                "no new producer ids can be allocated: %s. Stop all brokers, delete that node, and start them "
                "again: each broker raises the node above the ids in its logs",
                fault,
            )

    async def _write(self, wanted: ProducerIdBlock, version: int) -> Stat | None:
        """Write the block; returns the node's stat if this broker owns `wanted` now, otherwise None. A write whose
        outcome is unknown counts as failed, whatever the node contains afterwards. The node's data does not prove who
        wrote it: a paused process and its replacement have the same broker id and write the same data. The next attempt
        may request the same block again, because at most one of two writes on the same version of the node succeeds,
        however late a write arrives.
        """
        path, data = paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(wanted)
        try:
            if version < 0:
                return await self._store.create(path, data)
            return await self._store.set(path, data, version)
        except (BadVersion, NodeExists, NoNode):
            return None
        except ConnectionLost as error:
            _log.info("a block of producer ids is abandoned, its owner is unknown: %s", error)
            return None

    async def _read_latest(self) -> _Latest:
        try:
            data, stat = await self._store.get(paths.LATEST_PRODUCER_ID_BLOCK)
        except NoNode:
            return _Latest(None, -1)
        try:
            return _Latest(parse_producer_id_block(data, paths.LATEST_PRODUCER_ID_BLOCK), stat.version, stat.mzxid)
        except MalformedPayload as fault:
            return _Latest(None, stat.version, stat.mzxid, fault)
