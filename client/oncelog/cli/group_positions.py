"""Queries of `oncelog groups`: the positions of groups, and the positions that a reset would set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from oncelog.cli import held_offsets
from oncelog.cli.held_offsets import HeldOffsets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.admin import Admin
    from oncelog.admin.groups import DescribedGroup, GroupMember
    from oncelog.cli.offsets import Position
    from oncelog.cli.reset_plan import Bounds
    from oncelog.cluster import TopicPartition

DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """The position of a group in a partition; `member` is the member that reads the partition. Missing values are
    None."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """A group with its members, and a row for each partition that a member reads or for which the group has committed
    an offset.
    """

    group: DescribedGroup
    rows: tuple[PartitionRow, ...]
    held: HeldOffsets

    @property
    def without_partitions(self) -> list[GroupMember]:
        """The members that have no partitions, or whose assignment has an unknown format."""
        return [member for member in self.group.members if not member.assignment]


async def positions_of(admin: Admin, group_id: str) -> GroupPositions:
    """Return the positions of a group. Raises KafkaError (GROUP_ID_NOT_FOUND for an unknown group)."""
    from oncelog.errors import ErrorCode, KafkaError

    group = (await admin.groups.describe([group_id]))[group_id]
    committed = await admin.groups.offsets(group_id)
    # Brokers before DescribeGroups v6 report an unknown group as Dead.
    if group.state == DEAD and not committed and not group.members:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"unknown group {group_id!r}")
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | readers.keys())
    bounds = await bounds_of(admin, partitions)
    rows = tuple(
        PartitionRow(
            partition,
            committed[partition].offset if partition in committed else None,
            bounds[partition].end if partition in bounds else None,
            readers.get(partition),
        )
        for partition in partitions
    )
    return GroupPositions(group, rows, await _held(admin, group_id, partitions))


async def _held(admin: Admin, group_id: str, partitions: list[TopicPartition]) -> HeldOffsets:
    """Return the pending offsets among these partitions. If there are pending offsets, the function reads
    __consumer_offsets to find their transactions.
    """
    unstable = await admin.groups.unstable_offsets(group_id, partitions)
    return replace(await held_offsets.find(admin, [group_id]), unstable=unstable) if unstable else HeldOffsets()


async def bounds_of(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Return the start and end offsets of those partitions that still exist. Raises KafkaError."""
    from oncelog.cli.reset_plan import Bounds
    from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    topics = set(await admin.list_topics(include_internal=True))
    wanted = [partition for partition in partitions if partition.topic in topics]
    first = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST_TIMESTAMP))
    last = await admin.list_offsets(dict.fromkeys(wanted, LATEST_TIMESTAMP))
    return {partition: Bounds(first[partition].offset, last[partition].offset) for partition in wanted}


async def planned(
    admin: Admin,
    wanted: list[TopicPartition],
    committed: dict[TopicPartition, int],
    position: Position | None,
    shift_by: int | None,
) -> dict[TopicPartition, int]:
    """Compute the new offset of each partition, either from `position` or by shifting the committed offset. Raises
    KafkaError.
    """
    from oncelog.cli.offsets import AtTime, resolve
    from oncelog.cli.reset_plan import shifted

    bounds = await bounds_of(admin, wanted)
    if position is None:
        return shifted({key: committed[key] for key in wanted if key in committed}, shift_by or 0, bounds)
    found: dict[TopicPartition, int | None] = {}
    if isinstance(position, AtTime):
        answers = await admin.list_offsets(dict.fromkeys(bounds, position.timestamp_ms))
        found = {key: answer.offset if answer.offset >= 0 else None for key, answer in answers.items()}
    return {
        key: resolve(position, beginning=held.beginning, end=held.end, found=found.get(key))
        for key, held in bounds.items()
    }
