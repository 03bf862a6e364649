"""Rack awareness of Fetch: directs a consumer to a replica in the consumer's rack, if the leader is in another rack
(KIP-392).

The result equals the result of Kafka's RackAwareReplicaSelector. A replica is proposed only if it can serve the fetch:
it is in sync and has the requested offset, and its broker has an address on the consumer's listener. If several
replicas qualify, the one with the highest offset is proposed; the consumer reads from it until its metadata expires or
the replica refuses a fetch.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.broker_keys import RACK_AWARE_SELECTORS, REPLICA_SELECTOR_CLASS
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.partition import Partition
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.messages.fetch import FetchRequest

STAY: Final = -1
"""Value of preferred_read_replica that tells the consumer to keep reading from this broker."""
FIRST_VERSION: Final = 11
"""First version of Fetch in which a consumer names its rack and reads from the replica that the leader proposes."""


def chooses(context: AnyContext) -> bool:
    """Return whether reading from followers is on: this broker directs readers to follower replicas, and serves readers
    of partitions that it follows.
    """
    return context.version >= FIRST_VERSION and context.services.config[REPLICA_SELECTOR_CLASS] in RACK_AWARE_SELECTORS


class NearestReplica:
    """Chooses the nearest replicas for one Fetch request."""

    __slots__ = ("_broker_id", "_image", "_listener", "_rack")

    def __init__(self, rack: str, listener: str, image: ClusterImage, broker_id: int) -> None:
        self._rack = rack
        self._listener = listener
        self._image = image
        self._broker_id = broker_id

    @classmethod
    def for_request(cls, request: FetchRequest, context: AnyContext) -> NearestReplica | None:
        """Return the chooser for a request; None if the consumer does not name its rack or is in this broker's rack."""
        services = context.services
        if not chooses(context):
            return None
        me = services.image.brokers.get(services.node_id)
        if me is not None and me.rack == request.rack_id:
            return None
        return cls(request.rack_id, context.connection.listener, services.image, services.node_id)

    def of(self, partition: Partition, fetch_offset: int) -> int:
        """Return the id of the broker from which to read `partition`, which this broker leads; STAY if no replica is
        nearer.
        """
        best, best_end = STAY, -1
        for broker_id in sorted(partition.isr):
            follower, broker = partition.followers.get(broker_id), self._image.brokers.get(broker_id)
            if follower is None or follower.log_end_offset is None or broker is None or broker.rack != self._rack:
                continue
            if not follower.log_start_offset <= fetch_offset <= follower.log_end_offset:
                continue
            if follower.log_end_offset > best_end and broker.endpoint(self._listener) is not None:
                best, best_end = broker_id, follower.log_end_offset
        return best
