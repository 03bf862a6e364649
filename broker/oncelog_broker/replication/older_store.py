"""Adds topics and partitions that exist only in the logs to an embedded metadata store that is older than the logs.

Only the broker of a single-broker cluster adds topics in this way, before it registers, so no other process writes to
its store. If the process is killed during this work, the next startup again finds that the store is older, and
continues the work.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.founding import FoundTopic, adopted_topic, chunks, without_existing
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_partition_state,
    encode_topic,
    parse_topic,
)
from oncelog_broker.metadata.stores.store import Create, MetadataStore, Operation, Set
from oncelog_broker.runtime.entropy import Entropy, system_entropy

logger = logging.getLogger(__name__)

MAX_NAMES: Final = 20
"""The maximum number of topics that one log line names."""


async def adopt_unknown(
    store: MetadataStore, topics: Iterable[FoundTopic], broker_id: int, entropy: Entropy = system_entropy
) -> None:
    """Add to the store every topic and partition that has a log on this broker. Raises StoreUnavailable,
    MalformedPayload.
    """
    topics = list(topics)
    known = await store.get_many([paths.topic(topic.name) for topic in topics])
    taken = []
    for topic, node in zip(topics, known, strict=True):
        if node is None:
            for chunk in chunks(await without_existing(store, list(adopted_topic(topic, broker_id, entropy)))):
                await store.multi(chunk)
            taken.append(topic.name)
            continue
        path = paths.topic(topic.name)
        assignment = parse_topic(node[0], path)
        if topic.topic_id not in (None, assignment.topic_id):
            continue  # the store has another topic with that name, so this topic's logs become stray
        added = sorted(topic.leader_epochs.keys() - assignment.partitions.keys())
        if added:
            await store.multi(_more_partitions(topic, assignment, added, broker_id, node[1].version))
            taken.append(topic.name)
    if taken:
        logger.error(
            "topics that are missing in the older metadata store were restored from their logs. Their settings "
            "are lost, so their records are kept until retention.ms and retention.bytes are set",
            extra={"count": len(taken), "topics": ",".join(sorted(taken)[:MAX_NAMES])},
        )


def _more_partitions(
    topic: FoundTopic, assignment: TopicAssignment, added: Sequence[int], broker_id: int, version: int
) -> list[Operation]:
    """Return the writes that add partitions to a topic of the store."""
    partitions = {**assignment.partitions, **dict.fromkeys(added, ReplicaAssignment((broker_id,)))}
    grown = encode_topic(TopicAssignment(assignment.topic_id, partitions))
    operations: list[Operation] = [Set(paths.topic(topic.name), grown, version)]
    for partition in added:
        state = PartitionState(NO_LEADER, topic.leader_epochs[partition], (broker_id,), controller_epoch=0)
        operations.append(Create(paths.partition(topic.name, partition)))
        operations.append(Create(paths.partition_state(topic.name, partition), encode_partition_state(state)))
    return operations
