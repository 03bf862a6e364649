"""Runs all checks on a history, and returns all violations."""

from __future__ import annotations

from collections.abc import Collection

from oncelog_testing.history.offsets import offset_violations
from oncelog_testing.history.processing import processing_violations
from oncelog_testing.history.recorder import History
from oncelog_testing.history.records import record_violations
from oncelog_testing.history.replicas import replica_violations
from oncelog_testing.history.shares import share_violations
from oncelog_testing.history.transactions import transaction_violations
from oncelog_testing.history.verdict import Verdict
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test


def violations(history: History) -> list[Violation]:
    """Return all violations in a history. Raises ValueError for a history that cannot be judged."""
    history.settle_partitions()
    checks = (
        record_violations,
        transaction_violations,
        processing_violations,
        offset_violations,
        share_violations,
        replica_violations,
    )
    return [violation for check_one in checks for violation in check_one(history)]


def verdict(history: History, *, apart_from: Collection[Kind] = ()) -> Verdict:
    """`apart_from`: violations that the test's fault may cause."""
    return Verdict(history, [violation for violation in violations(history) if violation.kind not in apart_from])


def check(history: History, *, apart_from: Collection[Kind] = ()) -> None:
    """Check the history. Raises AssertionError with the verdict if there are violations."""
    found = verdict(history, apart_from=apart_from)
    if not found:
        raise AssertionError(str(found))
