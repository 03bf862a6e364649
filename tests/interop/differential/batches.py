"""Creates the record batches that scenarios send: valid batches, and valid batches with one error."""

from __future__ import annotations

import time
from dataclasses import dataclass
from struct import pack_into
from threading import Lock
from typing import Final

from oncelog_protocol.records.batch import CRC_AT, HEADER_SIZE, batch_crc
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

LENGTH: Final = 8, ">i"
LEADER_EPOCH: Final = 12, ">i"
MAGIC: Final = 16, ">b"
ATTRIBUTES: Final = 21, ">h"
LAST_OFFSET_DELTA: Final = 23, ">i"
MAX_TIMESTAMP: Final = 35, ">q"
RECORDS_COUNT: Final = 57, ">i"
"""Fields of a batch, each with its position and its format."""


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer id with its epoch, and with its `transactional_id` if it has one."""

    id: int = -1
    epoch: int = -1
    transactional_id: str | None = None

    def at(self, *, id: int = 0, epoch: int = 0) -> Producer:
        """Return a copy of this producer whose producer id and epoch are higher by these numbers."""
        return Producer(self.id + id, self.epoch + epoch, self.transactional_id)


NOBODY: Final = Producer()


_clock = Lock()
_latest_ms = 0


def now_ms() -> int:
    """Return a time that is later than each time returned before, so that the order of timestamps does not depend on
    the speed of a broker.
    """
    global _latest_ms
    with _clock:
        _latest_ms = max(int(time.time() * 1000), _latest_ms + 1)
        return _latest_ms


def batch(
    records: int = 1,
    producer: Producer = NOBODY,
    sequence: int = -1,
    *,
    timestamp: int | None = None,
    compression: Compression = Compression.NONE,
    transactional: bool | None = None,
    control: bool = False,
    base_offset: int = 0,
    key: bytes | None = None,
    size: int = 1,
) -> bytes:
    """Return a batch of `records` records with values of `size` bytes. The batch is transactional if the producer has a
    transactional id, unless `transactional` says otherwise.
    """
    at = now_ms() if timestamp is None else timestamp
    made = build_batch(
        [Record(offset, at, key, b"x" * size, []) for offset in range(records)],
        compression=compression,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=producer.transactional_id is not None if transactional is None else transactional,
        control=control,
        base_offset=base_offset,
    )
    return bytes(made)


def sealed(data: bytes | bytearray) -> bytes:
    """Return the batch with the right CRC."""
    whole = bytearray(data)
    whole[CRC_AT : CRC_AT + 4] = batch_crc(whole).to_bytes(4, "big")
    return bytes(whole)


def patched(data: bytes, field: tuple[int, str], value: int) -> bytes:
    """Return the batch with another value in a field, and the right CRC."""
    whole = bytearray(data)
    position, how = field
    pack_into(how, whole, position, value)
    return sealed(whole)


def flipped(data: bytes, position: int) -> bytes:
    """Return the batch with all bits of one byte flipped, and the old CRC."""
    whole = bytearray(data)
    whole[position] ^= 0xFF
    return bytes(whole)


def with_body(body: bytes, count: int, last_offset_delta: int) -> bytes:
    """Return a batch with these bytes in place of records, and with a header whose length and CRC fit the bytes."""
    whole = batch()[:HEADER_SIZE] + body
    for field, value in ((LENGTH, len(whole) - 12), (LAST_OFFSET_DELTA, last_offset_delta), (RECORDS_COUNT, count)):
        whole = patched(whole, field, value)
    return whole
