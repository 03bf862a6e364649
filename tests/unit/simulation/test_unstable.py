"""The judge of last stable offsets finds the open transactions of a log that was just opened or truncated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_simulation.judges import unstable
from oncelog_simulation.judges.committed import Batch
from oncelog_simulation.judges.unstable import first_undecided


def data(offset: int, producer_id: int) -> Batch:
    return Batch(offset, offset + 1, 0, 0, producer_id, is_transactional=True, is_control=False)


def marker(offset: int, producer_id: int) -> Batch:
    return Batch(offset, offset + 1, 0, 0, producer_id, is_transactional=True, is_control=True)


BATCHES = [data(0, 7), data(1, 8), data(2, 7), marker(3, 8), marker(4, 7), data(5, 8)]


def partition(high_watermark: int, *, is_compacted: bool = False, is_truncating: bool = False) -> Any:
    log = SimpleNamespace(
        log_start_offset=0,
        is_offline=False,
        is_paused=False,
        config=SimpleNamespace(is_compacted=is_compacted),
        state=SimpleNamespace(is_truncating=is_truncating, cleaner_checkpoint=None),
    )
    return SimpleNamespace(log=log, high_watermark=high_watermark)


@pytest.mark.parametrize(("high_watermark", "first"), [(0, None), (1, 0), (3, 0), (4, 0), (5, None), (6, 5)], ids=str)
def test_a_transaction_is_undecided_until_its_marker_is_below_the_high_watermark(
    monkeypatch: pytest.MonkeyPatch, high_watermark: int, first: int | None
) -> None:
    monkeypatch.setattr(unstable, "batches_of", lambda partition, start: BATCHES)
    assert first_undecided(partition(high_watermark)) == first


def test_a_log_that_proves_nothing_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstable, "batches_of", lambda partition, start: BATCHES)
    assert first_undecided(partition(3, is_compacted=True)) is None
    assert first_undecided(partition(3, is_truncating=True)) is None
    monkeypatch.setattr(unstable, "batches_of", lambda partition, start: None)
    assert first_undecided(partition(3)) is None
