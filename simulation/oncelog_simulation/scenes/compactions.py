"""Scenes in which the compaction of a log is interrupted, or meets a transaction that is still open."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scenes.scene import FAST, Scene, scene
from oncelog_simulation.scenes.stage import Stage
from oncelog_simulation.workloads.tables import TABLE
from oncelog_testing.history.events import Place

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
COMPACTED: Final = {**FAST, "log.cleaner.backoff.ms": ("100",)}
"""Settings with which the logs of the table are compacted several times in a second."""
MOST_RENAMES: Final = 5
"""A compaction that replaces two segments renames some six files to .deleted, and three or four from .swap."""


@scene(
    SCENES,
    "interrupted compaction",
    "a broker dies between the renames of one compaction, and half of the time its machine loses its power then",
    settings=COMPACTED,
    workloads=("table-writer",),
    actors=(),
)
async def interrupted_compaction(stage: Stage) -> bool:
    """The next start must complete the compaction if the old segments may be gone. In the end the broker leads."""
    random, machine, (place,) = stage.random, stage.random.choice(stage.brokers), stage.places(TABLE)
    if random.random() < 0.5:
        await stage.lead(machine, place)
    machine.hold()
    troubles = machine.disk_troubles
    troubles.doomed_rename, troubles.renames_left = random.choice((".swap", ".deleted")), random.randrange(MOST_RENAMES)
    await stage.until(lambda: not machine.is_running, f"{machine.name} renames the files of a compaction")
    if random.random() < 0.5:
        machine.cut_power()
    machine.let_start()
    await stage.until_serving(machine)
    stage.check_logs(place)
    await stage.until_in_sync(place, machine)
    await stage.lead(machine, place)
    await stage.pause(0.1, 0.5)
    return True


@scene(
    SCENES,
    "compacted below a transaction",
    "a transaction has records in closed segments of a compacted log for a while, and is mostly aborted then",
    settings=COMPACTED,
    workloads=("table-writer",),
    actors=("slow-table-writer",),
)
async def compacted_below_a_transaction(stage: Stage) -> bool:
    """The cleaner runs several times before the transaction ends. Sometimes another broker leads meanwhile."""
    random, (place,) = stage.random, stage.places(TABLE)
    machine = stage.leader(place)
    await stage.until(lambda: _is_open_in_closed_segment(stage, machine, place), "a transaction in a closed segment")
    await stage.pause(0.2, 0.6)
    if random.random() < 0.3:
        await stage.lead(stage.followers(place)[0], place)
    await stage.pause(0.5, 1.5)
    return True


def _is_open_in_closed_segment(stage: Stage, machine: BrokerMachine, place: Place) -> bool:
    """Return whether a closed segment of the broker's replica has records of an open transaction."""
    replica = stage.replica(machine, place)
    if replica is None:
        return False
    oldest, closed = replica.log.producers.state.oldest_open, replica.log.trimmer.closed_segments
    return oldest is not None and bool(closed) and oldest.transaction_first_offset < closed[-1].next_offset
