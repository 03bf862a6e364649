"""Derives the role of this broker in a partition from the cluster image."""

from __future__ import annotations

from typing import Final

from oncelog_broker.metadata.model.image import NO_LEADER, PartitionState
from oncelog_protocol.light_classes import NamedTuple

LOST_EPOCHS: Final = 1000
"""If the metadata store is older than a log, the next leader epoch is the last epoch in the log plus this number. Other
logs may have later epochs, from elections that are missing in the older store.
"""


class Lead(NamedTuple):
    """This broker leads the partition; `partition_epoch` is the version of the state."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment adds."""


class Follow(NamedTuple):
    """This broker follows `leader`; with NO_LEADER, it keeps its log open but does not fetch."""

    leader: int
    leader_epoch: int
    is_in_sync: bool
    """Whether this broker is in the ISR; if so, its records are needed, and its log must not be restarted empty."""

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


class Stop(NamedTuple):
    """This broker has no replica of the partition."""


class Wait(NamedTuple):
    """The controller has not elected a leader yet, so there is nothing to do."""


Role = Lead | Follow | Stop | Wait


def role_of(state: PartitionState, broker_id: int, broker_epoch: int = -1) -> Role:
    """Return the role of broker `broker_id` in a partition. `broker_epoch` is the broker epoch of that broker's
    registration.

    A broker that was elected before it registered does not lead, because it may have restarted with fewer records. A
    broker that was elected before its registration keeps its log open until the controller, which sees the new
    registration, elects a leader again.
    """
    if broker_id not in state.replicas:
        return Stop()
    if state.leader_epoch < 0:
        return Wait()
    if state.leader == broker_id and state.written < broker_epoch:
        return Follow(NO_LEADER, state.leader_epoch, broker_id in state.isr)
    if state.leader == broker_id:
        return Lead(state.leader_epoch, state.partition_epoch, state.isr, state.replicas, state.adding_replicas)
    return Follow(state.leader, state.leader_epoch, broker_id in state.isr)
