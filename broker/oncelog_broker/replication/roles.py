"""What this broker is to a partition, as the cluster image says. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.metadata.model.image import NO_LEADER, PartitionState

LOST_EPOCHS: Final = 1000
"""Where the metadata store is older than a log, the next leader epoch is so far above the log's last one. Other logs
may have later ones, those of elections that the store has forgotten."""


class Lead(NamedTuple):
    """It leads. `partition_epoch` is the version of the state that says so."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """Of the replicas those that a reassignment brings."""


class Follow(NamedTuple):
    """It fetches from `leader`; with NO_LEADER it holds its log ready, and has nobody to fetch from."""

    leader: int
    leader_epoch: int
    is_in_sync: bool
    """Whether it is in the ISR: then what it holds counts, and it must not begin anew."""

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


class Stop(NamedTuple):
    """It has no replica of it, or no longer."""


class Wait(NamedTuple):
    """The controller has not chosen a leader yet, so there is nothing to be known."""


Role = Lead | Follow | Stop | Wait


def role_of(state: PartitionState, broker_id: int, broker_epoch: int = -1) -> Role:
    """The role of `broker_id` in a partition. `broker_epoch`: of its registration.

    Who was chosen to lead before it was registered does not: it may have come back with less than it had. It holds its
    log ready until the controller, which sees that it was away, has chosen again.
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
