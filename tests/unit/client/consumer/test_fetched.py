from typing import Any

import pytest

from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.isolation import AbortedTransaction, AbortedTransactions
from oncelog.errors import CorruptRecords
from oncelog_protocol.records.batch import (
    BASE_OFFSET,
    CRC_AT,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
    batch_crc,
)
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record


def batch(first: int, count: int, **options: Any) -> bytearray:
    records = [Record(0, 100 + n, b"k", b"%d" % n, []) for n in range(first, first + count)]
    return build_batch(records, base_offset=first, **options)


def fetched(data: bytes, offset: int = 0, *, check_crcs: bool = True, aborted: Any = None) -> FetchedPartition:
    return FetchedPartition("t", 1, offset, memoryview(data), check_crcs=check_crcs, aborted=aborted)


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


@pytest.mark.parametrize("compression", list(Compression))
def test_fetched_records_equal_the_written_ones(compression: Compression) -> None:
    data = batch(10, 2, compression=compression, partition_leader_epoch=3)
    (first, _) = fetched(data, 10).take(10)
    assert first == ("t", 1, 10, 110, 0, b"k", b"10", (), 3)
    assert first.topic == "t"
    assert first.leader_epoch == 3


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 100])
def test_any_portions_give_all_records_in_order(limit: int) -> None:
    part = fetched(batch(0, 5) + batch(5, 1) + batch(6, 4))
    taken: list[int] = []
    while portion := part.take(limit):
        assert len(portion) <= limit
        taken += offsets(portion)
        assert part.next_offset == taken[-1] + 1
    assert taken == list(range(10))
    assert part.is_exhausted


@pytest.mark.parametrize("before", [0, 2, 5, 6])
def test_columns_equal_the_records(before: int) -> None:
    """The columns equal the records even if a part of the batch was already read as records, or the batch has hidden
    records.
    """
    end = EndTransactionMarker(ControlType.COMMIT, 0)
    marker = marker_batch(end, producer_id=1, producer_epoch=0, timestamp=0, base_offset=5)
    data = batch(0, 5) + marker + batch(6, 4)
    part, twin = fetched(data), fetched(data)
    assert len(part.take(before)) == len(twin.take(before))
    columns, records = part.take_columns(), twin.take(100)
    rows = [
        row
        for each in columns
        for row in zip(each.offsets, each.timestamps_ms, each.keys, each.values, each.headers, strict=True)
    ]
    assert rows == [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]
    assert {each.timestamp_type for each in columns} == {0}
    assert (part.next_offset, part.last_epoch, part.is_exhausted) == (10, twin.last_epoch, True)
    assert part.take_columns() == []


def test_columns_begin_where_they_were_asked_for_and_stop_before_damage() -> None:
    damaged = batch(5, 5)
    damaged[-1] ^= 1
    part = fetched(batch(0, 5) + damaged, 3)
    (columns,) = part.take_columns()
    assert columns.offsets == [3, 4]
    assert part.next_offset == 5
    with pytest.raises(CorruptRecords):
        part.take_columns()
    assert columns.cut(4, 9).values == [b"4"]  # type: ignore[union-attr]
    assert columns.cut(5, 9) is None
    assert columns.cut(0, 9) is columns


