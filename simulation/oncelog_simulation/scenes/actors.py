"""The clients of scenes: they write to the scene's topic, whose segments are so small that each has few batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from oncelog_simulation.scenes.stable_watcher import StableWatcher
from oncelog_simulation.scenes.stage import TOPIC
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.transactions import TransactionalWriter
from oncelog_simulation.workloads.workload import ClientWorkload
from oncelog_simulation.workloads.writers import IdempotentWriter


class ScenePayer(TransactionalWriter):
    """Writes transactions to the scene's topic."""

    topics = (TOPIC,)


ALL: Final[Mapping[str, Callable[[Notes, str], ClientWorkload]]] = {
    "scene-writer-1": lambda notes, name: IdempotentWriter(notes, name, TOPIC),
    "scene-writer-2": lambda notes, name: IdempotentWriter(notes, name, TOPIC),
    "scene-payer-1": ScenePayer,
    "scene-payer-2": ScenePayer,
    "scene-payer-3": ScenePayer,
    "stable-watcher": StableWatcher,
}
"""The actors by name."""
