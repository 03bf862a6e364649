"""The outcome of a batch is derived from the partition leader's response."""

from __future__ import annotations

from tests.support.storage import make_batch

from oncelog.admin import LogPart
from oncelog_console.limits import MAX_BATCH_RECORDS
from oncelog_console.lookups.batch_outcomes import Outcome, judged_fresh, judged_stable, judged_unstable
from oncelog_console.lookups.records import records_of
from oncelog_protocol.messages.fetch import FetchResponse
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch

Aborted = FetchResponse.FetchableTopicResponse.PartitionData.AbortedTransaction


def batch(offset: int, producer: int | None = None) -> RecordBatch:
    header = {} if producer is None else {"producer_id": producer, "base_sequence": 0, "transactional": True}
    return RecordBatch(bytes(make_batch(b"v", base_offset=offset, **header)))


def marker(offset: int, producer: int, kind: ControlType) -> RecordBatch:
    ended = EndTransactionMarker(kind, 0)
    return RecordBatch(
        bytes(marker_batch(ended, producer_id=producer, producer_epoch=0, timestamp=1, base_offset=offset))
    )


def part(*batches: RecordBatch, aborted: tuple[tuple[int, int], ...] = ()) -> LogPart:
    named = tuple(Aborted(producer_id=producer, first_offset=first) for producer, first in aborted)
    return LogPart(0, 100, 100, batches, named)


def test_every_batch_below_the_last_stable_offset_is_decided() -> None:
    judged = judged_stable(
        part(
            batch(0),
            batch(1, 7),
            batch(2, 8),
            marker(3, 7, ControlType.ABORT),
            marker(4, 8, ControlType.COMMIT),
            batch(5, 7),
            aborted=((7, 1),),
        )
    )
    assert [each.fate for each in judged] == [
        Outcome.PLAIN,
        Outcome.ABORTED,
        Outcome.COMMITTED,
        Outcome.ABORT,
        Outcome.COMMIT,
        Outcome.COMMITTED,
    ]


def test_a_batch_above_the_last_stable_offset_is_open_or_waits_behind_one() -> None:
    judged = judged_unstable([batch(10, 7), batch(11), batch(12, 8), marker(13, 8, ControlType.COMMIT)], {7: 10, 8: 20})
    assert [each.fate for each in judged] == [Outcome.OPEN, Outcome.HELD_BACK, Outcome.HELD_BACK, Outcome.COMMIT]


def test_a_batch_appended_just_now_is_undecided() -> None:
    assert [each.fate for each in judged_fresh([batch(0), batch(1, 7)])] == [Outcome.PLAIN, Outcome.TRANSACTIONAL]


def test_a_batch_that_cannot_be_read_is_one_line_that_says_so() -> None:
    broken = bytearray(batch(3).view)
    broken[61] = 0x7F  # damages the length of the first record
    (judged,) = judged_fresh([RecordBatch(bytes(broken))])
    (shown,) = records_of(0, judged, 0)
    assert shown.error is not None
    assert (shown.offset, shown.value) == (3, None)


def test_a_batch_of_too_many_records_is_not_unpacked() -> None:
    header = bytearray(batch(3).view)
    header[57:61] = (MAX_BATCH_RECORDS + 1).to_bytes(4, "big")
    (judged,) = judged_fresh([RecordBatch(bytes(header))])
    (shown,) = records_of(0, judged, 0)
    assert "more than are looked at" in str(shown.error)


def test_a_page_begins_within_a_batch() -> None:
    (judged,) = judged_fresh([batch(3)])
    assert [record.offset for record in records_of(0, judged, 3)] == [3]
    assert list(records_of(0, judged, 4)) == []
