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


def test_a_stream_whose_other_end_has_lost_its_power_may_stay() -> None:
    """Seed 570066 (directed): after nine power cuts, a broker had one stream too many."""

    def streams(count: int, *, is_alive: bool) -> list[Any]:
        return [SimpleNamespace(other=SimpleNamespace(process=SimpleNamespace(is_alive=is_alive)))] * count

    def wrong(alive: int, dead: int) -> bool:
        transports = streams(alive, is_alive=True) + streams(dead, is_alive=False)
        machine = SimpleNamespace(disk=None, host=SimpleNamespace(transports=transports))
        broker: Any = SimpleNamespace(number=1, machine=machine, hosted=list)
        return bool(list(resources._beyond_level(broker, tasks=0)))

    assert not wrong(resources.MOST_STREAMS, 5)
    assert wrong(resources.MOST_STREAMS + 1, 0)
