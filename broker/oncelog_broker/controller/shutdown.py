"""Controlled shutdown: decides whether a broker may request a controlled shutdown, and which partitions it still leads
after the request. Pure.

From the request until the broker's registration ends, the broker is removed from ISRs and leads no partition that
another replica can lead (`election.py`). Source: Kafka's KafkaController.doControlledShutdown.
"""

from __future__ import annotations

from oncelog_broker.controller.view import ClusterView
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.errors import ErrorCode, KafkaError


def note_shutdown(view: ClusterView, broker: int, epoch: int) -> None:
    """Mark the broker as about to stop. The only live broker is not marked, because no other broker could lead its
    partitions.

    Raises KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    registered = view.live.get(broker)
    if registered is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not registered")
    if epoch != registered.epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} is not registered with epoch {epoch}")
    if len(view.live) > 1:
        view.note_stopping(broker)


def is_left_to(view: ClusterView, broker: int, key: PartitionKey) -> bool:
    """Whether the broker still leads the partition, although other brokers have replicas of this partition."""
    known = view.states.get(key)
    has_others = len(view.replicas(key)) > 1 and key.topic not in view.doomed
    return known is not None and known.state.leader == broker and has_others
