"""The digest of a task's rows, two numbers, with which a replay of a decided batch is compared.

A digest has the number of rows, and the sum, modulo 2**64, of a hash of topic, key, value and headers over all rows.
The hash is their CRC32C, mixed. Without mixing, the sums of many different rows would be equal: each bit of a CRC is a
parity of the row's bits, so over a range of numbers each of them is set in half of the rows, whichever range it is.

A digest does not depend on the order of the rows, nor on how they are divided among tasks: the digests of tasks add up
to that of the batch. Partition and timestamp are not included, since they may differ in a replay of the same rows.

The digest finds mistakes, not forgeries. CRC32C takes a tenth of a microsecond for each field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import xor
from typing import Any, Final, NamedTuple, Protocol

from oncelog.producer.packable_rows import PackableRows
from oncelog_protocol.crc import crc32c
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence, encode_headers

MODULUS: Final = 2**64
NULL: Final = b"\x00null\xff"
"""Used for a null, which differs from an empty field. A field with exactly these bytes counts as null."""
MIX_SHIFT: Final = 33
MIX_MULTIPLIERS: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
"""Multipliers of MurmurHash3's last step (fmix64), which makes each bit of a number depend on all of its bits, and not
by parity alone."""


class Digest(NamedTuple):
    """`rows`: how many. `total`: the sum of their hashes, below MODULUS."""

    rows: int = 0
    total: int = 0

    def plus(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.total + other.total) % MODULUS)


NOTHING: Final = Digest()


def digest_sum(digests: Iterable[Digest]) -> Digest:
    found = NOTHING
    for each in digests:
        found = found.plus(each)
    return found


def digest_of(
    topic: str,
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None = None,
    headers: Sequence[HeaderSequence] | None = None,
) -> Digest:
    """Return the digest of rows of one topic. `keys` and `headers` have one element for each value; None if no row has
    any."""
    fronts: Iterable[int] = repeat(started(topic))
    if keys is not None:
        known = _without_nulls(keys)
        fronts = map(crc32c, known, map(xor, fronts, map(len, known)))
    crcs: Iterable[int] = map(crc32c, _without_nulls(values), fronts)
    if headers is not None:
        crcs = map(_with_headers, crcs, headers)
    return Digest(len(values), sum(map(mixed, crcs)) % MODULUS)


def started(topic: str) -> int:
    """Return the initial CRC of the topic's rows.

    A row's CRC continues with its value; if the row has a key, first the length of the key is XORed in, which separates
    key and value, and the CRC continues with the key and then the value.
    """
    return crc32c(topic.encode())


def _with_headers(crc: int, headers: HeaderSequence) -> int:
    """Continue the CRC with the row's headers, encoded as in the record. A row without headers adds nothing."""
    return crc32c(encode_headers(headers), crc) if headers else crc


def mixed(crc: int) -> int:
    """The hash of a row, from its CRC."""
    for multiplier in MIX_MULTIPLIERS:
        crc = (crc ^ (crc >> MIX_SHIFT)) * multiplier % MODULUS
    return crc ^ (crc >> MIX_SHIFT)


class DigestedRows(Protocol):
    """Rows that know their digest."""

    def digest(self, topic: str) -> Digest:
        """Like `digest_of` for their columns."""


def _without_nulls(fields: Sequence[Buffer | None]) -> Sequence[Buffer]:
    return [NULL if field is None else field for field in fields]


class RowCounter:
    """Replaces a task's producer: counts the rows in its `digest`, and writes nothing."""

    def __init__(self) -> None:
        self.digest = NOTHING

    async def send(self, topic: str, value: bytes | None, key: bytes | None = None, **options: Any) -> None:
        """Like `RowProducer.send`."""
        headers = options.get("headers")
        keys = None if key is None else [key]
        self.digest = self.digest.plus(digest_of(topic, [value], keys, [headers] if headers else None))

    def count(self, topic: str, rows: DigestedRows) -> None:
        """Like `RowProducer.count`."""
        self.digest = self.digest.plus(rows.digest(topic))

    async def send_packed(self, topic: str, partition: int, rows: PackableRows) -> None:
        """Does nothing: `count` has counted the rows."""

    async def partition_count(self, topic: str) -> int:
        """Always 1: partitions do not matter for a digest."""
        return 1
