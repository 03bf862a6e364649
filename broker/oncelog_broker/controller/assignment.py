"""Assigns the replicas of new partitions to brokers by Kafka's round robin, and checks assignments that a client lists.
Pure.

The caller chooses the broker with which the round robin starts; Kafka chooses this broker at random, so that the first
partitions of many small topics are not all on the same broker. If every broker has a rack, the replicas of a partition
are spread over as many racks as possible (KIP-36). To spread the replicas, brokers are ordered so that racks alternate.
A broker in a rack that already has a replica is skipped as long as another rack has no replica. If any broker has no
rack, racks are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_TOPIC = 10_000
"""Maximum number of partitions of one topic that a request may create. A request for more partitions would exhaust the
broker. Kafka (KRaft) has the same limit per request. An entire broker is designed for this number of partitions.
"""

Assignment = dict[int, tuple[int, ...]]
"""Partition index -> broker ids of its replicas; the first broker is the preferred leader."""


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

    The partitions get their leaders in the order of `brokers`, beginning at position `start`. The followers of a
    partition are placed `shift` brokers after its leader; `shift` grows by one with every round, so that the followers
    of the partitions that one broker leads are also spread. If `start` equals `shift`, the result is the same as in
    Kafka when partitions are added to a topic. Raises KafkaError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
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
    """The replicas of each combination (position of the leader, shift). A topic with many partitions has few different
    combinations, so the replicas of each combination are computed only once.
    """
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
    """Return the brokers with alternating racks: one broker of each rack, in the order of the racks' names, then the
    next broker of each rack.
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _apart(
    leader: int, candidates: Iterable[int], count: int, rack_of: Mapping[int, str], number_of_racks: int
) -> tuple[int, ...]:
    """Return the replicas of a partition: the leader and the first `count - 1` candidates. Candidates in used racks are
    skipped while any rack is unused.
    """
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
    """Check the number of partitions of a new topic. Raises KafkaError INVALID_PARTITIONS if a topic may not have this
    number.
    """
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
    """Return the given assignment as an `Assignment`, if the assignment is legal for new partitions from
    `first_partition` on.

    Raises KafkaError INVALID_REPLICA_ASSIGNMENT for partition ids with gaps, and for a partition with no broker, the
    same broker twice, an unknown broker, or another number of replicas than `replication_factor` (None means the number
    of replicas of the first partition). Raises INVALID_PARTITIONS if the assignment has no partitions.
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
            raise _invalid(
                f"Partition {partition} cannot be on {_listed(replicas)}: only {_listed(sorted(live))} are alive."
            )
        if len(replicas) != expected:
            raise _invalid(
                f"Partition {partition} has {len(replicas)} replicas, but the other partitions have {expected}."
            )
    return {partition: tuple(assignment[partition]) for partition in sorted(assignment)}


def _follower(leader: int, shift: int, nth: int, size: int) -> int:
    """Return the position of a partition's nth follower in the list of brokers. A follower is 1 to `size` - 1 positions
    after the leader, at a different position for each n.
    """
    return (leader + 1 + (shift + nth) % (size - 1)) % size


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"[{shown}, ...]" if len(ids) > 10 else f"[{shown}]"
