"""Partitions whose log knows a newer leader epoch than the cluster does: the metadata store is older than the log.

It was put back from a backup, or is another one. An epoch has one leader, and gave each offset once: all that compares
logs counts on it (`truncation`). So no epoch may be given out a second time:

- Who is elected with an epoch that its log has already, or with an older one, does not lead.
- Who follows a leader of an older epoch than its log's last one does not fetch: the leader could not tell where the
  two logs part.

Both ask the controller for an epoch far above their log's (`epoch_raiser`). In that one the leader that the controller
has chosen leads, and a follower cuts what this leader lacks, as after any election. What cannot be seen from here: that
another leader had the follower's last epoch, if it is just the one of the leader now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.roles import Follow, Lead


class LostEpoch(NamedTuple):
    """A partition of this broker whose leader epoch must be raised."""

    topic: str
    partition: int
    leader_epoch: int
    """As the cluster's state says."""
    log_epoch: int
    """The last one that is known here, from the log as a rule."""
    is_to_lead: bool
    """Whether this broker was elected; else it is a follower."""
    is_seen: bool = True
    """Whether the log has a newer epoch; else only something else says that the store is older (`doubt`)."""


class LostEpochs:
    """Those of one broker."""

    def __init__(self) -> None:
        self._lost: dict[tuple[str, int], LostEpoch] = {}

    def __iter__(self) -> Iterator[LostEpoch]:
        return iter(tuple(self._lost.values()))

    def __bool__(self) -> bool:
        return bool(self._lost)

    def allowed_role(self, partition: Partition, role: Lead | Follow) -> Lead | Follow:
        """The role that the state gives, where the log has no newer epoch; otherwise one without a leader, and the
        epoch is noted as lost."""
        key, log_epoch = (partition.topic, partition.index), partition.log.latest_epoch
        # The store may also go back while this broker runs, which then knows of an epoch without a record.
        known = max(log_epoch, partition.leader_epoch)
        is_lost = known > role.leader_epoch
        if isinstance(role, Lead) and log_epoch == role.leader_epoch:
            is_lost = is_lost or not (partition.leads and partition.leader_epoch == role.leader_epoch)
        if not is_lost or partition.log.is_offline:
            noted = self._lost.get(key)
            if noted is not None and (noted.is_seen or noted.leader_epoch < role.leader_epoch):
                del self._lost[key]
            return role
        self._lost[key] = LostEpoch(*key, role.leader_epoch, known, isinstance(role, Lead))
        # Without a leader there is nobody to fetch from. The epoch stays what it was, so that it is not forgotten.
        return Follow(NO_LEADER, known, is_in_sync=isinstance(role, Lead) or role.is_in_sync)

    def doubt(self, partition: Partition) -> None:
        """The store is known to be older than some log: the epoch in which this broker leads may have been given out
        before, to leaders that wrote nothing here. Clients would take one that they know for outdated."""
        epoch = partition.leader_epoch
        lost = LostEpoch(partition.topic, partition.index, epoch, epoch, is_to_lead=True, is_seen=False)
        self._lost.setdefault((partition.topic, partition.index), lost)

    def forget(self, topic: str, index: int) -> None:
        """The partition is not hosted any more."""
        self._lost.pop((topic, index), None)
