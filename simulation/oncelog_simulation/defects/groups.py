"""Defects of consumer groups and of the runtime of coordinators: offsets, members, the time of replies."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

READS: Final = ("writer-1", "writer-2", "member-1", "member-2", "offsets-watcher")
PIPES: Final = ("writer-1", "writer-2", "pipeline-1", "pipeline-2", "offsets-watcher")
LEDGERS: Final = ("payer-1", "payer-2", "offsets-watcher")

GHOSTS: Final = ("ghost-1", "ghost-2")

SHARES: Final = ("writer-1", "writer-2", "sharer-1", "sharer-2")

FAULTS: Final = ("kill", "pause", "stop", "partition", "session ends", "kill a client", "resets")
"""The faults that make these defects visible, unless a defect names its own."""

DEFECTS: Final = (
    Defect(
        "accepted-before-written",
        "a share partition's leader confirms an acceptance before the share coordinator has it",
        "oncelog_broker.sharing.hosted_share_partition",
        "        return kept\n",
        "        return None\n",
        SHARES,
        30,
    ),
    Defect(
        "pending-offsets-shown",
        "offsets that a transaction commits count before its marker",
        "oncelog_broker.coordinator.group.offsets",
        "        if producer_id == NO_PRODUCER_ID:\n",
        "        if producer_id >= NO_PRODUCER_ID:\n",
        LEDGERS,
        20,
    ),
    Defect(
        "aborted-offsets-count",
        "offsets of an aborted transaction count",
        "oncelog_broker.coordinator.group.offsets",
        "            if committed and (present is None",
        "            if (present is None",
        LEDGERS,
        20,
    ),
    Defect(
        "unstable-offsets-told",
        "require_stable is ignored: an offset is returned while a transaction is about to replace it",
        "oncelog_broker.server.groups.offset_fetch",
        "        if require_stable and machine.offsets.is_pending(group_id, topic.name, index):\n",
        "        if False:\n",
        (*PIPES, "payer-1"),
        60,
    ),
    Defect(
        "answered-before-committed",
        "a coordinator answers when its record is on the leader alone",
        "oncelog_broker.coordinator.runtime",
        "        if partition.high_watermark >= partition.log.log_end_offset:\n",
        "        if partition.high_watermark >= 0:\n",
        (*READS, "payer-1"),
        100,
    ),
    Defect(
        "coordinator-not-loaded",
        "a new coordinator begins without loading its log",
        "oncelog_broker.coordinator.runtime",
        "        if shard.partition.log.log_start_offset == shard.partition.log.log_end_offset:\n",
        "        if shard.partition.log.log_start_offset <= shard.partition.log.log_end_offset:\n",
        READS,
        20,
    ),
    Defect(
        "transactional-offsets-at-once",
        "offsets of a transaction count as soon as they are logged",
        "oncelog_broker.coordinator.runtime",
        "                for offset, record in enumerate(records, base_offset):\n                    shard.machine.replay(record, offset, producer_id)\n",
        "                for offset, record in enumerate(records, base_offset):\n                    shard.machine.replay(record, base_offset, NO_PRODUCER_ID)\n",
        LEDGERS,
        20,
    ),
    Defect(
        "generation-not-checked",
        "a member of an earlier generation of its group may commit",
        "oncelog_broker.coordinator.group.membership",
        "    if generation != group.generation:\n        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)\n    return member\n",
        "    return member\n",
        GHOSTS,
        20,
    ),
    Defect(
        "zombie-commits-offsets",
        "offsets in a transaction are taken of consumers that have lost their partitions (KIP-447)",
        "oncelog_broker.coordinator.group.machine",
        "            transactional_offsets.check_member(group, request, has_offsets=self.offsets.has(group_id))\n",
        "            pass\n",
        GHOSTS,
        20,
    ),
)
