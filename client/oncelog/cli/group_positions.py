"""Where groups are and where they could be moved, asked of a live cluster: what `oncelog groups` shows and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.admin import Admin
    from oncelog.cli.offsets import Position
    from oncelog.cli.reset_plan import Bounds
    from oncelog.cluster import TopicPartition

LAG_COLUMNS: Final = ("Topic", "Partition", "Committed", "End offset", "Lag", "Member", "Client", "Host")


async def lags_of(admin: Admin, group_id: str) -> tuple[str, str, list[tuple[Any, ...]]]:
    """The group, its state, and a row of LAG_COLUMNS for each partition that it has committed or reads. Raises
    KafkaError."""
    group = (await admin.groups.describe([group_id]))[group_id]
    committed = await admin.groups.offsets(group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | readers.keys())
    bounds = await bounds_of(admin, partitions)
    rows: list[tuple[Any, ...]] = []
    for partition in partitions:
        member = readers.get(partition)
        offset = committed[partition].offset if partition in committed else None
        end = bounds[partition].end if partition in bounds else None
        lag = None if offset is None or end is None else max(0, end - offset)
        who = (None, None, None) if member is None else (member.member_id, member.client_id, member.client_host)
        rows.append((*partition, offset, end, lag, *who))
    return group_id, group.state, rows


async def bounds_of(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """What those of the partitions hold that still exist. Raises KafkaError."""
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
    """Where `position`, or a shift, moves each partition: to its new offset. Raises KafkaError."""
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
