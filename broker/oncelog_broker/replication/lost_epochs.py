"""Prevents a partition from being led or fetched if its log has a newer leader epoch than the cluster's state.

If a log has a newer leader epoch than the cluster's state, the metadata store is older than the log: the store was
restored from a backup, or is another store. Truncation relies on the rule that each leader epoch has one leader, which
assigned each offset once. No leader epoch may therefore be used a second time:

- A broker that is elected with an epoch that its log already has, or with an older epoch, does not lead.
- A follower whose log has a newer epoch than its leader does not fetch, because the leader could not find where the two
  logs diverge.

In both cases the broker asks the controller for an epoch far above the last epoch of the log (`epoch_raiser`). In the
new epoch the elected leader leads, and the follower truncates records that the leader does not have, as after any
election. This broker cannot detect one case: the follower's last epoch equals the present leader's epoch, but another
broker led in the follower's epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import MalformedPayload, parse_partition_state
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.roles import LOST_EPOCHS, Follow, Lead
from oncelog_broker.runtime.slices import Pause
from oncelog_protocol.light_classes import NamedTuple

LOGS_AT_A_TIME: Final = 200
"""Leader epochs of this many logs are compared with the metadata store before other work may run."""
MAX_EPOCH: Final = 2**31 - 1


async def epochs_above_store(
    store: MetadataStore, logs: Sequence[PartitionLog], pause: Pause
) -> dict[TopicPartition, int]:
    """Return the last epochs of those logs whose epoch is newer than the store's state of their partition. Call this
    before this broker registers, because each later election raises the state's epoch, which hides that the store is
    older. Raises StoreUnavailable.
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
    """Return the leader epoch in a partition state; MAX_EPOCH if the state cannot be parsed. The error is logged when
    the cluster image is read.
    """
    try:
        return parse_partition_state(data, path).leader_epoch
    except MalformedPayload:
        return MAX_EPOCH


class LostEpoch(NamedTuple):
    """A partition of this broker that needs a higher leader epoch from the controller."""

    topic: str
    partition: int
    leader_epoch: int
    """The leader epoch of the partition in the cluster's metadata."""
    log_epoch: int
    """The last leader epoch known to this broker, normally the last leader epoch in its log."""
    is_to_lead: bool
    """Whether this broker was elected leader; otherwise it is a follower."""
    is_seen: bool = True
    """Whether this partition's log has the newer epoch. If False, `doubt` has recorded the partition, because another
    log has shown that the metadata store is older.
    """


class LostEpochs:
    """The partitions of one broker whose leader epoch must be raised."""

    def __init__(self) -> None:
        self._lost: dict[tuple[str, int], LostEpoch] = {}
        self._expected: dict[tuple[str, int], int] = {}
        """Maps a partition to the last epoch of its log, for each log that had a newer epoch than the metadata store at
        startup. An entry is removed when the partition gets a role.
        """

    def __iter__(self) -> Iterator[LostEpoch]:
        return iter(tuple(self._lost.values()))

    def __bool__(self) -> bool:
        return bool(self._lost)

    def expect(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Record that the store was older than these logs at startup, although elections may have raised the store's
        epochs since.
        """
        self._expected |= epochs

    def allowed_role(self, partition: Partition, role: Lead | Follow) -> Lead | Follow:
        """Return this broker's role according to the partition state, if the log has no newer epoch. If the log has a
        newer epoch, record the partition, and return the role of a follower without a leader.
        """
        key, log_epoch = (partition.topic, partition.index), partition.log.latest_epoch
        # If the metadata store is replaced by an older state while this broker runs, the broker may know an epoch for
        # which its log has no record.
        known = max(log_epoch, partition.leader_epoch)
        noted = self._lost.get(key)
        # If the topic was deleted and created again since the startup, its new log does not have the old epochs.
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
        # Return a role without a leader, so that the replica does not fetch. The role has the epoch known to this
        # broker, so that the replica does not forget that epoch.
        return Follow(NO_LEADER, known, is_in_sync=isinstance(role, Lead) or role.is_in_sync)

    def doubt(self, partition: Partition) -> None:
        """Record a partition whose epoch must be raised because the store is older than another log. The epoch must be
        raised because another leader may already have used the partition's epoch without writing a record to this log,
        and clients may know later epochs.
        """
        epoch = partition.leader_epoch
        lost = LostEpoch(partition.topic, partition.index, epoch, epoch, is_to_lead=True, is_seen=False)
        self._lost.setdefault((partition.topic, partition.index), lost)

    def forget(self, topic: str, index: int) -> None:
        """Forget a partition that this broker no longer hosts."""
        self._lost.pop((topic, index), None)
