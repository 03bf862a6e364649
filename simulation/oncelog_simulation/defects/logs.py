"""Defects of the log: sequences, snapshots of producers, leader epochs, the last stable offset, fsync, compaction."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

WRITES: Final = ("writer-1", "writer-2", "reader-committed")
PAYS: Final = ("payer-1", "payer-2", "zombie-1", "reader-committed", "ends-watcher")
TABLES: Final = ("table-writer", "writer-1")

FAULTS: Final = ("kill", "kill at a write", "stop", "pause", "session ends", "partition")
"""The faults that bring these defects to light, unless a defect names its own."""

DEFECTS: Final = (
    Defect(
        "any-sequence-is-next",
        "the sequence of a batch is not compared with the last one: a retry is appended again",
        "oncelog_broker.log.producers.state",
        "            elif in_sequence(last, sequence) or sequence < 0:\n",
        "            elif last >= 0 or sequence < 0:\n",
        ("writer-1", "writer-2", "zombie-1", "zombie-2"),
        10,
    ),
    Defect(
        "old-epoch-accepted",
        "a batch of a producer epoch that was fenced is appended",
        "oncelog_broker.log.producers.state",
        "                self._check_epoch(header, last_epoch)\n",
        "",
        PAYS,
        20,
    ),
    Defect(
        "epoch-begins-anywhere",
        "the first batch of a producer epoch may have any sequence",
        "oncelog_broker.log.producers.state",
        '        if sequence > 0:\n            self.counters.gaps += 1\n            raise KafkaError(\n                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,\n                f"epoch {epoch}',
        '        if sequence > 10**9:\n            self.counters.gaps += 1\n            raise KafkaError(\n                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,\n                f"epoch {epoch}',
        ("writer-1", "writer-2", "zombie-1", "zombie-2"),
        40,
    ),
    Defect(
        "gap-accepted",
        "a batch behind one that is missing is appended",
        "oncelog_broker.log.producers.state",
        "            else:\n                return self._out_of_sequence(header, entry)\n",
        "            elif decrement_sequence(last, sequence) < 1000:\n                return self._out_of_sequence(header, entry)\n",
        ("writer-1", "writer-2", "zombie-1", "zombie-2"),
        10,
    ),
    Defect(
        "stale-snapshot",
        "the snapshot of producers that a rolled segment gets is the one of an empty log",
        "oncelog_broker.log.producers.producers",
        "            snapshot = self._snapshots.take(offset, self.state.image())\n",
        "            snapshot = self._snapshots.take(offset, [])\n",
        (*PAYS, "writer-1"),
        60,
    ),
    Defect(
        "nothing-replayed",
        "what producers wrote behind the newest snapshot is forgotten by a restart",
        "oncelog_broker.log.producers.producers",
        "            if segment.next_offset > start:\n                found_aborted = list(self._replay(segment, start))\n",
        "            if False:\n                found_aborted = list(self._replay(segment, start))\n",
        PAYS,
        20,
    ),
    Defect(
        "open-transactions-not-restored",
        "a snapshot does not bring back which transactions are open",
        "oncelog_broker.log.producers.state",
        "            if first_offset >= 0:\n                still_open",
        "            if False:\n                still_open",
        PAYS,
        100,
    ),
    Defect(
        "lso-ignores-open-transactions",
        "the last stable offset is the high watermark, whatever transactions are open",
        "oncelog_broker.log.reader",
        "        if first_unstable >= high_watermark:\n            return high_watermark\n",
        "        if first_unstable >= 0:\n            return high_watermark\n",
        PAYS,
        10,
    ),
    Defect(
        "aborts-not-indexed",
        "an abort is not put into the transaction index of the leader",
        "oncelog_broker.log.partition_log",
        "            if aborted is not None:\n                self.producers.aborted.append(self.local.active.base_offset, aborted)\n",
        "",
        PAYS,
        10,
    ),
    Defect(
        "followers-index-no-aborts",
        "followers do not keep the transaction index: whoever leads next shows what was aborted",
        "oncelog_broker.log.producers.producers",
        "                    self.aborted.append(segment_base, aborted)\n",
        "                    pass\n",
        PAYS,
        40,
    ),
    Defect(
        "followers-know-no-producers",
        "a follower does not learn of producers from what it replicates",
        "oncelog_broker.log.partition_log",
        "            self.local.append_all(records, whole, now_ms, self.producers.follow)\n",
        "            self.local.append_all(records, whole, now_ms, lambda whole, base: None)\n",
        (*PAYS, "writer-1"),
        40,
    ),
    Defect(
        "epochs-of-followers-not-written",
        "a follower does not note the leader epochs of what it replicates",
        "oncelog_broker.log.partition_log",
        "            if batch.partition_leader_epoch > self.leader_epochs.latest_epoch:\n",
        "            if False:\n",
        WRITES,
        40,
    ),
    Defect(
        "fsync-dropped",
        "a flush does not sync the log files, and the recovery point moves all the same",
        "oncelog_broker.log.pending_flush",
        "            with suppress(FileClosed):  # its segment was deleted in the meantime and need not be durable\n                file.sync()\n",
        "            pass\n",
        WRITES,
        100,
        ("power cut", "stop", "kill"),
    ),
    Defect(
        "torn-end-kept",
        "recovery takes the log as it is, with what a power cut has torn",
        "oncelog_broker.log.segments.recovery",
        "        epochs.truncate_from_end(recovery_point, persist=False)\n",
        "        return segments\n",
        WRITES,
        60,
        ("power cut", "kill at a write"),
    ),
    Defect(
        "compaction-drops-newest",
        "the cleaner drops the newest record of a key",
        "oncelog_broker.log.compaction.compaction",
        "        return self._map.get(span.key) <= offset and not (span.is_tombstone and horizon_passed)\n",
        "        return self._map.get(span.key) != offset\n",
        TABLES,
        20,
    ),
    Defect(
        "deletion-changes-nothing",
        "DeleteRecords does not move the log start",
        "oncelog_broker.log.trimmer",
        "            self._advance_log_start(offset)\n            self.delete_below_start()\n        return state.log_start_offset\n",
        "            self.delete_below_start()\n        return offset\n",
        ("trimmer", "writer-1"),
        10,
    ),
)
