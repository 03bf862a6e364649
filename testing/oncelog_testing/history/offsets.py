"""Checks committed offsets: members of a group commit increasing offsets, so if a committed offset goes back, a commit
was lost, or a zombie has committed. After a reset of the group's offsets, the check starts again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from oncelog_testing.history.events import NOT_YET, Commit, End, OffsetRead, Outcome, Place
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test

NO_OFFSET = -1


def offset_violations(history: History) -> Iterator[Violation]:
    commits: defaultdict[tuple[str, Place], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.place].append(commit)
    all_known = {where: Known(those) for where, those in commits.items()}
    for (group, place), known in all_known.items():
        for commit in known.commits:
            least = known.sure_before(commit.asked, commit.answered)
            if commit.outcome is Outcome.ACKNOWLEDGED and commit.offset < least and not commit.is_reset:
                yield Violation(Kind.OFFSET_BACK, f"{group} in {place}: {commit.offset} accepted after {least}")
    for read in history.offset_reads:
        yield from _violations_of_read(read, all_known.get((read.group, read.place)) or Known([]))


class Known:
    """The recorded offset commits of one group in one partition."""

    def __init__(self, commits: list[Commit]) -> None:
        self.commits = commits
        self.of_offset: defaultdict[int, list[Commit]] = defaultdict(list)
        for commit in commits:
            self.of_offset[commit.offset].append(commit)
        self._resets = [commit for commit in commits if commit.is_reset and commit.outcome is not Outcome.FAILED]
        self._sure = sorted(
            ((at, commit) for commit in commits if (at := _sure_at(commit)) != NOT_YET), key=lambda each: each[0]
        )
        self._times = [at for at, _ in self._sure]
        self._greatest = list(accumulate((commit.offset for _, commit in self._sure), max))

    def sure_before(self, at: int, until: int) -> int:
        """Return the greatest offset that was certainly committed before `at`, without offsets that a reset may have
        replaced before `until`.
        """
        count = bisect_left(self._times, at)
        resets = [reset for reset in self._resets if reset.asked < max(at, until)]
        if not resets:
            return self._greatest[count - 1] if count else NO_OFFSET
        left = [
            commit.offset
            for _, commit in self._sure[:count]
            if all(reset is commit or _is_over_before(reset, commit.asked) for reset in resets)
        ]
        return max(left, default=NO_OFFSET)


def _is_over_before(reset: Commit, at: int) -> bool:
    return reset.outcome is Outcome.ACKNOWLEDGED and reset.answered < at


def _sure_at(commit: Commit) -> int:
    """Return the time at which the commit had certainly taken effect."""
    if commit.outcome is not Outcome.ACKNOWLEDGED:
        return NOT_YET
    if commit.transaction is None:
        return commit.answered
    return commit.transaction.ended if commit.transaction.end is End.COMMITTED else NOT_YET


def _violations_of_read(read: OffsetRead, known: Known) -> Iterator[Violation]:
    where = f"{read.group} in {read.place}"
    least = known.sure_before(read.asked, read.answered)
    if read.offset < least:
        yield Violation(Kind.OFFSET_BACK, f"{where}: {read.offset} is read, after {least} was committed")
    if read.offset == NO_OFFSET:
        return
    that = [commit for commit in known.of_offset.get(read.offset, ()) if commit.asked < read.answered]
    if not that:
        yield Violation(Kind.OFFSET_INVENTED, f"{where}: {read.offset}")
    elif all(commit.transaction is not None and commit.transaction.end is End.ABORTED for commit in that):
        yield Violation(Kind.ABORTED, f"{where}: {read.offset} of {that[0].transaction}")
    elif all(commit.outcome is Outcome.FAILED for commit in that):
        yield Violation(Kind.OFFSET_INVENTED, f"{where}: {read.offset}, which was refused")
