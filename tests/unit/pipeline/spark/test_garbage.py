"""Spark's garbage collection after each task skips frozen objects."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from oncelog_pipeline.spark import garbage
from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.garbage import freeze_modules


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the state of a worker that has not run any task yet."""
    gc.unfreeze()
    monkeypatch.setattr(garbage, "_frozen_modules", 0)
    yield
    gc.unfreeze()


def test_imported_objects_are_not_collected_again() -> None:
    freeze_modules()
    assert gc.get_freeze_count() > 1000
    assert len(gc.get_objects()) < 1000


def test_freezing_is_repeated_only_after_another_import(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze_modules()
    gc.unfreeze()
    freeze_modules()
    assert not gc.get_freeze_count()
    monkeypatch.setitem(sys.modules, "imported_by_a_task", types.ModuleType("imported_by_a_task"))
    freeze_modules()
    assert gc.get_freeze_count()


def test_planning_a_write_freezes_imported_objects() -> None:
    """Planning and tasks both exclude imported objects from garbage collection (`gc.freeze`). This test uses planning,
    because planning needs no broker.
    """
    source = OncelogDataSource({"kafka.bootstrap.servers": "a:1", "topic": "t"})
    source.streamWriter(StructType([StructField("value", BinaryType())]), overwrite=False)
    assert gc.get_freeze_count()
