"""Starts, cancels and lists partition reassignments: `admin.alter_partition_reassignments`,
`admin.list_partition_reassignments` (KIP-455).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, sorted_out
from oncelog.cluster import TopicPartition
from oncelog.errors import error_for


@dataclass(frozen=True, slots=True)
class Reassignment:
    """An ongoing reassignment. `replicas` are the present and future replicas, the preferred leader first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(node for node in self.replicas if node not in self.removing)


async def alter_partition_reassignments(
    calls: Calls,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    timeout_ms: int | None = None,
) -> None:
    """See `Admin.alter_partition_reassignments`. Raises KafkaError, PartialFailure."""
    from oncelog_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

    wanted = AlterPartitionReassignmentsRequest.ReassignableTopic

    async def ask(partitions: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
        topics: dict[str, AlterPartitionReassignmentsRequest.ReassignableTopic] = {}
        for partition in partitions:
            target = targets[partition]
            topics.setdefault(partition.topic, wanted(name=partition.topic, partitions=[])).partitions.append(
                wanted.ReassignablePartition(
                    partition_index=partition.partition, replicas=None if target is None else list(target)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=calls.timeout_ms(timeout_ms),
            allow_replication_factor_change=allow_replication_factor_change,
            topics=list(topics.values()),
        )
        response = await calls.send_to_controller(request)
        if response.error_code:
            return {}, dict.fromkeys(partitions, error_for(response.error_code, response.error_message))
        return sorted_out(
            (TopicPartition(topic.name, each.partition_index), each.error_code, each.error_message, None)
            for topic in response.responses
            for each in topic.partitions
        )

    await calls.each([TopicPartition(*partition) for partition in targets], ask, timeout_ms)


async def list_partition_reassignments(
    calls: Calls, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
) -> dict[TopicPartition, Reassignment]:
    """See `Admin.list_partition_reassignments`. Raises KafkaError."""
    from oncelog_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

    named: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        named.setdefault(topic, []).append(index)
    of = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    request = ListPartitionReassignmentsRequest(
        timeout_ms=calls.timeout_ms(timeout_ms),
        topics=None if partitions is None else [of(name=name, partition_indexes=ids) for name, ids in named.items()],
    )

    async def ask(_: list[None]) -> Outcomes[None, dict[TopicPartition, Reassignment]]:
        response = await calls.send_to_controller(request)
        if response.error_code:
            return {}, {None: error_for(response.error_code, response.error_message)}
        found = {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }
        return {None: found}, {}

    return (await calls.each([None], ask, timeout_ms))[None]
