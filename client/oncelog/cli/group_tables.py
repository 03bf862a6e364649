"""(pure) The tables of `oncelog groups describe`: members, positions, pending offsets of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from oncelog.cli import held_offsets
from oncelog.cli.output import count

if TYPE_CHECKING:
    from oncelog.admin.groups import GroupMember
    from oncelog.cli.group_positions import GroupPositions, PartitionRow
    from oncelog.cluster import TopicPartition

Row = tuple[Any, ...]

PARTITION_COLUMNS: Final = ("Topic", "Partition", "Committed", "End offset", "Lag", "Member", "Client", "Host")
HELD_COLUMN: Final = "Offset held by"
MEMBER_COLUMNS: Final = ("Member", "Client", "Host", "Instance", "Partitions")
STREAMS_MEMBER_COLUMNS: Final = (*MEMBER_COLUMNS, "Active tasks", "Standby tasks")
PLAIN_COLUMNS: Final = ("Group", "State", *PARTITION_COLUMNS, "Instance", HELD_COLUMN, "Ends by (ms)")
NOT_KNOWN: Final = "an open transaction"
"""Text that is shown if the transactional id is unknown."""


def title(positions: GroupPositions) -> tuple[str, str]:
    """Return the title, such as `billing: Stable`, and a second line with the protocol and the coordinator."""
    group = positions.group
    kind = f"protocol {group.protocol or '-'} of type {group.protocol_type or '-'}"
    if group.epoch is not None:
        kind = f"{group.group_type} protocol, epoch {group.epoch}, assignor {group.protocol}"
    return f"{group.group_id}: {group.state}", f"{kind}, coordinator broker {group.coordinator_id}"


def partition_table(positions: GroupPositions) -> tuple[tuple[str, ...], list[Row]]:
    """Return the columns and rows of the positions table; its last column exists only if an offset is pending."""
    if not any(_holder(positions, row) for row in positions.rows):
        return PARTITION_COLUMNS, [_position(row) for row in positions.rows]
    rows = [(*_position(row), _holder(positions, row)) for row in positions.rows]
    return (*PARTITION_COLUMNS, HELD_COLUMN), rows


def member_table(positions: GroupPositions) -> tuple[tuple[str, ...], list[Row]]:
    """Return the columns and a row for each member; for streams groups, the table also has the tasks."""
    members = positions.group.members
    rows: list[Row] = [(*_who(member), _names(member.assignment) or None) for member in members]
    if all(member.active_tasks is None for member in members):
        return MEMBER_COLUMNS, rows
    return STREAMS_MEMBER_COLUMNS, [
        (*row, list(member.active_tasks or ()) or None, list(member.standby_tasks or ()) or None)
        for row, member in zip(rows, members, strict=True)
    ]


def plain_rows(positions: GroupPositions) -> Iterator[Row]:
    """Yield a row for each partition, and for each member without partitions; a single row for a group with neither
    partitions nor members.
    """
    head = (positions.group.group_id, positions.group.state)
    for row in positions.rows:
        pending = positions.held.of_group(positions.group.group_id, row.partition)
        ends_by_ms = None if pending is None else pending.explained.ends_by_ms
        instance_id = None if row.member is None else row.member.group_instance_id
        yield (*head, *_position(row), instance_id, _holder(positions, row), ends_by_ms)
    nowhere = (None,) * 5
    for member in positions.without_partitions:
        member_id, client_id, host, instance_id = _who(member)
        yield (*head, *nowhere, member_id, client_id, host, instance_id, None, None)
    if not positions.rows and not positions.group.members:
        yield (*head, *(None,) * 11)


def lag_of(positions: GroupPositions) -> int | None:
    """Return the total lag of all partitions whose lag is known; None if no lag is known."""
    known = [row.lag for row in positions.rows if row.lag is not None]
    return sum(known) if known else None


def sum_of_lag(positions: GroupPositions) -> str:
    """Return a sentence with the sum of the lag, and with the number of partitions whose lag is not known."""
    unknown = sum(row.lag is None for row in positions.rows)
    lag = lag_of(positions)
    told = f"{positions.group.group_id}: lag {'-' if lag is None else lag} in {count(len(positions.rows), 'partition')}"
    return f"{told}, of which {unknown} have committed nothing" if unknown else told


def as_json(positions: GroupPositions) -> dict[str, Any]:
    """Return the groups as one document for JSON and YAML."""
    group = positions.group
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "group_type": group.group_type,
        "coordinator": group.coordinator_id,
        "lag": lag_of(positions),
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host,
                "instance_id": member.group_instance_id,
                "partitions": [{"topic": topic, "partition": index} for topic, index in member.assignment],
                **_tasks_json(member),
            }
            for member in group.members
        ],
        "partitions": [
            dict(zip(map(str.lower, PARTITION_COLUMNS), _position(row), strict=True))
            | {"offset_is_held": _holder(positions, row) is not None, "held_by": _held_json(positions, row.partition)}
            for row in positions.rows
        ],
    }


def _tasks_json(member: GroupMember) -> dict[str, Any]:
    """Return the tasks of a member of a streams group; members of other groups get an empty object."""
    if member.active_tasks is None:
        return {}
    return {"active_tasks": list(member.active_tasks), "standby_tasks": list(member.standby_tasks or ())}


def notes(positions: GroupPositions) -> Iterator[str]:
    """Yield lines of text about pending offsets whose transaction is unknown."""
    if positions.held.unstable and positions.held.why_not is not None:
        where = ", ".join(_names(sorted(positions.held.unstable)))
        yield (
            f"group {positions.group.group_id!r}: an open transaction has pending offsets of {where}; its owner is not"
            f" known: {positions.held.why_not}"
        )


def _position(row: PartitionRow) -> Row:
    who = (None, None, None) if row.member is None else _who(row.member)[:3]
    return (*row.partition, row.committed, row.end, row.lag, *who)


def _who(member: GroupMember) -> tuple[str, str, str, str | None]:
    return member.member_id, member.client_id, member.client_host, member.group_instance_id


def _names(partitions: Any) -> list[str]:
    return [f"{topic}:{index}" for topic, index in partitions]


def _holder(positions: GroupPositions, row: PartitionRow) -> str | None:
    """Return the transactional id that has a pending offset for this partition, or a text with the producer id if the
    transactional id is unknown. Returns None if this partition has no pending offset.
    """
    pending = positions.held.of_group(positions.group.group_id, row.partition)
    if pending is not None:
        return pending.transactional_id or f"producer id {pending.transaction.producer.producer_id}"
    is_held = positions.held.why_not is not None and row.partition in positions.held.unstable
    return NOT_KNOWN if is_held else None


def _held_json(positions: GroupPositions, partition: TopicPartition) -> dict[str, Any] | None:
    pending = positions.held.of_group(positions.group.group_id, partition)
    return None if pending is None else held_offsets.as_json(pending)
