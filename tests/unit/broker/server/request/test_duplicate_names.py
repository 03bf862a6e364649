"""However many names a request has, the names are counted in steps."""

from __future__ import annotations

from collections import Counter

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.server.request.duplicate_names import NAMES_PER_STEP, counted


def test_mentions_are_counted_in_steps() -> None:
    names = [f"topic-{number % 7_000}" for number in range(50_000)]
    assert run_steps(counted(names)) == Counter(names)
    assert sum(1 for _ in counted(names)) == 50_000 / NAMES_PER_STEP
    assert run_steps(counted([])) == Counter()
