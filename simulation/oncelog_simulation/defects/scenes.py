"""Defects that need a rare situation: each is hunted with the scene that brings it about."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

FAULTS: Final[tuple[str, ...]] = ()
"""No fault strikes but those of the scene."""

DEFECTS: Final = (
    Defect(
        "truncation-leaves-snapshot",
        "a truncation leaves a snapshot of producers above the end of the log",
        "oncelog_broker.log.producers.producers",
        "        names = self._snapshots.remove_above(log_end_offset)\n        self.aborted.truncate_to",
        "        names = self._snapshots.file_names()\n        self.aborted.truncate_to",
        (),
        40,
        scene="cut-off leader",
    ),
    Defect(
        "truncation-passes-markers",
        "after a truncation, the last stable offset passes a marker that is not replicated",
        "oncelog_broker.log.producers.producers",
        "        self._restore(segments, names, log_end_offset)\n        self.state.hold_back(unreplicated)\n",
        "        self._restore(segments, names, log_end_offset)\n",
        (),
        60,
        scene="cut-off leader",
    ),
    Defect(
        "synced-not-lowered",
        "a truncation leaves the synced offset above the end of the log",
        "oncelog_broker.log.trimmer",
        "        state.synced_offset = min(offset, state.synced_offset)\n",
        "",
        (),
        20,
        scene="cut-off leader",
    ),
    Defect(
        "older-isr-adopted",
        "a leader uses an ISR from the metadata that is older than its controller's last response",
        "oncelog_broker.replication.isr",
        "        if not is_new_epoch and partition_epoch < self.partition_epoch:\n            return False\n",
        "",
        (),
        20,
        scene="older image",
    ),
    Defect(
        "list-offsets-above-stable",
        "ListOffsets answers a read_committed client with the high watermark",
        "oncelog_broker.server.records.list_offsets",
        "    upper_bound = partition.upper_bound(isolation_level)\n",
        "    upper_bound = partition.high_watermark\n",
        (),
        20,
        scene="cut-off leader",
    ),
)
