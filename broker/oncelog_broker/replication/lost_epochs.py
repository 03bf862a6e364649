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

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.image import NO_LEADER
from oncelog_broker.metadata.payloads import MalformedPayload, parse_partition_state
from oncelog_broker.metadata.store import MetadataStore
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.roles import LOST_EPOCHS, Follow, Lead
from oncelog_broker.runtime.slices import Pause

LOGS_AT_A_TIME: Final = 200
"""Compared with the store before others have their turn."""
MAX_EPOCH: Final = 2**31 - 1


async def epochs_above_store(
    store: MetadataStore, logs: Sequence[PartitionLog], pause: Pause
) -> dict[TopicPartition, int]:
    """The last epochs of those logs that are newer than the store's state of their partition. To be asked before this
    broker registers: each election after that raises the state's epoch, until it seems to be right. StoreUnavailable.
    """
    above: dict[TopicPartition, int] = {}
    for start in range(0, len(logs), LOGS_AT_A_TIME):
        some = logs[start : start + LOGS_AT_A_TIME]
        wanted = [paths.partition_state(log.topic, log.partition) for log in some]
        for log, path, found in zip(some, wanted, await store.get_many(wanted), strict=True):
            if found is not None and _epoch_in(found[0], path) < log.latest_epoch:
                above[log.topic, log.partition] = log.latest_epoch
        await pause()
    return above


def _epoch_in(data: bytes, path: str) -> int:
    """Of a state that cannot be read nothing is known: it is told by whoever reads the image."""
    try:
        return parse_partition_state(data, path).leader_epoch
    except MalformedPayload:
        return MAX_EPOCH


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
        self._expected: dict[tuple[str, int], int] = {}
        """The last epochs of logs that were above the store's at the start, and have not been looked at since."""

    def __iter__(self) -> Iterator[LostEpoch]:
        return iter(tuple(self._lost.values()))

    def __bool__(self) -> bool:
        return bool(self._lost)

    def expect(self, epochs: Mapping[TopicPartition, int]) -> None:
        """The store is known to be older than these logs, whatever it says when their partitions get their roles."""
        self._expected |= epochs

    def allowed_role(self, partition: Partition, role: Lead | Follow) -> Lead | Follow:
        """The role that the state gives, where the log has no newer epoch; otherwise one without a leader, and the
        epoch is noted as lost."""
        key, log_epoch = (partition.topic, partition.index), partition.log.latest_epoch
        # The store may also go back while this broker runs, which then knows of an epoch without a record.
        known = max(log_epoch, partition.leader_epoch)
        noted = self._lost.get(key)
        # Not of the log of a topic that was deleted since, and made again.
        is_expected = self._expected.pop(key, None) == log_epoch
        is_waited_for = is_expected or (noted is not None and noted.is_seen)
        is_lost = role.leader_epoch < known + (LOST_EPOCHS if is_waited_for else 0)
        if isinstance(role, Lead) and log_epoch == role.leader_epoch:
            is_lost = is_lost or not (partition.leads and partition.leader_epoch == role.leader_epoch)
        if not is_lost or partition.log.is_offline:
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
