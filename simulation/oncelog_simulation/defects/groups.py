"""Defects of consumer groups and of the runtime of coordinators: offsets, members, and when replies are sent."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

READS: Final = ("writer-1", "writer-2", "member-1", "member-2", "offsets-watcher")
PIPES: Final = ("writer-1", "writer-2", "pipeline-1", "pipeline-2", "offsets-watcher")
LEDGERS: Final = ("payer-1", "payer-2", "offsets-watcher")

GHOSTS: Final = ("ghost-1", "ghost-2")
NEWER_GHOSTS: Final = ("newer-ghost-1", "offsets-watcher")

NEWER: Final = ("writer-1", "writer-2", "newer-member-1", "newer-member-2", "offsets-watcher")

FAULTS: Final = ("kill", "pause", "stop", "partition", "session ends", "kill a client", "resets")
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
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
    Defect(
        "given-before-revoked",
        "the coordinator gives a partition to a member before its owner has given it up (KIP-848)",
        "oncelog_broker.coordinator.group.consumer.reconcile",
        "            if partition in own or aim.is_free(topic_id, partition):\n",
        "            if True:\n",
        NEWER,
        40,
        ("kill a client", "pause", "slow links"),
    ),
    Defect(
        "dead-member-stays",
        "a member of a classic group whose session has ended stays in the group",
        "oncelog_broker.coordinator.group.machine",
        "            membership.on_session_timer(step, timer.member_id)\n",
        "            pass\n",
        READS,
        40,
        ("kill a client", "pause"),
    ),
    Defect(
        "dead-newer-member-stays",
        "a member of a group of the consumer protocol whose session has ended stays in the group",
        "oncelog_broker.coordinator.group.machine",
        "            leaving.on_timer(self._consumer_step(group, effects), timer)\n",
        "            pass\n",
        NEWER,
        40,
        ("kill a client", "pause"),
    ),
    Defect(
        "sessions-not-restarted",
        "a coordinator that takes a group over does not notice that a member has died meanwhile",
        "oncelog_broker.coordinator.group.machine",
        "                elif isinstance(group, ClassicGroup):\n                    self._resume(group, effects)\n",
        "                elif isinstance(group, ClassicGroup):\n                    pass\n",
        READS,
        60,
        ("kill a client", "kill", "stop", "session ends"),
    ),
    Defect(
        "old-epoch-commits",
        "a member of the consumer protocol may commit with any earlier epoch (KIP-848)",
        "oncelog_broker.coordinator.group.consumer.epochs",
        "    if epoch == member.epoch:\n        return None\n    stale",
        "    if epoch <= member.epoch:\n        return None\n    stale",
        NEWER_GHOSTS,
        10,
        (
            "kill",
            "pause",
            "session ends",
        ),
    ),
    Defect(
        "epoch-off-by-one",
        "a member may commit with the epoch before the one in which it got the partition (KIP-1251)",
        "oncelog_broker.coordinator.group.consumer.epochs",
        "        if since is None or epoch < since:\n",
        "        if since is None or epoch < since - 1:\n",
        NEWER_GHOSTS,
        10,
        (
            "kill",
            "pause",
            "session ends",
        ),
    ),
    Defect(
        "older-pending-wins",
        "an offset of a transaction replaces an offset that was committed after it",
        "oncelog_broker.coordinator.group.offsets",
        "            if committed and (present is None or present.record_offset < offset.record_offset):\n",
        "            if committed:\n",
        NEWER_GHOSTS,
        10,
        (
            "kill",
            "pause",
            "session ends",
        ),
    ),
    Defect(
        "loaded-up-to-high-watermark",
        "a new coordinator loads its log only up to its high watermark",
        "oncelog_broker.coordinator.runtime",
        "            while offset < shard.partition.log.log_end_offset and self.is_current(shard):\n",
        "            while offset < shard.partition.high_watermark and self.is_current(shard):\n",
        ("payer-1", "payer-2", "member-1", "offsets-watcher"),
        40,
        ("kill of all", "kill"),
    ),
    Defect(
        "aborts-loaded-as-commits",
        "a new coordinator counts the offsets of aborted transactions when it loads its log",
        "oncelog_broker.coordinator.loading",
        "machine.replay_end_transaction(entry.producer_id, entry.committed)",
        "machine.replay_end_transaction(entry.producer_id, True)",
        LEDGERS,
        30,
        ("kill", "session ends", "isolation"),
    ),
    Defect(
        "generation-not-raised",
        "a rebalance of a classic group gives no new generation",
        "oncelog_broker.coordinator.group.joining",
        "    group.generation += 1\n",
        "",
        ("member-1", "member-2", "ghost-1", "offsets-watcher"),
        20,
        ("kill a client", "pause", "kill"),
    ),
)
