"""Defects of replication: the high watermark, the in-sync replicas, and how followers append and truncate."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

WRITES: Final = ("writer-1", "writer-2", "reader-committed", "reader-uncommitted", "ends-watcher")
MOVES: Final = (*WRITES, "mover")

FAULTS: Final = ("kill", "pause", "stop", "partition", "one-way partition", "isolation", "session ends", "slow links")
"""The faults that make these defects visible, unless a defect names its own."""

DEFECTS: Final = (
    Defect(
        "last-follower-counts",
        "the high watermark is the log end of the last follower, whatever the others have",
        "oncelog_broker.replication.high_watermark",
        "        end = min(end, follower_end)\n",
        "        end = min(log_end_offset, follower_end)\n",
        WRITES,
        10,
    ),
    Defect(
        "silent-follower-passed-over",
        "a new leader's high watermark does not wait for followers that have not fetched yet",
        "oncelog_broker.replication.high_watermark",
        "        if follower_end is None:\n            return None\n",
        "        if follower_end is None:\n            continue\n",
        WRITES,
        20,
    ),
    Defect(
        "joins-with-less",
        "a follower joins the ISR as soon as it fetches, whatever records it has",
        "oncelog_broker.replication.isr",
        "    if end is None or end < high_watermark or end < epoch_start_offset:\n",
        "    if end is None:\n",
        MOVES,
        40,
    ),
    Defect(
        "divergence-not-asked",
        "a leader takes a follower's log for the same as its own without comparing leader epochs",
        "oncelog_broker.replication.partition",
        "        divergence = self.divergence_of_follower(position.offset, position.last_fetched_epoch)\n",
        "        divergence = None\n",
        WRITES,
        40,
    ),
    Defect(
        "cut-by-number",
        "a follower cuts where the leader's epoch ends and not where its own does",
        "oncelog_broker.replication.truncation",
        "    return min(own_end, end_offset, log_end_offset)\n",
        "    return min(log_end_offset, end_offset + 1)\n",
        WRITES,
        40,
    ),
    Defect(
        "acknowledged-when-appended",
        "acks=all is answered when the leader has the record",
        "oncelog_broker.replication.partition",
        "        if next_offset <= self.high_watermark:\n            return ErrorCode.NONE\n",
        "        if next_offset <= self.log.log_end_offset:\n            return ErrorCode.NONE\n",
        WRITES,
        60,
    ),
    Defect(
        "read-beyond-high-watermark",
        "consumers read records that are not replicated yet",
        "oncelog_broker.server.records.fetch_reads",
        "            end = partition.high_watermark\n",
        "            end = partition.log.log_end_offset\n",
        WRITES,
        60,
    ),
    Defect(
        "deleted-on-leader-alone",
        "DeleteRecords is answered when the leader has deleted, whatever the followers have",
        "oncelog_broker.replication.partition",
        "        return min([self.log.log_start_offset, *starts])\n",
        "        return self.log.log_start_offset\n",
        ("trimmer", "writer-1", "mover"),
        60,
    ),
    Defect(
        "latest-before-caught-up",
        "a new leader reports the end of the partition before it knows the high watermark that the previous leader had reported (KIP-207)",
        "oncelog_broker.replication.partition",
        "        return self.high_watermark >= self.epoch_start_offset\n",
        "        return True\n",
        ("writer-1", "writer-2", "payer-1", "ends-watcher"),
        100,
        ("kill", "stop", "session ends"),
    ),
    Defect(
        "follower-vouches-for-more",
        "a follower takes its leader's high watermark for its own, beyond what it has",
        "oncelog_broker.replication.high_watermark",
        "    return max(own, min(leaders, log_end_offset))\n",
        "    return max(own, leaders)\n",
        WRITES,
        20,
    ),
    Defect(
        "all-is-committed-at-start",
        "a replica that is opened takes its whole log for committed",
        "oncelog_broker.replication.high_watermark",
        "    return max(log_start_offset, min(checkpointed, log_end_offset))\n",
        "    return log_end_offset\n",
        WRITES,
        40,
        ("kill", "kill of all", "isolation"),
    ),
    Defect(
        "proposed-isr-not-waited-for",
        "a replica that is about to join the ISR does not hold the high watermark back",
        "oncelog_broker.replication.isr",
        "        self.maximal = frozenset(self.committed).union(self.proposed or ())\n",
        "        self.maximal = frozenset(self.committed)\n",
        MOVES,
        60,
    ),
    Defect(
        "laggards-stay",
        "a follower that is away never leaves the ISR",
        "oncelog_broker.replication.isr",
        "    return follower.log_end_offset != log_end_offset and now - follower.last_caught_up > lag_seconds\n",
        "    return False\n",
        WRITES,
        60,
        ("partition", "one-way partition"),
    ),
    Defect(
        "cut-to-own-high-watermark",
        "a follower of a new leader cuts its log to its own high watermark (KIP-101)",
        "oncelog_broker.replication.replica",
        "            self.told_in_epoch = leader_epoch\n",
        "            self.told_in_epoch = leader_epoch\n            if not self.log.state.is_truncating:\n                self.log.trimmer.truncate_to(self.high_watermark)\n",
        WRITES,
        40,
        ("kill", "stop", "session ends"),
    ),
    Defect(
        "min-insync-ignored",
        "the high watermark moves, and acks=all is answered, with fewer replicas in sync than min.insync.replicas",
        "oncelog_broker.replication.partition",
        "        return self._is_whole or len(self.isr) >= needed_in_sync(\n            self.log.config.min_insync_replicas, len(self._lasting)\n        )\n",
        "        return True\n",
        WRITES,
        60,
        ("isolation", "pause", "partition"),
    ),
)
