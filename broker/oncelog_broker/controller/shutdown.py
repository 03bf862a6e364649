"""A broker that is about to stop (ControlledShutdown): who may say so, and what it still leads. Pure.

From when it has said so until its registration goes, the machine takes it out of everything: see `election.py`. Source:
Kafka's KafkaController.doControlledShutdown.
"""

from __future__ import annotations

from oncelog_broker.controller.view import ClusterView
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.errors import ErrorCode, KafkaError


def note_shutdown(view: ClusterView, broker: int, epoch: int) -> None:
    """Take it down that the broker is about to stop, unless it is alone: there is nobody to take anything over.

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
    """Whether the broker leads the partition, which has other replicas that might."""
    known = view.states.get(key)
    has_others = len(view.replicas(key)) > 1 and key.topic not in view.doomed
    return known is not None and known.state.leader == broker and has_others
