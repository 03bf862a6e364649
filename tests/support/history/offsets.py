"""Committed offsets. Members of a group commit forwards, so that whatever goes back was lost, or came from a zombie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.support.history.events import NOT_YET, Commit, End, OffsetRead, Outcome, Place
from tests.support.history.recorder import History
from tests.support.history.violation import Kind, Violation

NO_OFFSET = -1


def offset_violations(history: History) -> Iterator[Violation]:
    commits: defaultdict[tuple[str, Place], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.place].append(commit)
    for (group, place), those in commits.items():
        for commit in those:
            least = _sure_before(those, commit.asked)
            if commit.outcome is Outcome.ACKNOWLEDGED and commit.offset < least:
                yield Violation(Kind.OFFSET_BACK, f"{group} in {place}: {commit.offset} accepted after {least}")
    for read in history.offset_reads:
        yield from _violations_of_read(read, commits[read.group, read.place])


def _sure_before(commits: list[Commit], at: int) -> int:
    """The offset that was certainly committed before `at`."""
    return max((commit.offset for commit in commits if NOT_YET < _sure_at(commit) < at), default=NO_OFFSET)


def _sure_at(commit: Commit) -> int:
    """When it had certainly taken effect."""
    if commit.outcome is not Outcome.ACKNOWLEDGED:
        return NOT_YET
    if commit.transaction is None:
        return commit.answered
    return commit.transaction.ended if commit.transaction.end is End.COMMITTED else NOT_YET


def _violations_of_read(read: OffsetRead, commits: list[Commit]) -> Iterator[Violation]:
    where = f"{read.group} in {read.place}"
    least = _sure_before(commits, read.asked)
    if read.offset < least:
        yield Violation(Kind.OFFSET_BACK, f"{where}: {read.offset} is read, after {least} was committed")
    if read.offset == NO_OFFSET:
        return
    that = [commit for commit in commits if commit.offset == read.offset and commit.asked < read.answered]
    if not that:
        yield Violation(Kind.OFFSET_INVENTED, f"{where}: {read.offset}")
    elif all(commit.transaction is not None and commit.transaction.end is End.ABORTED for commit in that):
        yield Violation(Kind.ABORTED, f"{where}: {read.offset} of {that[0].transaction}")
    elif all(commit.outcome is Outcome.FAILED for commit in that):
        yield Violation(Kind.OFFSET_INVENTED, f"{where}: {read.offset}, which was refused")
