"""Tests the verdict of `bench/workers_kill.py`: lost, doubled and torn transactions are counted."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
PARTITIONS = 2
WHOLE = Counter({(1, 0): 1, (1, 1): 1})
"""Transaction 1, with its records in partitions 0 and 1."""


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return importlib.import_module("transaction_verdict")


@pytest.mark.parametrize(
    ("ended", "seen", "lost", "twice", "torn"),
    [
        ("committed", WHOLE, 0, 0, 0),
        ("committed", Counter({(1, 0): 1}), 1, 0, 0),
        ("committed", WHOLE + Counter({(1, 0): 1}), 0, 1, 0),
        ("committed", Counter({(1, 0): 2}), 1, 1, 0),
        ("aborted", Counter(), 0, 0, 0),
        ("aborted", WHOLE, 0, 0, 1),
        ("unknown", WHOLE, 0, 0, 0),
        ("unknown", Counter(), 0, 0, 0),
        ("unknown", Counter({(1, 1): 1}), 0, 0, 1),
    ],
)
def test_each_contradiction_is_counted(
    verdicts: Any, ended: str, seen: Counter[tuple[int, int]], lost: int, twice: int, torn: int
) -> None:
    history = verdicts.History(**{ended: {1}})
    assert verdicts.judged(history, seen, PARTITIONS) == verdicts.Verdict(lost, twice, torn)
