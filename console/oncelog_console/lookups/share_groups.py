"""One share group (KIP-932): its members, and its progress in each partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog.admin.shares import DescribedShareGroup, ShareGroupMember, ShareOffset


@dataclass(frozen=True, slots=True)
class ShareRow:
    """The progress of a share group in one partition. `offset` is None if the group has not read the partition yet.
    `members` are the members that share the records of the partition.
    """

    partition: TopicPartition
    offset: ShareOffset | None
    members: tuple[ShareGroupMember, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupView:
    """A share group, with one row for each partition that it has read or that a member is assigned."""

    group: DescribedShareGroup
    rows: list[ShareRow]

    @property
    def lag(self) -> int | None:
        """The number of records that no member has accepted or rejected yet; None if no partition tells."""
        return share_lag(row.offset for row in self.rows)


def share_lag(offsets: Iterable[ShareOffset | None]) -> int | None:
    """Return the sum of the known lags; None if none is known."""
    known = [offset.lag for offset in offsets if offset is not None and offset.lag is not None]
    return sum(known) if known else None


async def look(admin: Admin, group_id: str) -> ShareGroupView:
    """Return the state of a share group. Raises KafkaError: GROUP_ID_NOT_FOUND, also for a group of another protocol,
    and UnsupportedVersion if the cluster has no share groups.
    """
    group = (await admin.shares.describe([group_id]))[group_id]
    offsets = await admin.shares.offsets(group_id)
    partitions = sorted(offsets.keys() | {where for member in group.members for where in member.assignment})
    rows = [
        ShareRow(where, offsets.get(where), tuple(each for each in group.members if where in each.assignment))
        for where in partitions
    ]
    return ShareGroupView(group, rows)
