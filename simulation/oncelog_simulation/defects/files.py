"""Defects of the files that a log keeps beside its batches: checkpoints, snapshots, indexes, leader epochs."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

WRITES: Final = ("writer-1", "writer-2", "reader-committed")
PAYS: Final = ("payer-1", "payer-2", "zombie-1", "reader-committed", "ends-watcher")

FAULTS: Final = ("kill", "kill at a write", "stop", "session ends", "partition", "power cut")
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
    Defect(
        "torn-checkpoint-read",
        "a checkpoint of which a power cut has left a part is taken for a whole one",
        "oncelog_broker.log.checkpoints",
        """        if data and not data.endswith(b"\\n"):
            raise ValueError("the line is incomplete")
        number = 0
        if len(lines) < 2:
            raise ValueError("the version or the number of entries is missing")
        if int(lines[0]) != CHECKPOINT_VERSION:
            raise ValueError(f"version {lines[0]:.20}, only {CHECKPOINT_VERSION} is supported")
        number, expected = 1, int(lines[1])
        if expected != len(lines) - 2:
            raise ValueError(f"{expected} entries are announced, but {len(lines) - 2} found")
""",
        "        number = 0\n",
        WRITES,
        20,
        ("power cut", "session ends", "kill at a write"),
    ),
    Defect(
        "aborts-not-rebuilt",
        "a restart does not rebuild the transaction index of the batches that it replays",
        "oncelog_broker.log.producers.producers",
        "        self.aborted.replace_from(start, aborted)\n",
        "",
        PAYS,
        20,
        ("power cut", "kill at a write", "session ends"),
    ),
    Defect(
        "log-start-not-checkpointed",
        "the log start that DeleteRecords has set is not written to the checkpoint",
        "oncelog_broker.log.flusher",
        "        return start if start > 0 and not is_told else None\n",
        "        return None\n",
        ("trimmer", "writer-1"),
        40,
        ("kill", "kill of all", "stop"),
    ),
    Defect(
        "epochs-not-cut",
        "a truncation leaves the leader epochs of the records that it removes",
        "oncelog_broker.log.leader_epochs",
        "        self._replace([entry for entry in self._entries if entry.start_offset < end_offset], persist=persist)\n",
        "        pass\n",
        WRITES,
        20,
        ("session ends", "isolation", "partition", "leadership flaps"),
    ),
    Defect(
        "stamps-not-compared",
        "a start takes the saved state of a closed log although the log has changed since",
        "oncelog_broker.log.directories.closed_logs",
        "        if disk.stamp(path) != self.directory:\n            return False\n        for segment, stamp in zip(self.closed.segments, self.files, strict=True):\n            if segment.is_made and disk.stamp(_log_file(path, segment.base_offset)) != stamp:\n                return False\n        return True\n",
        "        return True\n",
        WRITES,
        10,
        (
            "kill",
            "stop",
            "rolling restart",
        ),
    ),
    Defect(
        "recovery-point-too-high",
        "a flush moves the recovery point to the log end instead of the end of the synced records",
        "oncelog_broker.log.flusher",
        "            state.recovery_point = max(state.recovery_point, pending.up_to)\n",
        "            state.recovery_point = max(state.recovery_point, self._local.log_end_offset)\n",
        WRITES,
        20,
        (
            "kill",
            "stop",
            "power cut",
        ),
    ),
)
