"""The tables of the sizing guide are those that its commands write from the stored figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oncelog_simulation.scale.figures_file import load
from oncelog_simulation.scale.report import BEGIN, END, tables
from oncelog_simulation.scale.size import TARGET

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "sizing.md"


def test_the_costs_of_a_broker_are_the_stored_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    import kept

    assert kept.with_costs(GUIDE.read_text(), kept.load()) == GUIDE.read_text()


def test_the_table_of_cluster_sizes_is_made_of_the_stored_figures() -> None:
    written = GUIDE.read_text().split(BEGIN)[1].split(END)[0]
    assert written == tables(load(ROOT / "bench" / "scale.json"), TARGET)
