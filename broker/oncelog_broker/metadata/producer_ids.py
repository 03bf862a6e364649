"""Producer ids: blocks of 1000 taken through the store, handed out one by one (S1-S4).

An id is never handed out twice, by anybody, for ever: it would make two producers one in the eyes of every log. So a
block belongs to us only when we know that our write of it took place; the rest of a block is lost with the process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.payloads import ProducerIdBlock, encode_producer_id_block, parse_producer_id_block
from oncelog_broker.metadata.store import (
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
MAX_CLAIM_ATTEMPTS = 100
"""Brokers that race for a block lose in turns; whoever loses this often meets something else than a race."""


class ProducerIdsExhausted(Exception):
    """There is no block left (S3). Fatal for producers that need a new id, and no retry helps."""

    def __init__(self) -> None:
        super().__init__("Have exhausted all producerIds")


def next_block(latest: ProducerIdBlock | None, broker_id: int) -> ProducerIdBlock:
    """The block after `latest`, 0..999 if there is none. ProducerIdsExhausted."""
    if latest is None:
        return ProducerIdBlock(broker_id, 0, BLOCK_SIZE - 1)
    if latest.end > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise ProducerIdsExhausted
    return ProducerIdBlock(broker_id, latest.end + 1, latest.end + BLOCK_SIZE)


class _Latest(NamedTuple):
    block: ProducerIdBlock | None
    version: int
    """Of the node; -1 if there is none yet."""


class ProducerIdManager:
    """Hands out producer ids of this broker's block, and takes the next block when it is used up."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = -1
        self._lock = asyncio.Lock()
        self.blocks_taken = 0
        """Since the start."""

    async def generate(self) -> int:
        """A producer id that nobody else has or will have.

        ProducerIdsExhausted; KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store is out of reach (KAFKA-14417: old
        producers take REQUEST_TIMED_OUT for fatal).
        """
        async with self._lock:
            if self._next > self._end:
                try:
                    block = await self._claim_block()
                except StoreUnavailable as error:
                    message = f"no producer ids, the metadata store is unavailable: {error}"
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error
                self._next, self._end = block.start, block.end
                self.blocks_taken += 1
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _claim_block(self) -> ProducerIdBlock:
        for _ in range(MAX_CLAIM_ATTEMPTS):
            latest = await self._read_latest()
            wanted = next_block(latest.block, self._broker_id)
            if await self._write(wanted, latest.version):
                return wanted
        raise StoreUnavailable(paths.LATEST_PRODUCER_ID_BLOCK, f"no block in {MAX_CLAIM_ATTEMPTS} attempts")

    async def _write(self, wanted: ProducerIdBlock, version: int) -> bool:
        """Whether `wanted` is ours. A write whose outcome is unknown is not, whatever the node says afterwards: the
        payload names our broker id, but a process that was paused and the one that has replaced it have the same, and
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
            _log.info("a block of producer ids is given up, nobody knows whose it is: %s", error)
            return False
        return True

    async def _read_latest(self) -> _Latest:
        try:
            data, stat = await self._store.get(paths.LATEST_PRODUCER_ID_BLOCK)
        except NoNode:
            return _Latest(None, -1)
        return _Latest(parse_producer_id_block(data, paths.LATEST_PRODUCER_ID_BLOCK), stat.version)
