"""Creates record batches: valid batches, and batches that no client writes. The checksum is right, unless a case is
about the checksum.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import cramjam
from crc32c import crc32c

from oncelog_protocol.records.batch import CRC_AT, CRC_START, HEADER_SIZE
from oncelog_protocol.records.builder import build_batch, encode_record
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

TIMESTAMP = 1_700_000_000_000
HEADER_FIELDS = (
    (0, ">q", (-1, 2**63 - 1, -(2**63))),  # base offset
    (8, ">i", (0, -1, 2**31 - 1, -(2**31), 48)),  # batch length
    (12, ">i", (-1, 99)),  # partition leader epoch
    (16, ">b", (0, 1, 3, -1)),  # magic
    (21, ">h", (-1, 5, 7, 8, 16, 32, 48, 64, 0x7FFF)),  # attributes
    (23, ">i", (0, -1, 5, 2**31 - 1, -(2**31))),  # last offset delta
    (27, ">q", (0, -1, 2**63 - 1, -(2**63))),  # base timestamp
    (35, ">q", (0, -1, 2**63 - 1, -(2**63))),  # max timestamp
    (43, ">q", (-1, -2, 2**63 - 1, -(2**63))),  # producer id
    (51, ">h", (-1, -2, 32767, -32768)),  # producer epoch
    (53, ">i", (-1, -2, 2**31 - 1, -(2**31))),  # base sequence
    (57, ">i", (0, -1, 1, 7, 2**31 - 1, -(2**31))),  # records count
)
COUNT_AT = 57
LAST_DELTA_AT = 23
ATTRIBUTES_AT = 21


def good(rng: random.Random, producer_id: int = -1, producer_epoch: int = -1, transactional: bool = False) -> bytes:
    """Return a valid batch, which sometimes has an idempotent producer, and always if it is transactional."""
    count = rng.choice((1, 1, 2, 20))
    records = [
        Record(index, TIMESTAMP + index, rng.choice((b"k", b"kk")), rng.randbytes(rng.choice((0, 10, 300))), [])
        for index in range(count)
    ]
    compression = Compression(rng.choice((0, 0, 0, 1, 2, 3, 4)))
    if producer_id < 0 or not (transactional or rng.random() < 0.3):
        return bytes(build_batch(records, compression=compression))
    return bytes(
        build_batch(
            records,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=rng.choice((0, 0, 1, 2**31 - 1)),
            transactional=transactional,
        )
    )


def odd(rng: random.Random) -> bytes | None:
    """Return a batch of the kind `kind`, one of KINDS."""
    return rng.choice(KINDS)(rng)


def _signed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def _with_body(body: bytes, count: int, compression: int) -> bytes:
    batch = bytearray(good(random.Random(0))[:HEADER_SIZE]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, compression)
    struct.pack_into(">i", batch, COUNT_AT, count)
    struct.pack_into(">i", batch, LAST_DELTA_AT, count - 1)
    return _signed(batch)


def _header_field_extreme(rng: random.Random) -> bytes:
    batch = bytearray(good(rng))
    at, layout, values = rng.choice(HEADER_FIELDS)
    struct.pack_into(layout, batch, at, rng.choice(values))
    return _signed(batch)


def _count_and_delta_agree_on_a_lie(rng: random.Random) -> bytes:
    batch = bytearray(good(rng))
    count = rng.choice((2, 1000, 2**31 - 1))
    struct.pack_into(">i", batch, COUNT_AT, count)
    struct.pack_into(">i", batch, LAST_DELTA_AT, count - 1)
    return _signed(batch)


def _garbage_records(rng: random.Random) -> bytes:
    return _with_body(rng.randbytes(rng.choice((1, 30, 3000))), rng.choice((1, 3)), rng.choice((0, 0, 1, 2, 3, 4)))


def _bit_in_the_records(rng: random.Random) -> bytes:
    batch = bytearray(good(rng))
    batch[rng.randrange(HEADER_SIZE, len(batch))] ^= 1 << rng.randrange(8)
    return _signed(batch)


def _many_records(rng: random.Random) -> bytes:
    """Return a batch with up to a hundred thousand empty records in some hundred bytes; the record count in its header
    is either right, or wrongly 1.
    """
    count = rng.choice((1000, 100_000))
    packed = bytes(cramjam.zstd.compress(encode_record(0, 0, b"", None) * count, 3))
    return _with_body(packed, rng.choice((count, 1)), Compression.ZSTD)


def _much_behind_little(rng: random.Random) -> bytes:
    """Return a batch with one record of many zero bytes."""
    size = rng.choice((1 << 20, 16 << 20))
    packed = bytes(cramjam.zstd.compress(encode_record(0, 0, b"k", bytes(size)), 3))
    return _with_body(packed, 1, Compression.ZSTD)


def _wrong_checksum(rng: random.Random) -> bytes:
    batch = bytearray(good(rng))
    batch[CRC_AT] ^= 1
    return bytes(batch)


def _cut(rng: random.Random) -> bytes:
    batch = good(rng)
    return batch[: rng.randrange(len(batch))]


def _two(rng: random.Random) -> bytes:
    return good(rng) + good(rng)


def _many_batches(rng: random.Random) -> bytes:
    return good(rng) * 300


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((1, 60, 61, 500)))


KINDS: tuple[Callable[[random.Random], bytes | None], ...] = (
    _header_field_extreme,
    _header_field_extreme,
    _header_field_extreme,
    _count_and_delta_agree_on_a_lie,
    _garbage_records,
    _bit_in_the_records,
    _many_records,
    _much_behind_little,
    _wrong_checksum,
    _cut,
    _two,
    _many_batches,
    _noise,
    lambda rng: None,
    lambda rng: b"",
)
