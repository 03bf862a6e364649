"""Checks records: compares sends with the final content and with earlier reads. `transactions` checks entire
transactions.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

from oncelog_testing.history.events import NOT_YET, End, Outcome, Place, Reading, Send
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test

Found = Mapping[Place, Mapping[bytes, int]]
"""Maps partition and value to the offsets of the records with this value, for partitions whose final content is known.
"""


def record_violations(history: History) -> Iterator[Violation]:
    """Yield the violations in all partitions; for a partition whose final content is not known (`finally_holds`), only
    violations that can be detected without it.
    """
    sends = history.sends_by_value()
    found = {place: offsets_by_value(records) for place, records in history.final.items()}
    for place, records in history.final.items():
        yield from _violations_of_content(place, records, sends, found)
    yield from _lost(history, found)
    yield from _out_of_order(history, found)
    for reading in history.readings:
        yield from _violations_of_reading(history, reading, sends)


def offsets_by_value(records: list[tuple[int, bytes]]) -> dict[bytes, int]:
    """Return the offset of each value; see `Found`."""
    return {value: offset for offset, value in records}


def _violations_of_content(
    place: Place, records: list[tuple[int, bytes]], sends: dict[bytes, Send], found: Found
) -> Iterator[Violation]:
    seen: dict[bytes, int] = {}
    for offset, value in records:
        if value in seen:
            yield Violation(Kind.TWICE, f"{value!r} in {place} at {seen[value]} and {offset}")
            continue
        seen[value] = offset
        send = sends.get(value)
        if send is not None and send.place != place and value in found.get(send.place, ()):
            yield Violation(Kind.TWICE, f"{value!r} in {place} at {offset}, and in {send.place}")
            continue
        if send is None or send.place != place or send.outcome is Outcome.FAILED:
            yield Violation(Kind.INVENTED, f"{value!r} in {place} at {offset}")
            continue
        if send.offset not in (NOT_YET, offset):
            yield Violation(Kind.MOVED, f"{value!r} in {place} at {offset}, acknowledged at {send.offset}")
        if _is_aborted(send):
            yield Violation(Kind.ABORTED, f"{value!r} in {place} at {offset} of {send.transaction}")


def _is_aborted(send: Send) -> bool:
    return send.transaction is not None and send.transaction.end is End.ABORTED


def _lost(history: History, found: Found) -> Iterator[Violation]:
    for send in history.sends:
        if send.transaction is None and is_missing(send, found):
            yield Violation(Kind.LOST, f"{send.value!r} of {send.producer}, acknowledged in {send.place}")


def is_missing(send: Send, found: Found, is_sure: bool = False) -> bool:
    """Return whether the record must exist (it was acknowledged, or `is_sure`), but is missing in the known final
    content of its partition.
    """
    is_due = send.outcome is Outcome.ACKNOWLEDGED or (is_sure and send.outcome is not Outcome.FAILED)
    return is_due and send.place in found and send.value not in found[send.place]


def _out_of_order(history: History, found: Found) -> Iterator[Violation]:
    last: defaultdict[tuple[str, Place], tuple[int, bytes]] = defaultdict(lambda: (NOT_YET, b""))
    for send in history.sends:
        offset = found.get(send.place, {}).get(send.value)
        if offset is None:
            continue
        before, value = last[send.producer, send.place]
        if offset < before:
            yield Violation(
                Kind.DISORDER, f"{send.producer} sent {send.value!r} (at {offset}) after {value!r} (at {before})"
            )
        last[send.producer, send.place] = offset, send.value


def _violations_of_reading(history: History, reading: Reading, sends: dict[bytes, Send]) -> Iterator[Violation]:
    where = f"{reading.consumer} in {reading.place}"
    offsets = [offset for offset, _ in reading.records]
    for before, offset in itertools.pairwise(offsets):
        if offset <= before:
            yield Violation(Kind.READ_BACK, f"{where}: {offset} after {before}")
    for offset, value in reading.records:
        if value not in sends:
            yield Violation(Kind.INVENTED, f"{where}: {value!r} at {offset}")
    if not reading.is_committed:
        return
    for offset, value in reading.records:
        if value in sends and _is_aborted(sends[value]):
            yield Violation(Kind.ABORTED, f"{where}: {value!r} at {offset} of {sends[value].transaction}")
    if reading.place in history.final and reading.records:
        yield from _against_the_end(reading, history.final[reading.place], where)


def _against_the_end(reading: Reading, final: list[tuple[int, bytes]], where: str) -> Iterator[Violation]:
    """Check one reading of a read_committed consumer: its records must be a contiguous part of the final content,
    because committed records do not change later. `final`: the final content in offset order.
    """
    read = dict(reading.records)
    first, last = min(read), max(read)
    between = final[bisect_left(final, (first,)) : bisect_right(final, (last + 1,))]
    there = dict(between)
    for offset, value in reading.records:
        if there.get(offset) != value:
            yield Violation(
                Kind.MOVED, f"{where}: {value!r} at {offset}, but the final content is {there.get(offset)!r}"
            )
    for offset, value in between:
        if first < offset < last and offset not in read:
            yield Violation(Kind.SKIPPED, f"{where}: {value!r} at {offset}")
