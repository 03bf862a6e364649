"""All that is wrong with a history."""

from __future__ import annotations

from collections.abc import Collection

from tests.support.history.offsets import offset_violations
from tests.support.history.processing import processing_violations
from tests.support.history.recorder import History
from tests.support.history.records import record_violations
from tests.support.history.replicas import replica_violations
from tests.support.history.violation import Kind, Violation

SHOWN = 20


def violations(history: History) -> list[Violation]:
    checks = (record_violations, processing_violations, offset_violations, replica_violations)
    return [violation for check_one in checks for violation in check_one(history)]


def check(history: History, *, apart_from: Collection[Kind] = ()) -> None:
    """Raises AssertionError if anything is wrong. `apart_from`: what the fault that the test makes may bring about."""
    found = [violation for violation in violations(history) if violation.kind not in apart_from]
    shown = "\n".join(map(str, found[:SHOWN]))
    assert not found, f"{len(found)} violations:\n{shown}"
