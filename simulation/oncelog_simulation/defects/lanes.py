"""Defects of the fast lanes, which serve usual requests without decoding them."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

WRITES: Final = ("writer-1", "writer-2", "reader-committed", "ends-watcher")
PAYS: Final = ("payer-1", "payer-2", "zombie-1", "reader-committed", "reader-uncommitted")
HAUNTS: Final = ("zombie-1", "zombie-2", "payer-1", "reader-committed")
GHOSTS: Final = ("ghost-1", "ghost-2", "newer-ghost-1", "offsets-watcher")

FAULTS: Final = ("kill", "pause", "isolation", "partition", "session ends", "slow links")
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
    Defect(
        "lane-acknowledges-appended",
        "the lane of Produce answers acks=all when the leader has the record",
        "oncelog_broker.server.lanes.produce",
        "            if partition.waits_for_disk or (known.required_acks == produce.ACKS_ALL and not partition.is_alone):\n",
        "            if partition.waits_for_disk:\n",
        WRITES,
        10,
    ),
    Defect(
        "lane-acknowledges-duplicate",
        "the lane of Produce acknowledges the copy of a batch before the batch is replicated",
        "oncelog_broker.server.records.produce",
        "    produce.refuse_one(request.topic_data[0], request.topic_data[0].partition_data[0], partition, error)\n    return produce.when_replicated(None)\n",
        "    produce.refuse_one(request.topic_data[0], request.topic_data[0].partition_data[0], partition, error)\n    return produce._response\n",
        ("repeater-1", "writer-1", "reader-committed"),
        20,
    ),
    Defect(
        "lane-verifies-nothing",
        "the lane of Produce appends a record without asking whether its transaction is open (transactions V1)",
        "oncelog_broker.server.lanes.produce",
        "                if not registers and not transactions.has_open(producer_id, epoch, known.where, last_epoch):\n",
        "                if False:\n",
        HAUNTS,
        20,
    ),
    Defect(
        "lane-registers-nothing",
        "the lane of Produce does not add the partition to the transaction (transactions V2)",
        "oncelog_broker.server.lanes.produce",
        "            code = transactions.register(producer_id, epoch, known.where, last_epoch)\n",
        "            code = ErrorCode.NONE\n",
        PAYS,
        10,
    ),
    Defect(
        "lane-reads-beyond-high-watermark",
        "the lane of Fetch returns records to consumers that are not replicated yet",
        "oncelog_broker.server.lanes.one_fetch",
        "            end = partition.high_watermark if asked.follower is None else partition.log.local.log_end_offset\n            found",
        "            end = partition.log.local.log_end_offset\n            found",
        (*WRITES, "reader-uncommitted", "payer-1"),
        10,
    ),
    Defect(
        "lane-reads-open-transactions",
        "the lane of Fetch returns records of open transactions to read_committed consumers",
        "oncelog_broker.server.lanes.one_fetch",
        "                    upper_bound=partition.last_stable_offset,\n",
        "                    upper_bound=partition.high_watermark,\n",
        PAYS,
        20,
    ),
    Defect(
        "lane-aborts-not-told",
        "the lane of Fetch returns records of aborted transactions without naming these transactions",
        "oncelog_broker.server.lanes.one_fetch",
        "                return None if aborted else records\n",
        "                return records\n",
        PAYS,
        10,
    ),
    Defect(
        "lane-commits-unreplicated",
        "the lane of OffsetCommit answers when the offset is on the leader alone",
        "oncelog_broker.server.lanes.offset_commit",
        "        if shard.is_committed:\n            connection.respond",
        "        if True:\n            connection.respond",
        (*GHOSTS, "member-1", "newer-member-1"),
        30,
        ("kill", "isolation", "session ends"),
    ),
    Defect(
        "lane-zombie-commits",
        "the lane of OffsetCommit accepts the commit of a former member, or of an earlier generation",
        "oncelog_broker.server.lanes.offset_commit",
        "        if session_seconds is None and not commits_in_own_epoch(shard.machine, request, self._version):\n",
        "        if False:\n",
        GHOSTS,
        10,
        ("kill a client", "slow links"),
    ),
)
