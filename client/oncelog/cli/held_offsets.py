"""Pending offsets of groups, for `oncelog groups describe` and `oncelog explain`. Only `find` queries a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncelog.cli.transaction_words import fact_lines, name_of, transaction_facts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from oncelog.admin import Admin
    from oncelog.admin.pending_offsets import PendingOffset
    from oncelog.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """The result of a search for pending offsets. `pending` contains the pending offsets, sorted by group and
    partition. `why_not` is the reason why the search could not find the transactions; None if it found them.
    """

    pending: tuple[PendingOffset, ...] = ()
    why_not: str | None = None
    unstable: frozenset[TopicPartition] = field(default_factory=frozenset)
    """Partitions with a pending offset of the queried group, as its coordinator reports them; used if only one group
    was queried.
    """

    def of_group(self, group_id: str, partition: TopicPartition) -> PendingOffset | None:
        """Return the pending offset of the group in a partition, None if there is none."""
        return next((p for p in self.pending if (p.group_id, p.partition) == (group_id, partition)), None)

    def of_partition(self, partition: TopicPartition) -> list[PendingOffset]:
        """Return the pending offsets of any group in a partition."""
        return [pending for pending in self.pending if pending.partition == partition]


async def find(admin: Admin, group_ids: Collection[str] | None = None) -> HeldOffsets:
    """Find the pending offsets of these groups, or of all groups. Without the right to read __consumer_offsets, the
    result has no transactions and `why_not` says why.
    """
    from oncelog.admin.pending_offsets import pending_offsets
    from oncelog.errors import KafkaError

    try:
        return HeldOffsets(tuple(await pending_offsets(admin, group_ids)))
    except KafkaError as error:
        return HeldOffsets(why_not=f"{error.code.name}: {error.message}")


def text(held: HeldOffsets, now_ms: int) -> Iterator[str]:
    """Yield text for people: for each group and transaction a headline, and a line for each fact."""
    parts: dict[tuple[str, int], list[PendingOffset]] = {}
    for pending in held.pending:
        parts.setdefault((pending.group_id, pending.transaction.producer.producer_id), []).append(pending)
    for (group_id, _), those in parts.items():
        first = those[0]
        where = ", ".join(f"{topic}:{index}" for topic, index in (each.partition for each in those))
        yield (
            f"group {group_id!r}: the open transaction of {name_of(first.transaction)} holds its offsets of {where}. "
            "Members that are assigned these partitions read nothing until it has ended."
        )
        yield from fact_lines(transaction_facts(first.explained, first.transaction, now_ms))


def as_json(pending: PendingOffset) -> dict[str, Any]:
    """Return the pending offsets as one document for JSON and YAML."""
    held = pending.transaction.held
    return {
        "group": pending.group_id,
        "topic": pending.partition.topic,
        "partition": pending.partition.partition,
        "offset": pending.offset,
        "transactional_id": pending.transactional_id,
        "producer_id": pending.transaction.producer.producer_id,
        "producer_epoch": pending.transaction.producer.producer_epoch,
        "state": None if held is None else held.state,
        "start_time_ms": None if held is None else held.start_time_ms,
        "ends_by_ms": pending.explained.ends_by_ms,
        "hangs": None if pending.explained.hang is None else pending.explained.hang.value,
        "coordinator": None if held is None else held.coordinator_id,
        "client_id": None if held is None else held.client_id,
        "client_host": None if held is None else held.client_host,
    }
