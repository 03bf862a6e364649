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
the highest (`follow`). If the last block in the store is below that block later, the broker raises it in the same
way; in any case it allocates no block below the one that it remembers.

Two kinds of ids are not in the logs: ids with which no record was written, and ids whose producers have expired
(producer.id.expiration.ms). The most recently assigned ids matter, since their producers may still be active: a raised
block therefore leaves a gap of UNKNOWN_IDS. An older id that has expired in all logs may be assigned again, because no
log can then mistake the new producer for the earlier producer.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

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
    fault: MalformedPayload | None = None
    """The reason why the node cannot be read; None if it can be read."""


class ProducerIdManager:
    """Assigns producer ids from this broker's block, and allocates the next block when the block is used up."""

    def __init__(self, store: MetadataStore, broker_id: int, *, is_alone: bool = False) -> None:
        """`is_alone` means that this broker has all logs, so that this broker may ignore an unreadable node of producer
        ids.
        """
        self._store = store
        self._broker_id = broker_id
        self._is_alone = is_alone
        self._next = 0
        self._end = -1
        self._known = -1
        """The highest producer id that `note_known` has recorded; -1 before the first call."""
        self._seen_end = -1
        """The end of the highest block, of any broker, that this process has read from the store or written to it."""
        self._told: tuple[int, int] | None = None
        """The values in the last log line about an older store: the last id of the store's block, and the highest id in
        the logs.
        """
        self._fault_told = ""
        self._lock = asyncio.Lock()
        self._may_be_raised = False
        """Whether another broker may have allocated a block since this broker last compared its own block with the last
        block in the store.
        """
        self._changed = asyncio.Event()
        """Set if the last block in the store may have changed since `follow` read it."""
        self._store.watch(paths.LATEST_PRODUCER_ID_BLOCK, self._on_block)
        self.blocks_taken = 0
        """The number of blocks allocated since the startup."""
        self.was_behind = False
        """Whether the store's last block ended below a known id, so that the store is older than the logs."""

    def _on_block(self, path: str) -> None:
        self._may_be_raised = True
        self._changed.set()

    def note_known(self, producer_id: int) -> None:
        """Record a producer id that occurs in a log or in the state of a transactional id; after this call, only higher
        ids are assigned.
        """
        if producer_id <= MAX_KNOWN_ID:
            self._known = max(self._known, producer_id)

    async def follow(self) -> None:
        """Read each block that a broker allocates, and raise the store's last block if the store has gone back, until
        the task is cancelled. If the store is unavailable, this method goes on after the next reconnect.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            with suppress(StoreUnavailable):
                await self.raise_block()

    async def raise_block(self) -> None:
        """Raise the store's last block above all known ids and all blocks seen, for all brokers. Call this method
        before this broker serves anything. Raises StoreUnavailable; does nothing if no block is left (S3)."""
        async with self._lock:
            latest = await self._read_latest()
            highest = max(self._known, self._seen_end)
            if latest.block is not None and latest.block.end >= highest:
                self._seen_end = latest.block.end
                return
            if latest.fault is None and highest < 0:
                return  # no block exists yet, so start with the first producer id
            try:
                await self._take_block()
            except (ProducerIdsExhausted, KafkaError) as error:
                _log.error("the block of producer ids was not raised", extra={"reason": error})

    async def generate(self) -> int:
        """Return a producer id that no other producer has or will have.

        Raises ProducerIdsExhausted; KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store is unavailable
        (KAFKA-14417: old producers treat REQUEST_TIMED_OUT as fatal).
        """
        async with self._lock:
            if self._may_be_raised and self._next <= self._end:
                await self._look_for_a_raise()
            if self._next > self._end or self._next <= self._known:
                try:
                    await self._take_block()
                except StoreUnavailable as error:
                    message = f"no producer ids, the metadata store is unavailable: {error}"
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _look_for_a_raise(self) -> None:
        """Discard this broker's block of producer ids if another broker has allocated blocks far above it. The other
        broker did this because its logs contain higher ids, and its logs may also contain ids of this block. If the
        store cannot be reached, this broker keeps the block.
        """
        self._may_be_raised = False
        try:
            latest = await self._read_latest()
        except StoreUnavailable:
            self._may_be_raised = True
            return
        if latest.block is None:
            return
        self._seen_end = max(self._seen_end, latest.block.end)
        if latest.block.start > self._end + UNKNOWN_IDS:
            _log.warning("a block of producer ids is abandoned: another broker's logs may contain these ids")
            self._next = self._end + 1

    async def _take_block(self) -> None:
        block = await self._claim_block()
        self._next, self._end = block.start, block.end
        self._seen_end = max(self._seen_end, block.end)
        self.blocks_taken += 1

    async def _claim_block(self) -> ProducerIdBlock:
        for _ in range(MAX_CLAIM_ATTEMPTS):
            latest = await self._read_latest()
            wanted = self._next_block(latest)
            if await self._write(wanted, latest.version):
                return wanted
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

    async def _write(self, wanted: ProducerIdBlock, version: int) -> bool:
        """Write the block; returns whether this broker owns `wanted` now. A write whose outcome is unknown counts as
        failed, whatever the node contains afterwards. The node's data does not prove who wrote it: a paused process and
        its replacement have the same broker id and write the same data. The next attempt may request the same block
        again, because at most one of two writes on the same version of the node succeeds, however late a write arrives.
        """
        path, data = paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(wanted)
        try:
            if version < 0:
                await self._store.create(path, data)
            else:
                await self._store.set(path, data, version)
        except (BadVersion, NodeExists, NoNode):
            return False
        except ConnectionLost as error:
            _log.info("a block of producer ids is abandoned, its owner is unknown: %s", error)
            return False
        return True

    async def _read_latest(self) -> _Latest:
        try:
            data, stat = await self._store.get(paths.LATEST_PRODUCER_ID_BLOCK)
        except NoNode:
            return _Latest(None, -1)
        try:
            return _Latest(parse_producer_id_block(data, paths.LATEST_PRODUCER_ID_BLOCK), stat.version)
        except MalformedPayload as fault:
            return _Latest(None, stat.version, fault)
