"""One group: its members, its position in each partition, and the plan of an offset reset."""

from __future__ import annotations

from dataclasses import dataclass

from oncelog import TopicPartition
from oncelog.admin import LATEST_TIMESTAMP, Admin
from oncelog.admin.groups import DescribedGroup, GroupMember
from oncelog.cli.group_positions import bounds_of, planned
from oncelog.cli.offsets import Position
from oncelog.errors import ErrorCode, KafkaError, PartialFailure, UnsupportedVersion
from oncelog_console.lookups import share_groups
from oncelog_protocol.messages.fetch import IsolationLevel


@dataclass(frozen=True, slots=True)
class PositionRow:
    """The position of a group in one partition. `waits`: all records after the position belong to open transactions, so
    a read_committed member waits.
    """

    partition: TopicPartition
    committed: int | None
    last_stable: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)

    @property
    def waits(self) -> bool:
        return self.last_stable is not None and self.committed == self.last_stable and self.end != self.last_stable


@dataclass(frozen=True, slots=True)
class GroupView:
    group: DescribedGroup
    rows: list[PositionRow]

    @property
    def lag(self) -> int | None:
        known = [row.lag for row in self.rows if row.lag is not None]
        return sum(known) if known else None


async def look_at_any(admin: Admin, group_id: str) -> GroupView | share_groups.ShareGroupView:
    """Return the state of a group of any protocol. Raises KafkaError, with GROUP_ID_NOT_FOUND for a group that does not
    exist.
    """
    try:
        return await look(admin, group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        try:
            return await share_groups.look(admin, group_id)
        except UnsupportedVersion:  # the cluster has no share groups
            raise error from None


async def look(admin: Admin, group_id: str) -> GroupView:
    """Return the state of the group; raises KafkaError, with GROUP_ID_NOT_FOUND for a group that does not exist."""
    group = (await admin.groups.describe([group_id]))[group_id]
    committed = await offsets_of(admin, group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    if group.state == "Dead" and not committed and not readers:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"unknown group {group_id!r}")
    partitions = sorted(committed.keys() | readers.keys())
    bounds = await _ends(admin, partitions)
    rows = [
        PositionRow(where, committed.get(where), *bounds.get(where, (None, None)), readers.get(where))
        for where in partitions
    ]
    return GroupView(group, rows)


async def offsets_of(admin: Admin, group_id: str) -> dict[TopicPartition, int]:
    return {where: known.offset for where, known in (await admin.groups.offsets(group_id)).items()}


async def _ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """Return the last stable offset and the high watermark of each partition that still exists."""
    topics = set(await admin.list_topics(include_internal=True))
    wanted = {where: LATEST_TIMESTAMP for where in partitions if where.topic in topics}
    found: list[dict[TopicPartition, int]] = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        try:
            answers = await admin.list_offsets(wanted, isolation_level=level)
        except PartialFailure as failure:
            answers = dict(failure.results)
        found.append({where: answer.offset for where, answer in answers.items()})
    return {where: (found[0].get(where), found[1].get(where)) for where in wanted}


async def plan(
    admin: Admin, group_id: str, topic: str | None, position: Position | None, shift_by: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the plan of an offset reset: for each partition of one topic, or of all topics with committed offsets, the
    group's committed offset and its new value. `position` or a shift determines the new value. Raises KafkaError.
    """
    committed = await offsets_of(admin, group_id)
    if topic is None:
        wanted = sorted(committed)
    else:
        known = (await admin.describe_topics([topic]))[topic]
        wanted = [TopicPartition(topic, index) for index in sorted(known.partitions)]
    return committed, await planned(admin, wanted, committed, position, shift_by)


async def within_bounds(admin: Admin, targets: dict[TopicPartition, int]) -> bool:
    """Return whether each partition still has its target offset. Raises KafkaError."""
    bounds = await bounds_of(admin, targets)
    return all(
        where in bounds and bounds[where].beginning <= offset <= bounds[where].end for where, offset in targets.items()
    )
