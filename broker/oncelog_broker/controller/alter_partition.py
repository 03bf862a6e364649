"""Grants or refuses an ISR that a leader proposes: the rules of KIP-497, KIP-841 and KIP-903. Pure.

These four kinds of proposals do not exist in Kafka:

- A leader that cannot append, because its disk is full, proposes the ISR without itself. The controller grants the
  proposal if another replica of that ISR can lead. If no other replica can lead, the state stays unchanged, because a
  leader that cannot write is better than a new leader that has lost records.
- A leader with an offline log gives the partition up: the leader proposes the unchanged ISR with `is_log_offline`. The
  partition then has no leader until a replica of that ISR reports an open log (`election.py`), or an unclean election
  is allowed.
- A replica outside the ISR proposes the unchanged ISR. With this proposal a replica requests a new leader epoch, with
  the same leader, before it restarts its log with fewer records. In the new epoch the leader ignores the fetch
  offsets that the replica reported earlier.
- A replica whose log has a newer leader epoch than the partition's state requests an epoch above the epoch of its log.
  A log has such a newer epoch if the metadata store was restored from an older copy (S77). When the controller raises
  the epoch, the leader stays the same, and the replicas compare their logs as after an election.

The controller does not grant the last three kinds of proposals while the partition first needs an election
(`ClusterView.may_vouch`). Without this rule, the written state could name a leader or an in-sync replica that was away
and may have lost records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from oncelog_broker.controller.election import RECOVERED, RECOVERING
from oncelog_broker.controller.partition_decisions import PartitionChange
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication.roles import LOST_EPOCHS
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

MAX_LEADER_EPOCH: Final = 2**31 - 1
UNKNOWN_BROKER_EPOCH: Final = -1
"""The broker epoch in a proposal for a replica whose broker epoch the sender does not know; the controller then does
not check it.
"""


class Member(NamedTuple):
    """A replica of the proposed ISR, and the broker epoch in which the replica fetched from the leader."""

    broker: int
    epoch: int = UNKNOWN_BROKER_EPOCH


class Proposal(NamedTuple):
    """The proposal of the broker `sender` for one partition, with the epochs that the sender knows."""

    sender: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[Member]
    leader_recovery_state: int = RECOVERED
    is_log_offline: bool = False
    """Whether the sender gives up the leadership because its log of the partition is offline."""
    log_epoch: int = -1
    """The last leader epoch in the sender's log, if the sender requests a higher leader epoch instead of proposing an
    ISR; otherwise -1.
    """


def check_sender(view: ClusterView, broker: int, epoch: int) -> None:
    """Check the sender of a proposal. Raises KafkaError STALE_BROKER_EPOCH if the broker is not registered with the
    broker epoch `epoch`.
    """
    registered = view.live.get(broker)
    if registered is None or registered.epoch != epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} is not registered with epoch {epoch}")


def find_partition(view: ClusterView, topic_id: bytes, partition: int) -> PartitionKey:
    """Return the key of a partition that is given by topic id and index. Raises KafkaError UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    name = view.topic_by_id(topic_id)
    if name is None or name in view.doomed:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    key = PartitionKey(name, partition)
    if key not in view.states:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return key


def decide(
    view: ClusterView, key: PartitionKey, proposal: Proposal, controller_epoch: int
) -> PartitionChange | KnownState:
    """Return the change that grants the proposal; the present state if the proposal equals the present state.

    Raises KafkaError: FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA, and
    NOT_CONTROLLER if the sender knows a newer state than this controller.
    """
    known = view.states[key]
    state, isr = known.state, tuple(member.broker for member in proposal.isr)
    is_ahead = proposal.partition_epoch > known.version
    if is_ahead and (proposal.sender, proposal.leader_epoch) == (state.leader, state.leader_epoch):
        return _begun_anew(view, key, controller_epoch)
    if is_ahead or proposal.leader_epoch > state.leader_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "the sender has seen a newer state than this controller")
    if proposal.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if proposal.log_epoch >= 0:
        return _above_a_log(view, key, proposal, controller_epoch)
    if proposal.sender != state.leader:
        return _in_a_new_epoch(view, key, proposal, controller_epoch)
    if proposal.is_log_offline and set(isr) == set(state.isr) and len(view.replicas(key)) > 1:
        return _given_up(view, key, proposal, controller_epoch)
    if set(isr) == set(state.isr) and proposal.leader_recovery_state == state.leader_recovery_state:
        # The leader has repeated the proposal after a lost response.
        return known
    if proposal.partition_epoch < known.version:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    _check_form(view.replicas(key), isr, proposal, state.leader_recovery_state)
    _check_eligible(view, proposal.isr, state.isr)
    granted = replace(
        state, isr=isr, controller_epoch=controller_epoch, leader_recovery_state=proposal.leader_recovery_state
    )
    if state.leader in isr:
        return PartitionChange(key, granted, known.version, is_election=False)
    if not set(isr) <= set(state.isr):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a leader that gives up leadership must not change the ISR")
    if any(view.broker(broker).is_unsure_of(known.written) for broker in isr):
        raise KafkaError(
            ErrorCode.INELIGIBLE_REPLICA,
            "a proposed replica has registered again since then, perhaps with fewer records",
        )
    elected = replace(
        granted, leader=_successor(view.replicas(key), state.leader, isr), leader_epoch=state.leader_epoch + 1
    )
    return PartitionChange(key, elected, known.version)


