"""Checks that a topic's node fits into one write of the store (S78). The node contains all assignments of the topic.

A partition on three brokers takes some 25 bytes in the node, and three times as many bytes while all its replicas are
being replaced. A node has room for some 30,000 partitions. If all partitions of a topic are reassigned simultaneously,
the node has room for a third of this number. A change that would make the node too large is refused before the write,
with a message that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_broker.controller.view import ClusterView
from oncelog_broker.metadata.model.payloads import PARTITIONS_PER_STEP, ReplicaAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import MAX_REQUEST_BYTES
from oncelog_broker.runtime.slices import Pause
from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_TOPIC_BYTES: Final = 800_000
"""Maximum bytes of a topic's node; this leaves room for the states of some partitions in the same write."""
FIXED_BYTES: Final = 150
"""Upper bound of the bytes of a topic's node without its partitions."""

assert MAX_TOPIC_BYTES < MAX_REQUEST_BYTES


def check_topic_fits(name: str, data: bytes) -> None:
    """Check the size of a topic's node. Raises KafkaError POLICY_VIOLATION if the node would be too large to be
    written.
    """
    if len(data) > MAX_TOPIC_BYTES:
        message = (
            f"Topic '{name}' would take {len(data)} bytes in the metadata store, of at most {MAX_TOPIC_BYTES} that one "
            "write holds: give it fewer partitions or replicas, and use several topics."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


class TopicRoom:
    """The remaining bytes in the nodes of topics, for reassignments that are requested together."""

    def __init__(self, view: ClusterView, pause: Pause) -> None:
        self._view = view
        self._pause = pause
        self._taken: dict[str, int] = {}
        """Bytes of each topic's node, including the reassignments that `take` has granted."""

    async def take(self, key: PartitionKey, wanted: ReplicaAssignment) -> None:
        """Reserve bytes for a new assignment of a partition. Raises KafkaError POLICY_VIOLATION if the topic's node
        would become too large."""
        topic = self._view.topics[key.topic]
        if key.topic not in self._taken:
            self._taken[key.topic] = await self._bytes_of(topic.partitions)
        more = _bytes_of(key.partition, wanted) - _bytes_of(key.partition, topic.partitions[key.partition])
        after = self._taken[key.topic] + more
        if more > 0 and after > MAX_TOPIC_BYTES:
            message = (
                f"The reassignments of topic '{key.topic}' do not fit into one write: its node would take "
                f"{after} bytes in the "
                f"metadata store, at most {MAX_TOPIC_BYTES} fit. The partitions before this one in the request "
                "are being reassigned. Request the others when these are done."
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        self._taken[key.topic] = after

    async def _bytes_of(self, partitions: Mapping[int, ReplicaAssignment]) -> int:
        size = FIXED_BYTES
        for number, (partition, assignment) in enumerate(partitions.items()):
            size += _bytes_of(partition, assignment)
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                await self._pause()
        return size


def _bytes_of(partition: int, assignment: ReplicaAssignment) -> int:
    """Return the bytes that an assignment such as `"7":[1,2,3],` takes in a topic's node, summed over all lists of the
    node that contain the partition.
    """
    lists = (assignment.replicas, assignment.adding_replicas, assignment.removing_replicas)
    named = [brokers for brokers in lists if brokers]
    digits = len(str(partition)) + 5  # bytes in addition to the broker ids and their commas
    return sum(digits + sum(len(str(broker)) + 1 for broker in brokers) for brokers in named)
