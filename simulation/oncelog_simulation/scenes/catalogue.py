"""The table of all scenes: the name of a scene -> the scene."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_simulation.scenes import (
    compactions,
    controllers,
    coordinators,
    cut_off_leaders,
    directories,
    failed_starts,
    failing_disks,
    grown_logs,
    late_messages,
    left_behind,
    moves,
    restored_stores,
    returning_brokers,
    startup_files,
    writes,
)
from oncelog_simulation.scenes.scene import Scene

SCENES: Final[Mapping[str, Scene]] = {
    name: scene
    for room in (
        *(cut_off_leaders, grown_logs, left_behind, writes, directories, failing_disks, returning_brokers),
        *(moves, late_messages, controllers, coordinators),
        *(compactions, startup_files, restored_stores, failed_starts),
    )
    for name, scene in room.SCENES.items()
}