def _successor(replicas: Sequence[int], leader: int, isr: Sequence[int]) -> int:
    """Return the first member of `isr` after `leader` in the cyclic order of the replicas. A former leader that has
    given up the partition joins the ISR again soon. If the first replica of the ISR were elected, two replicas with bad
    disks would alternate, and a third replica would never lead.
    """
    after = replicas.index(leader) + 1 if leader in replicas else 0
    return next(broker for broker in (*replicas[after:], *replicas[:after]) if broker in isr)


def _begun_anew(view: ClusterView, key: PartitionKey, controller_epoch: int) -> PartitionChange:
    """Grant a new leader epoch to a leader that knows a newer version of the state than this controller.

    If the metadata store was put back from a backup, the newer version no longer exists. In its leader epoch, the
    leader ignores older versions, but in a new leader epoch it uses the state of the store. If the view of this
    controller is old instead, the store refuses the change, because the change names the version of the view.
    """
    known = view.states[key]
    if not view.may_vouch(key):
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "a new election of the leader is pending")
    state = known.state
    renewed = replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)
    return PartitionChange(key, renewed, known.version, is_election=False)


def _given_up(view: ClusterView, key: PartitionKey, proposal: Proposal, controller_epoch: int) -> PartitionChange:
    """Remove the leader of a partition because the leader's log is offline. The ISR does not change."""
    known = view.states[key]
    if proposal.partition_epoch < known.version:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if not view.may_vouch(key):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, "the ISR is about to change")
    state, epoch = known.state, known.state.leader_epoch + 1
    offline = replace(state, leader=NO_LEADER, leader_epoch=epoch, controller_epoch=controller_epoch)
    return PartitionChange(key, offline, known.version)


def _above_a_log(
    view: ClusterView, key: PartitionKey, proposal: Proposal, controller_epoch: int
) -> PartitionChange | KnownState:
    """Grant a leader epoch far above the epochs of the state and of the log, to a replica whose log has a newer epoch
    than the state. Returns the present state if its epoch is already above the epoch of the log. An epoch just above
    the epoch of that log is not enough, because the log of another replica may already have this epoch."""
    known = view.states[key]
    state, sender, log_epoch = known.state, proposal.sender, proposal.log_epoch
    if sender not in view.replicas(key):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {sender} is not a replica of this partition")
    if state.leader_epoch >= log_epoch + LOST_EPOCHS or not view.may_vouch(key):
        return known
    if proposal.partition_epoch < known.version:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if max(log_epoch, state.leader_epoch) > MAX_LEADER_EPOCH - 2 * LOST_EPOCHS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no leader epoch above {log_epoch}")
    raised = replace(
        state, leader_epoch=max(log_epoch, state.leader_epoch) + LOST_EPOCHS, controller_epoch=controller_epoch
    )
    return PartitionChange(key, raised, known.version, is_election=False)


def _in_a_new_epoch(view: ClusterView, key: PartitionKey, proposal: Proposal, controller_epoch: int) -> PartitionChange:
    """Grant a new leader epoch to a replica outside the ISR. The leader does not change."""
    known = view.states[key]
    state, sender = known.state, proposal.sender
    is_out_of_sync = sender in view.replicas(key) and sender not in state.isr
    if not is_out_of_sync or {member.broker for member in proposal.isr} != set(state.isr):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {sender} does not lead this partition")
    if proposal.partition_epoch < known.version:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if state.leader == NO_LEADER:
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, "the partition has no leader")
    if not view.may_vouch(key):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, "a new election of its leader is pending")
    _check_eligible(view, proposal.isr, state.isr)
    renewed = replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)
    return PartitionChange(key, renewed, known.version, is_election=False)


def _check_form(replicas: Sequence[int], isr: tuple[int, ...], proposal: Proposal, recovery_state: int) -> None:
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{list(isr)} is not an ISR of the replicas {list(replicas)}")
    if proposal.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown recovery state {proposal.leader_recovery_state}")
    if proposal.leader_recovery_state == RECOVERING and (recovery_state == RECOVERED or isr != (proposal.sender,)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a recovering leader must be the only member of the ISR")


def _check_eligible(view: ClusterView, isr: Sequence[Member], before: Sequence[int]) -> None:
    """Check the replicas of a proposed ISR. Each replica must be live. Its broker must not have registered again after
    the fetch by which the leader judged the replica to be in sync. A broker that is about to stop must not join the
    ISR, because produce requests with acks=all would wait for its replica (KIP-841).
    """
    for member in isr:
        broker = view.live.get(member.broker)
        if broker is None or member.epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
            raise KafkaError(
                ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker} is not registered, or has registered again"
            )
        if broker.is_stopping and member.broker not in before:
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker} is stopping")
