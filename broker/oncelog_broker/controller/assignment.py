"""Which brokers hold the replicas of new partitions: Kafka's round robin, and checks of an assignment made by hand.

Pure: where the round robin starts is the caller's choice (Kafka draws it at random, so that many small topics do not
all begin on the same broker). Where every broker has a rack, the replicas of a partition lie in as many racks as can be
(KIP-36): the brokers stand in an order in which the racks alternate, and a broker is passed over while there is one in
a rack that has no replica yet. Where some broker has none, racks are not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_TOPIC = 10_000
"""What one request may make of one topic: beyond it the request alone would exhaust the broker. Kafka has the same
limit per request (KRaft); ours is the planned size of a whole broker."""

Assignment = dict[int, tuple[int, ...]]
"""Partition id -> broker ids, the preferred leader first."""


def assign_replicas(
    brokers: Sequence[int],
    num_partitions: int,
    replication_factor: int,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
    racks: Mapping[int, str] | None = None,
) -> Assignment:
    """Spread `num_partitions` new partitions, numbered from `first_partition`, evenly over `brokers`.

    Leaders go round from `start`; each further replica lies `shift` brokers further on, one more with every round, so
    that the followers of one broker's partitions are spread too. With one seed for both (`start == shift`) it is what
    Kafka does when it adds partitions. KafkaError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    check_partition_count(num_partitions)
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        message = f"Replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    size = len(brokers)
    knows_racks = racks is not None and size > 0 and all(broker in racks for broker in brokers)
    order = _alternating(brokers, racks) if knows_racks and racks is not None else brokers
    rack_of = racks if knows_racks and racks is not None else {broker: str(broker) for broker in brokers}
    number_of_racks = len({rack_of[broker] for broker in brokers})
    assignment: Assignment = {}
    placed: dict[tuple[int, int], tuple[int, ...]] = {}
    """Very many partitions lie in few ways: so they are found once, and shared."""
    for partition in range(first_partition, first_partition + num_partitions):
        rounds = partition // size - max(first_partition - 1, 0) // size
        leader = (partition + start) % size
        further = (shift + rounds) * (number_of_racks if knows_racks else 1) % max(size - 1, 1)
        if (leader, further) not in placed:
            followers = (order[_follower(leader, further, nth, size)] for nth in range(max(size - 1, 0)))
            placed[leader, further] = _apart(order[leader], followers, replication_factor, rack_of, number_of_racks)
        assignment[partition] = placed[leader, further]
    return assignment


def _alternating(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """The brokers in turns from each rack, in the order of the racks' names."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _apart(
    leader: int, candidates: Iterable[int], count: int, rack_of: Mapping[int, str], number_of_racks: int
) -> tuple[int, ...]:
    """The leader and the first candidates, all of them different, that bring a new rack as long as there is one."""
    chosen, passed_over = [leader], []
    racks = {rack_of[leader]}
    for broker in candidates:
        if len(chosen) == count:
            break
        if rack_of[broker] in racks and len(racks) < number_of_racks:
            passed_over.append(broker)
            continue
        chosen.append(broker)
        racks.add(rack_of[broker])
    return tuple([*chosen, *passed_over][:count])


def check_partition_count(num_partitions: int) -> None:
    """KafkaError INVALID_PARTITIONS unless a topic may have so many partitions."""
    if num_partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if num_partitions > MAX_PARTITIONS_PER_TOPIC:
        message = f"{num_partitions} partitions were asked for, a topic may have {MAX_PARTITIONS_PER_TOPIC}."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Collection[int],
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> Assignment:
    """The assignment as ours, if it is a legal one for new partitions from `first_partition` on.

    KafkaError INVALID_REPLICA_ASSIGNMENT: partition ids with gaps, no or the same broker twice, an unknown broker, or
    not `replication_factor` replicas everywhere (None: as many as the first partition has). INVALID_PARTITIONS: none.
    """
    check_partition_count(len(assignment))
    if sorted(assignment) != list(range(first_partition, first_partition + len(assignment))):
        raise _invalid(f"Partition ids must be consecutive from {first_partition}, not {_listed(sorted(assignment))}.")
    expected = len(assignment[first_partition]) if replication_factor is None else replication_factor
    live = frozenset(brokers)
    for partition, replicas in assignment.items():
        if not replicas:
            raise _invalid(f"Partition {partition} has no replicas.")
        if len(set(replicas)) != len(replicas):
            raise _invalid(f"Partition {partition} has a broker twice: {_listed(replicas)}.")
        if not live.issuperset(replicas):
            raise _invalid(f"Partition {partition} is to lie on {_listed(replicas)}, but {_listed(sorted(live))} live.")
        if len(replicas) != expected:
            raise _invalid(f"Partition {partition} has {len(replicas)} replicas, where the others have {expected}.")
    return {partition: tuple(assignment[partition]) for partition in sorted(assignment)}


def _follower(leader: int, shift: int, nth: int, size: int) -> int:
    """Position of the nth follower: at least one and at most size - 1 after the leader, all different."""
    return (leader + 1 + (shift + nth) % (size - 1)) % size


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"[{shown}, ...]" if len(ids) > 10 else f"[{shown}]"
