"""The judge of resources reports what brokers keep after all clients have ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_simulation.judges import resources
from oncelog_simulation.judges.resources import Resources


@pytest.mark.parametrize(("is_damaged", "told"), [(False, ["a marker"]), (True, [])])
def test_what_waits_for_a_damaged_partition_is_not_reported(
    is_damaged: bool, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(resources, "_left", lambda _: ["a marker"])
    monkeypatch.setattr(resources, "has_only_damaged", lambda _: is_damaged)
    world: Any = SimpleNamespace(plan=SimpleNamespace(leisure=1.0))
    assert list(asyncio.run(Resources().conclude(world))) == told
