"""A full garbage collection visits few objects, and dead reference cycles are freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog_broker.broker import Broker
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.runtime.garbage import FREEZE_AT, THRESHOLDS, keep_collections_short, pause_collections

YOUNG, MIDDLE, OLD = THRESHOLDS
MOST_LOOKED_AT = FREEZE_AT + (OLD + 2) * MIDDLE * YOUNG
KEPT = 100_000
ROUNDS = 50_000


class Looked:
    """Records how many objects each full collection visits."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            self.at.append(len(gc.get_objects()))  # frozen objects are not counted


@pytest.fixture
def looked() -> Iterator[Looked]:
    undo = keep_collections_short()
    looked = Looked()
    gc.callbacks.append(looked)
    yield looked
    gc.callbacks.remove(looked)
    undo()


class Knot:
    """An object that refers to itself, and so forms a reference cycle."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


def test_a_full_collection_goes_through_few_objects_however_many_are_kept(looked: Looked) -> None:
    kept = [[number] for number in range(KEPT)]
    for _ in range(ROUNDS):
        Knot()
    assert len(kept) == KEPT
    assert looked.at
    assert max(looked.at) <= MOST_LOOKED_AT


def test_a_dead_reference_cycle_is_freed(looked: Looked) -> None:
    kept = []
    most = 0
    for number in range(ROUNDS):
        kept.append([number])
        Knot()
        most = max(most, Knot.alive)
    gc.collect()
    assert most <= MOST_LOOKED_AT
    assert Knot.alive < ROUNDS // 100, "but for a few that were in the middle of it when others were frozen"


def test_undoing_the_tuning_restores_the_garbage_collector() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    keep_collections_short()()
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0


async def test_a_start_leaves_hardly_any_reference_cycles(tmp_path: Path) -> None:
    """A start runs without collections, and its objects are frozen without a collection."""
    config = BrokerConfig.of({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    broker = Broker(config)
    gc.collect()
    gc.disable()
    try:
        await broker.start()
        found = gc.collect()
    finally:
        gc.enable()
        await broker.stop()
    assert found < 1000


def test_collections_run_again_after_a_pause() -> None:
    pause_collections()
    undo = keep_collections_short(after_pause=True)
    assert gc.isenabled()
    undo()
