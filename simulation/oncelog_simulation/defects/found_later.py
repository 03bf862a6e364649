"""Defects that no seed found until a scene, a judge or a case of a workload was written for them."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

FAULTS: Final = ("kill", "stop", "session ends")
"""The faults that strike while these defects are hunted, unless a defect has a scene."""

DEFECTS: Final = (
    Defect(
        "marker-lets-any-sequence-follow",
        "after a marker, the first batch of the new producer epoch may have any sequence",
        "oncelog_broker.log.producers.state",
        "            elif in_sequence(last, sequence) or sequence < 0:\n",
        "            elif last < 0 or in_sequence(last, sequence) or sequence < 0:\n",
        ("zombie-1", "zombie-2"),
        20,
    ),
    Defect(
        "compaction-not-completed",
        "a start drops the new segments of an interrupted compaction, although the old segments are gone",
        "oncelog_broker.log.segments.recovery",
        "        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):\n            disk.remove(os.path.join(directory, name))\n    if swaps:\n",
        "        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)):\n            disk.remove(os.path.join(directory, name))\n    if False:\n",
        (),
        10,
        scene="interrupted compaction",
    ),
    Defect(
        "compaction-passes-open-transactions",
        "the cleaner compacts records above the last stable offset",
        "oncelog_broker.upkeep.cleaning",
        "cleanable_range_of(log, upper_bound=partition.last_stable_offset, now_ms=now_ms)",
        "cleanable_range_of(log, upper_bound=partition.high_watermark, now_ms=now_ms)",
        (),
        20,
        scene="compacted below a transaction",
    ),
    Defect(
        "recovery-point-kept-at-truncation",
        "a truncation does not lower the recovery point in the checkpoint",
        "oncelog_broker.log.trimmer",
        "            if self.before_truncation is not None:\n",
        "            if False:\n",
        (),
        20,
        scene="killed after a truncation",
    ),
    Defect(
        "past-batches-not-written",
        "the file with the past batches of producers is not written",
        "oncelog_broker.log.producers.snapshot",
        "        if self._entries:\n            window",
        "        if False:\n            window",
        (),
        20,
        scene="copies after a kill",
    ),
    Defect(
        "leads-below-epoch-of-log",
        "a broker leads although its log has a later leader epoch than the metadata store",
        "oncelog_broker.replication.lost_epochs",
        "        if not is_lost or partition.log.is_offline:\n",
        "        if not is_lost or isinstance(role, Lead) or partition.log.is_offline:\n",
        (),
        20,
        scene="lost elections",
    ),
    Defect(
        "failed-start-closes-cleanly",
        "a start that could not note that its logs may lack records closes them with the mark of a clean shutdown",
        "oncelog_broker.assembly.storage",
        "UNKNOWN_BROKER_EPOCH, is_clean=logs.was_closed_cleanly)",
        "UNKNOWN_BROKER_EPOCH, is_clean=True)",
        (),
        20,
        scene="failed first start",
    ),
)
