"""What a task's rows were, in two numbers, so that a replay of a decided batch can be compared with what was decided.

A digest is how many rows there were, and the sum, modulo 2**64, of a 32-bit hash of topic, key, value and headers over
all rows. It does not depend on the order of the rows, nor on the tasks among which they are divided: digests of tasks
add up to that of the batch. Partition and timestamp are left out: where a row goes without a key, and when it was sent,
may differ in a replay that brings the same rows.

It finds mistakes, not forgeries. The hash is CRC32C, as it is there and costs a tenth of a microsecond for each field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from oncelog_protocol.crc import crc32c

MODULUS: Final = 2**64
NULL: Final = b"\x00null\xff"
"""Stands for a null, which is not the same as an empty field. A field with just these bytes counts as null."""


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
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
) -> Digest:
    """The digest of rows of one topic. `keys` and `headers`: one for each value, or None where no row has any."""
    started = crc32c(topic.encode())
    hashes: Iterable[int]
    if keys is None:
        # The topic's hash goes in front of each row's; one key for all rows is cheaper than a list of them.
        hashes = [crc32c(value, started) for value in _without_nulls(values)]
    else:
        # The length tells where the key ends and the value begins.
        fronts = [crc32c(key, started ^ len(key)) for key in _without_nulls(keys)]
        hashes = map(crc32c, _without_nulls(values), fronts)
    if headers is not None:
        hashes = map(_with_headers, hashes, headers)
    return Digest(len(values), sum(hashes) % MODULUS)


def _without_nulls(fields: Sequence[bytes | None]) -> Sequence[bytes]:
    return [NULL if field is None else field for field in fields]


def _with_headers(found: int, headers: Sequence[tuple[str, bytes | None]]) -> int:
    return crc32c(repr(list(headers)).encode(), found) if headers else found


class RowCounter:
    """In the place of a task's producer: takes rows and writes nothing. What it has taken is its `digest`."""

    def __init__(self) -> None:
        self.digest = NOTHING

    async def send(self, topic: str, value: bytes | None, key: bytes | None = None, **options: Any) -> None:
        """As `RowProducer.send`."""
        headers = options.get("headers")
        keys = None if key is None else [key]
        self.digest = self.digest.plus(digest_of(topic, [value], keys, [headers] if headers else None))

    async def send_columns(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        **options: Any,
    ) -> None:
        """As `RowProducer.send_columns`."""
        self.digest = self.digest.plus(digest_of(topic, values, keys, options.get("headers")))

    async def partition_count(self, topic: str) -> int:
        """Where rows would go is of no interest."""
        return 1
