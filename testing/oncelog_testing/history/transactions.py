"""Checks transactions: their records, and the offsets committed with them, are visible together or not at all.

Committed offsets are known from OffsetFetch responses. An offset is visible if a response has it and no other commit
can have set it. An offset is missing if a response has a smaller offset after the transaction had certainly taken
effect. This does not count if another commit may have set the smaller offset: the commit of a member that was behind,
or a reset of the group.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from oncelog_testing.history.events import NOT_YET, Commit, End, OffsetRead, Outcome, Place, Send, Transaction
from oncelog_testing.history.recorder import History
from oncelog_testing.history.records import Found, is_missing, offsets_by_value
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test

WHEN_ALL_IS_OVER: Final = sys.maxsize


def transaction_violations(history: History) -> Iterator[Violation]:
    found = {place: offsets_by_value(records) for place, records in history.final.items()}
    told = Told(history)
    sends, commits = history.sends_by_transaction(), history.commits_by_transaction()
    for transaction in history.transactions:
        if transaction.end is not End.ABORTED:
            yield from _violations_of(
                transaction, sends.get(transaction, []), commits.get(transaction, []), history, found, told
            )


def _violations_of(
    transaction: Transaction, sends: list[Send], commits: list[Commit], history: History, found: Found, told: Told
) -> Iterator[Violation]:
    is_whole = transaction.end is End.COMMITTED  # a producer commits only acknowledged records
    missing = [send for send in sends if is_missing(send, found, is_whole)]
    shown = [send.place for send in sends if send.value in found.get(send.place, ())]
    seen = [history.final_at.get(place, WHEN_ALL_IS_OVER) for place in shown]
    seen += [at for commit in commits if (at := told.seen_at(commit)) != NOT_YET]
    sure_at = transaction.ended if is_whole and transaction.ended != NOT_YET else min(seen, default=NOT_YET)
    gone = []
    if sure_at != NOT_YET:
        last = {(commit.group, commit.place): commit for commit in commits if _counts(commit, is_whole)}
        gone = [commit for commit in last.values() if told.is_missing(commit, max(sure_at, commit.answered))]
    if seen and (missing or gone):
        what = [str([send.value for send in missing])] if missing else []
        what += [f"offset {commit.offset} of {commit.group} in {commit.place}" for commit in gone]
        yield Violation(Kind.TORN, f"{transaction}: {', '.join(what)} missing")
    elif missing and is_whole:
        yield Violation(Kind.LOST, f"all of {transaction}")


def _counts(commit: Commit, is_whole: bool) -> bool:
    """Return whether the record must exist if the transaction is visible."""
    return commit.outcome is Outcome.ACKNOWLEDGED or (is_whole and commit.outcome is not Outcome.FAILED)


class Told:
    """The recorded OffsetFetch responses, by group and partition."""

    def __init__(self, history: History) -> None:
        commits: defaultdict[tuple[str, Place], list[Commit]] = defaultdict(list)
        reads: defaultdict[tuple[str, Place], list[OffsetRead]] = defaultdict(list)
        for commit in history.commits:
            if _may_have_been_done(commit):
                commits[commit.group, commit.place].append(commit)
        for read in history.offset_reads:
            reads[read.group, read.place].append(read)
        for (group, place), end in history.processed.items():
            reads[group, place].append(OffsetRead(group, place, end, WHEN_ALL_IS_OVER, WHEN_ALL_IS_OVER))
        self._of = {where: ToldOfOne(commits[where], those) for where, those in reads.items()}

    def seen_at(self, commit: Commit) -> int:
        """Return the time of the first OffsetFetch response that certainly has this commit's offset; NOT_YET if no
        response has it.
        """
        told = self._of.get((commit.group, commit.place))
        return NOT_YET if told is None else told.seen_at(commit)

    def is_missing(self, commit: Commit, sure_at: int) -> bool:
        """Return whether a response after `sure_at` does not have the commit, although the commit was certainly in
        effect from `sure_at` on.
        """
        told = self._of.get((commit.group, commit.place))
        return told is not None and told.is_missing(commit, sure_at)


class ToldOfOne:
    """The responses to fetches of one group's committed offsets in one partition."""

    def __init__(self, commits: list[Commit], reads: list[OffsetRead]) -> None:
        self._commits: defaultdict[int, list[Commit]] = defaultdict(list)
        """The commits, by the offset that they commit."""
        for commit in commits:
            self._commits[commit.offset].append(commit)
        self._reads = sorted(reads, key=lambda read: read.asked)
        self._asked = [read.asked for read in self._reads]
        self._least = list(accumulate((read.offset for read in reversed(self._reads)), min))[::-1]
        """For each read, the smallest offset that this read or a later read returned."""
        self._of_offset: defaultdict[int, list[OffsetRead]] = defaultdict(list)
        for read in self._reads:
            self._of_offset[read.offset].append(read)

    def seen_at(self, commit: Commit) -> int:
        if commit.outcome is Outcome.FAILED:
            return NOT_YET
        others = [other for other in self._commits[commit.offset] if other.transaction is not commit.transaction]
        first_other = min((other.asked for other in others), default=WHEN_ALL_IS_OVER + 1)
        times = (read.answered for read in self._of_offset.get(commit.offset, ()))
        return min((at for at in times if commit.asked < at < first_other), default=NOT_YET)

    def is_missing(self, commit: Commit, sure_at: int) -> bool:
        first = bisect_right(self._asked, sure_at)
        if first == len(self._reads) or self._least[first] >= commit.offset:
            return False
        if any(read.offset >= commit.offset and read.answered > commit.asked for read in self._reads):
            # the offset is not missing: it, or a higher one, was visible at some time. If a later offset is smaller,
            # the committed offset went back, which another check reports
            return False
        return any(
            read.offset < commit.offset and not self._is_of_a_later_one(read, commit) for read in self._reads[first:]
        )

    def _is_of_a_later_one(self, read: OffsetRead, commit: Commit) -> bool:
        """Return whether this response may belong to a commit that took effect after `commit`."""
        return any(
            other is not commit and other.asked < read.answered and not _is_over_before(other, commit.asked)
            for other in self._commits.get(read.offset, ())
        )


def _may_have_been_done(commit: Commit) -> bool:
    next_is_aborted = commit.transaction is not None and commit.transaction.end is End.ABORTED
    return commit.outcome is not Outcome.FAILED and not next_is_aborted


def _is_over_before(commit: Commit, at: int) -> bool:
    """Return whether the commit can no longer take effect from `at` on."""
    if commit.transaction is not None:
        return commit.transaction.end is End.COMMITTED and NOT_YET < commit.transaction.ended < at
    return commit.outcome is Outcome.ACKNOWLEDGED and commit.answered < at
