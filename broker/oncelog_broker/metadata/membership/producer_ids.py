"""Producer ids: PID blocks of 1000 ids allocated through the store, given out one by one (S1-S4, S75).

An id is never handed out twice, by any broker, for ever: otherwise every log would treat two producers as one. So this
broker owns a block only when its write of the block is known to have succeeded; the rest of a block is lost with the
process.

The store may be older than the logs: restored from a backup, or created again. So each broker compares the last block
with the highest id that its own logs know (`note_known`, `raise_block`) before it serves anything, and takes its next
block above both. Logs that a follower fetches later need no such check: their leader checked them when it started. A
broker that has a block by then, from the older store, gives it up when it sees that another one has raised the last
block.

The logs do not know ids with which no record was written, or whose producers have expired (producer.id.expiration.ms).
The ids handed out last matter, since their producers may still be active: a raised block leaves a gap of UNKNOWN_IDS.
An older id that expired in all logs may be handed out again. Then no log treats its records as those of the earlier
producer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

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

_log = logging.getLogger(__name__)

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
UNKNOWN_IDS = 1_000_000
"""Ids skipped above the highest one in the logs, if the store is older than the logs: ids that were given out last and
have no record yet. A thousand starts of a broker use this many ids."""
MAX_KNOWN_ID = 2**62
"""Higher ids in a log are ignored: a client has invented them, and one such record must not use up all ids."""
MAX_CLAIM_ATTEMPTS = 100
"""Brokers that race for a block lose in turns; a broker that loses this often has another problem."""


class ProducerIdsExhausted(Exception):
    """No block is left (S3). Fatal for producers that need a new id, and no retry helps."""

    def __init__(self) -> None:
        super().__init__("Have exhausted all producerIds")


def next_block(latest: ProducerIdBlock | None, broker_id: int, known: int = -1) -> ProducerIdBlock:
    """Return the block after `latest`, 0..999 if there is no block yet. If `known`, the highest id in use, is above
    that, the block begins UNKNOWN_IDS above it. ProducerIdsExhausted."""
    end = -1 if latest is None else latest.end
    if end < known:
        end = known + UNKNOWN_IDS
    if end > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise ProducerIdsExhausted
    return ProducerIdBlock(broker_id, end + 1, end + BLOCK_SIZE)


class _Latest(NamedTuple):
    block: ProducerIdBlock | None
    """None: the node does not exist yet, or its content is unreadable."""
    version: int
    """The node's version; -1 if the node does not exist yet."""
    fault: MalformedPayload | None = None
    """Why the node cannot be read; None if it can."""


class ProducerIdManager:
    """Hands out producer ids of this broker's block, and takes the next block when it is used up."""

    def __init__(self, store: MetadataStore, broker_id: int, *, is_alone: bool = False) -> None:
        """`is_alone`: this broker has all logs, so it may ignore a node that cannot be read."""
        self._store = store
        self._broker_id = broker_id
        self._is_alone = is_alone
        self._next = 0
        self._end = -1
        self._known = -1
        """The highest id in the logs of this broker, as far as they have been read."""
        self._last_end = -1
        """The end of the last block that this process has read from the store."""
        self._told: tuple[int, int] | None = None
        """The store's last id and the highest known one of the last line about an older store."""
        self._fault_told = ""
        self._lock = asyncio.Lock()
        self._may_be_raised = False
        """Whether another broker has taken a block since ours was compared with the last one."""
        self._store.watch(paths.LATEST_PRODUCER_ID_BLOCK, self._on_block)
        self.blocks_taken = 0
        """Since the start."""
        self.was_behind = False
        """Whether the store's last block ended below a known id: the store is older than the logs."""

    def _on_block(self, path: str) -> None:
        self._may_be_raised = True

    def note_known(self, producer_id: int) -> None:
        """Note an id that a log or a transactional id has: from now on only higher ids are given out."""
        if producer_id <= MAX_KNOWN_ID:
            self._known = max(self._known, producer_id)

    async def raise_block(self) -> None:
        """Raise the store's last block above all known ids, for all brokers. To be called before anything is served.
        Raises StoreUnavailable; does nothing if no block is left (S3)."""
        async with self._lock:
            latest = await self._read_latest()
            if latest.block is not None and latest.block.end >= self._known:
                return
            if latest.fault is None and self._known < 0:
                return  # no producer id has ever been given out
            try:
                await self._take_block()
            except (ProducerIdsExhausted, KafkaError) as error:
                _log.error("the block of producer ids was not raised", extra={"reason": error})

    async def generate(self) -> int:
        """A producer id that no other producer has or will have.

        ProducerIdsExhausted; KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store is out of reach (KAFKA-14417: old
        producers take REQUEST_TIMED_OUT for fatal).
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
        """Abandon this broker's block if another broker has moved the last one far above it: that broker's logs have
        higher ids, maybe some of this block. If the store cannot be reached, the block stays ours."""
        self._may_be_raised = False
        try:
            latest = await self._read_latest()
        except StoreUnavailable:
            self._may_be_raised = True
            return
        if latest.block is not None and latest.block.start > self._end + UNKNOWN_IDS:
            _log.warning("a block of producer ids is given up: another broker's logs may know them")
            self._next = self._end + 1

    async def _take_block(self) -> None:
        block = await self._claim_block()
        self._next, self._end = block.start, block.end
        self._last_end = max(self._last_end, block.end)
        self.blocks_taken += 1

    async def _claim_block(self) -> ProducerIdBlock:
        for _ in range(MAX_CLAIM_ATTEMPTS):
            latest = await self._read_latest()
            wanted = self._next_block(latest)
            if await self._write(wanted, latest.version):
                return wanted
        raise StoreUnavailable(paths.LATEST_PRODUCER_ID_BLOCK, f"no block in {MAX_CLAIM_ATTEMPTS} attempts")

    def _next_block(self, latest: _Latest) -> ProducerIdBlock:
        """The block to take. Raises KafkaError: other brokers may know higher ids than this one, and none of them can
        be asked."""
        if latest.fault is not None:
            self._tell_fault(latest.fault)
            if not self._is_alone:
                message = f"no producer ids: {latest.fault}"
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from latest.fault
            return next_block(None, self._broker_id, max(self._known, self._last_end, 0))
        known = max(self._known, self._last_end)
        end = -1 if latest.block is None else latest.block.end
        wanted = next_block(latest.block, self._broker_id, known)
        if end < known and self._told != (end, known):
            self._told = end, known
            self.was_behind = True
            _log.error(
                "the metadata store is older than the logs, or a client makes up producer ids: ids continue "
                "above those "
                "that the logs know. If the store was put back from a backup, all changes of topics, settings, users "
                "and ACLs since then are lost: repeat them",
                extra={"last_id_of_store": end, "highest_known_id": known, "next_id": wanted.start},
            )
        return wanted

    def _tell_fault(self, fault: MalformedPayload) -> None:
        if str(fault) == self._fault_told:
            return
        self._fault_told = str(fault)
        if self._is_alone:
            _log.error("producer ids continue above those that the logs know: %s", fault)
        else:
            _log.error(
                "no new producer ids can be given out: %s. Stop all brokers, delete that node, and start them again: "
                "each of them raises it above the ids that its logs know",
                fault,
            )

    async def _write(self, wanted: ProducerIdBlock, version: int) -> bool:
        """Whether `wanted` is ours. A write whose outcome is unknown does not count, whatever the node contains
        afterwards: the payload names this broker's id, but a paused process and its replacement have the same id, and
        write the same. If it did not happen, the next try may be for the same block: of two writes on one version of
        the node, at most one takes place, however late."""
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
