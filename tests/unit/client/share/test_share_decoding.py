"""A share consumer decodes the acquired records of fetched batches; the tests include gaps, and batches that cannot be
decoded.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.cluster import TopicPartition
from oncelog.share.share_decoding import MAX_OFFSETS, Decoded, decode
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

PARTITION = TopicPartition("t", 0)


def batch(base_offset: int, count: int = 3) -> bytes:
    return build_batch([Record(0, 0, None, b"v", [])] * count, base_offset=base_offset)


def acquired(first: int, last: int, count: int = 1) -> Any:
    return SimpleNamespace(first_offset=first, last_offset=last, delivery_count=count)


def decoded(data: bytes, *ranges: Any) -> Decoded:
    return decode(PARTITION, memoryview(data), ranges, check_crcs=True, max_decompressed_bytes=1 << 20)


def offsets(found: Decoded) -> list[tuple[int, int]]:
    return [(record.offset, count) for record, count in found.records]


def test_only_acquired_records_of_a_batch_are_delivered() -> None:
    found = decoded(batch(0) + batch(3), acquired(1, 1, 2), acquired(3, 4))
    assert offsets(found) == [(1, 2), (3, 1), (4, 1)]
    assert (found.gaps, found.unreadable, found.error) == ([], [], None)


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    found = decoded(batch(0) + batch(5), acquired(0, 7))
    assert [offset for offset, _ in offsets(found)] == [0, 1, 2, 5, 6, 7]
    assert found.gaps == [3, 4]


def test_acquired_records_of_a_damaged_batch_are_unreadable_and_later_batches_are_read() -> None:
    damaged = batch(0)[:-1] + b"\xff"
    found = decoded(damaged + batch(3), acquired(1, 4))
    assert offsets(found) == [(3, 1), (4, 1)]
    assert list(found.unreadable) == [1, 2]
    assert found.error is not None
    assert "CRC" in found.error


@pytest.mark.parametrize("last", [MAX_OFFSETS, 2**62])
def test_a_response_that_claims_too_many_offsets_is_not_expanded(last: int) -> None:
    found = decoded(batch(0), acquired(0, last))
    assert found == Decoded([], error=f"more than {MAX_OFFSETS} offsets were acquired at once")


def test_a_range_that_ends_before_it_begins_makes_no_room_for_a_huge_one() -> None:
    found = decoded(batch(0), acquired(2**62, 0), acquired(0, 2**62))
    assert found == Decoded([], error=f"more than {MAX_OFFSETS} offsets were acquired at once")