def test_undecoded_batches_have_what_columns_have() -> None:
    """Undecoded batches begin at the requested offset, and omit markers and aborted records."""
    end = EndTransactionMarker(ControlType.ABORT, 0)
    aborted = batch(5, 2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    marker = marker_batch(end, producer_id=1, producer_epoch=0, timestamp=0, base_offset=7)
    data = batch(0, 5, compression=Compression.LZ4) + aborted + marker + batch(8, 4)

    def part() -> FetchedPartition:
        transaction = AbortedTransaction(producer_id=1, first_offset=5)
        return fetched(data, 3, aborted=AbortedTransactions([transaction]))

    left, twin = part(), part()
    undecoded, columns = left.take_undecoded(), twin.take_columns()
    assert [each.decoded() for each in undecoded] == columns
    assert [(each.batch.base_offset, each.start, each.end) for each in undecoded] == [(0, 3, 5), (8, 8, 12)]
    assert (left.next_offset, left.last_epoch, left.is_exhausted) == (twin.next_offset, twin.last_epoch, True)
    assert left.take_undecoded() == []


def test_undecoded_batches_stop_before_damage_and_are_cut() -> None:
    damaged = batch(5, 5)
    damaged[-1] ^= 1
    part = fetched(batch(0, 5) + damaged, 3)
    (whole,) = part.take_undecoded()
    assert part.next_offset == 5
    with pytest.raises(CorruptRecords):
        part.take_undecoded()
    cut = whole.cut(0, 4)
    assert cut is not None
    assert cut.is_cut
    assert cut.decoded().offsets == [3]  # type: ignore[union-attr]
    assert whole.cut(5, 9) is None
    assert whole.cut(0, 3) is None


def test_headers_are_of_all_batches_and_stop_before_damage() -> None:
    """Markers and aborted batches are included, because headers serve the inspection of a log."""
    end = EndTransactionMarker(ControlType.ABORT, 0)
    marker = marker_batch(end, producer_id=7, producer_epoch=2, timestamp=0, base_offset=5)
    written = batch(0, 5, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True)
    damaged = batch(8, 5)
    damaged[-1] ^= 1
    aborted = AbortedTransactions([AbortedTransaction(producer_id=7, first_offset=0)])
    part = fetched(written + marker + batch(6, 2) + damaged, 3, aborted=aborted)
    assert part.take_headers() == [
        (0, 4, 7, 2, 40, True, False),
        (5, 5, 7, 2, -1, True, True),
        (6, 7, -1, -1, -1, False, False),
    ]
    assert part.next_offset == 8
    with pytest.raises(CorruptRecords):
        part.take_headers()


def test_records_taken_one_by_one_are_the_same() -> None:
    part = fetched(batch(0, 5) + batch(5, 1))
    assert part.take(2)
    record = part.take_one()
    assert record is not None
    assert (record.offset, part.next_offset) == (2, 3)
    assert offsets(part.take(100)) == [3, 4, 5]
    assert part.take_one() is None


def test_a_batch_may_begin_before_what_was_asked_for() -> None:
    assert offsets(fetched(batch(0, 5), 3).take(10)) == [3, 4]


def test_a_cut_last_batch_is_ignored() -> None:
    data = batch(0, 5) + batch(5, 5)[:-1]
    part = fetched(data)
    assert part.end_offset == 5
    assert offsets(part.take(10)) == list(range(5))


def test_a_partial_batch_alone_is_an_error() -> None:
    with pytest.raises(
        CorruptRecords, match="t-1: the batch fetched from offset 0 is unreadable: 40 bytes contain no complete"
    ):
        fetched(batch(0, 5)[:40])


def test_s53_control_batches_are_hidden_and_the_position_passes_them() -> None:
    end = EndTransactionMarker(ControlType.COMMIT, 0)
    control = marker_batch(end, producer_id=1, producer_epoch=0, timestamp=0, base_offset=2)
    part = fetched(batch(0, 2) + control)
    assert offsets(part.take(10)) == [0, 1]
    assert part.is_exhausted
    assert part.next_offset == part.end_offset == 3


def test_s53_aborted_batches_are_hidden() -> None:
    aborted = AbortedTransactions([AbortedTransaction(producer_id=9, first_offset=0)])
    data = batch(0, 2, producer_id=9, transactional=True) + batch(2, 2)
    assert offsets(fetched(data, aborted=aborted).take(10)) == [2, 3]


def test_the_crc_is_checked_unless_not_wanted() -> None:
    good, bad = batch(0, 2), batch(2, 2)
    bad[-2] ^= 1  # damages the last value
    part = fetched(good + bad)
    assert offsets(part.take(10)) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecords, match="from offset 2 is unreadable: the CRC does not match; seek behind it"):
            part.take(10)
    assert offsets(fetched(good + bad, check_crcs=False).take(10)) == [0, 1, 2, 3]


def test_log_append_time_stamps_all_records() -> None:
    data = batch(0, 2)
    data[22] |= 0x08
    data[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = (999).to_bytes(8, "big")
    data[CRC_AT : CRC_AT + 4] = batch_crc(data).to_bytes(4, "big")
    LEADER_EPOCH.pack_into(data, LEADER_EPOCH_AT, 4)
    assert [(record.timestamp_ms, record.timestamp_type) for record in fetched(data).take(5)] == [(999, 1), (999, 1)]


def test_the_epoch_is_that_of_the_last_record_taken() -> None:
    part = fetched(batch(0, 2, partition_leader_epoch=3) + batch(2, 2, partition_leader_epoch=5))
    epochs = [part.last_epoch]
    for limit in (1, 1, 1):
        part.take(limit)
        epochs.append(part.last_epoch)
    assert epochs == [-1, 3, 3, 5]
    assert part.take_one() is not None
    assert part.take_one() is None
    assert part.last_epoch == 5
    whole = fetched(batch(0, 2, partition_leader_epoch=3))
    assert len(whole.take(10)) == 2
    assert whole.last_epoch == 3


@pytest.mark.parametrize("base", [2**63 - 1, 2**63 - 2])
def test_the_largest_possible_offset_is_corrupt(base: int) -> None:
    data = batch(0, 2)
    BASE_OFFSET.pack_into(data, 0, base)
    with pytest.raises(CorruptRecords, match="is unreadable"):
        fetched(data).take(10)


def test_a_batch_behind_the_last_one_is_corrupt() -> None:
    part = fetched(batch(0, 2) + batch(2**40, 1) + batch(2, 1))
    assert offsets(part.take(2)) == [0, 1]
    with pytest.raises(CorruptRecords, match=f"offset {2**40} comes before offset 2"):
        part.take(10)


def test_the_epoch_of_a_position_is_that_of_the_batch_before_it_also_of_a_marker() -> None:
    """The position must have the marker's leader epoch: with the epoch of the last record, the log would seem to end
    before the marker.
    """
    marker = marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        producer_id=1,
        producer_epoch=0,
        timestamp=1,
        base_offset=2,
        partition_leader_epoch=4,
    )
    data = bytes(batch(0, 2, partition_leader_epoch=3)) + bytes(marker)
    behind = fetched(data)
    assert behind.end_epoch == 4
    assert offsets(behind.take(2)) == [0, 1]
    assert (behind.next_offset, behind.last_epoch) == (2, 3)
    assert behind.take(1) == []
    assert (behind.next_offset, behind.last_epoch) == (3, 4)
    between = fetched(data + bytes(batch(3, 1, partition_leader_epoch=6)))
    assert offsets(between.take(2)) == [0, 1]
    assert between.take_one() is not None
    assert (between.next_offset, between.last_epoch, between.end_epoch) == (4, 6, 6)
