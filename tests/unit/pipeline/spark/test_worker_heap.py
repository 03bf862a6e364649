"""What a worker has imported is out of the collector's sight, and is looked at again only after further imports."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from oncelog_pipeline.spark import worker_heap
from oncelog_pipeline.spark.worker_heap import freeze_modules


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_heap, "_frozen_modules", 0)
    yield
    gc.unfreeze()


def test_nothing_that_was_imported_is_looked_at() -> None:
    before = len(gc.get_objects())
    freeze_modules()
    assert len(gc.get_objects()) < before / 10
    assert gc.get_freeze_count() > before / 2


def test_garbage_is_not_kept_for_ever() -> None:
    class Node:
        me: Node

    node = Node()
    node.me = node
    del node
    freeze_modules()
    gc.unfreeze()
    assert not [each for each in gc.get_objects() if type(each).__name__ == "Node"]


def test_it_is_done_again_after_an_import_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(worker_heap.gc, "freeze", lambda: frozen.append(len(sys.modules)))
    freeze_modules()
    freeze_modules()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "another_module", ModuleType("another_module"))
    freeze_modules()
    assert len(frozen) == 2
