"""Compares AddOffsetsToTxn and TxnOffsetCommit: offsets that are committed in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.interop.differential.batches import Producer
from tests.interop.differential.calls import (
    GROUP,
    WITHOUT_TRANSACTION_ERRORS,
    await_transaction,
    coordinator,
    create,
    describe_transactions,
    end_transaction,
    transactional_producer,
)
from tests.interop.differential.members import all_offsets, describe_groups
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


def commit(
    side: Side,
    producer: Producer,
    group: str,
    label: str = "",
    *,
    topic: str = "a",
    partitions: Sequence[int] = (0,),
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str | None = "m",
    version: int = 3,
) -> None:
    """Send TxnOffsetCommit with offset 5."""
    offsets = [{"partition_index": one, "committed_offset": 5, "committed_metadata": metadata} for one in partitions]
    asked = {
        "transactional_id": side.own(producer.transactional_id) if producer.transactional_id else "",
        "group_id": side.own(group) if group else "",
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
        "topics": [{"name": side.own(topic), "partitions": offsets}],
    }
    side.ask(ApiKey.TXN_OFFSET_COMMIT, version, asked, label)


def add_offsets(side: Side, producer: Producer, group: str, label: str = "", version: int = 3) -> Any:
    asked = {
        "transactional_id": side.own(producer.transactional_id) if producer.transactional_id else "",
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "group_id": side.own(group) if group else "",
    }
    return side.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, asked, label)


@scenario
def add(side: Side) -> None:
    """AddOffsetsToTxn."""
    producer = transactional_producer(side, "t")
    coordinator(side, "g", GROUP)
    for version in range(5):
        add_offsets(side, producer, "g", version=version)
    add_offsets(side, producer.at(id=1), "g", "wrong producer id")
    for version in range(4):
        add_offsets(side, producer.at(epoch=1), "g", "next epoch", version)
    add_offsets(side, Producer(producer.id, producer.epoch, "none"), "g", "unknown transactional id")
    add_offsets(side, Producer(producer.id, producer.epoch), "g", "empty transactional id")
    add_offsets(side, producer, "", "empty group")
    describe_transactions(side, "t")
    end_transaction(side, producer, False)


@scenario
def commits(side: Side) -> None:
    """Commit offsets that are pending until the transaction ends; meanwhile, an OffsetFetch that requires stable
    offsets gets a retriable error.
    """
    create(side, "a")
    producer = transactional_producer(side, "t")
    coordinator(side, "g", GROUP)
    for version in (0, 2, 3, 4):
        commit(side, producer, "g", "not added", version=version)
    add_offsets(side, producer, "g")
    for version in range(5):
        commit(side, producer, "g", "added", version=version)
    all_offsets(side, "g", "pending")
    all_offsets(side, "g", "pending, stable", require_stable=True)
    named = [{"name": side.own("a"), "partition_indexes": [0, 3]}]
    asked = {"group_id": side.own("g"), "topics": named, "require_stable": True}
    side.ask(ApiKey.OFFSET_FETCH, 7, asked, "named, stable")
    end_transaction(side, producer)
    await_transaction(side, "t", "CompleteCommit")
    all_offsets(side, "g", "committed")
    commit(side, producer, "g", "after the end")


@scenario
def odd_values(side: Side) -> None:
    """Send TxnOffsetCommit with invalid partitions, members and producers."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    coordinator(side, "g", GROUP)
    add_offsets(side, producer, "g")
    commit(side, producer, "g", "first")
    commit(side, producer, "g", "unknown topic", topic="none")
    commit(side, producer, "g", "unknown partitions", partitions=(0, 7, -1))
    commit(side, producer, "g", "member without generation", member="m")
    commit(side, producer, "g", "instance", instance="i")
    for epoch in (1, -1):
        commit(side, producer.at(epoch=epoch), "g", f"epoch {epoch:+d}")
    commit(side, producer.at(id=1), "g", "wrong producer id")
    commit(side, Producer(producer.id, producer.epoch, "none"), "g", "unknown transactional id")
    commit(side, Producer(producer.id, producer.epoch), "g", "empty transactional id")
    commit(side, producer, "", "empty group")
    commit(side, producer, "g", "long metadata", metadata="x" * 5000)
    commit(side, producer, "g", "no metadata", metadata=None)
    commit(side, producer, "other", "a group that was not added")
    end_transaction(side, producer)
    await_transaction(side, "t", "CompleteCommit")
    all_offsets(side, "g", "committed")
    all_offsets(side, "other", "of a group that was not added")


@scenario
def generations(side: Side) -> None:
    """Send TxnOffsetCommit with a generation for a group that has committed offsets but no members."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    coordinator(side, "g", GROUP)
    add_offsets(side, producer, "g")
    commit(side, producer, "g", "no generation")
    for member in ("m", ""):
        commit(side, producer, "g", f"generation 1, member {member!r}", generation=1, member=member)
    commit(side, producer, "g", "instance and member", instance="i", member="m", generation=1)
    end_transaction(side, producer)


@scenario
def groups_of_pending_offsets(side: Side) -> None:
    """Use groups that have only pending offsets, and so no offsets at all after the transaction is aborted."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    coordinator(side, "g", GROUP)
    add_offsets(side, producer, "g")
    commit(side, producer, "g", "pending")
    describe_groups(side, "g", label="pending only")
    side.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [side.own("g")]}, "pending only")
    end_transaction(side, producer, False)
    await_transaction(side, "t", "CompleteAbort")
    all_offsets(side, "g", "aborted")
    describe_groups(side, "g", label="aborted")


@scenario
def second_protocol(side: Side) -> None:
    """Send TxnOffsetCommit v5, which adds the group to the transaction itself."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    coordinator(side, "g", GROUP)
    commit(side, producer, "g", "adds by itself", version=5)
    all_offsets(side, "g", "pending")
    end_transaction(side, producer, version=5)
    await_transaction(side, "t", "CompleteCommit")
    all_offsets(side, "g", "committed")
    commit(side, producer, "g", "old epoch", version=5)


@scenario
def two_transactions(side: Side) -> None:
    """Commit the same partition in two transactions, only one of which ends."""
    create(side, "a")
    one, other = (transactional_producer(side, name) for name in ("one", "other"))
    coordinator(side, "g", GROUP)
    for producer in (one, other):
        add_offsets(side, producer, "g", producer.transactional_id or "")
        commit(side, producer, "g", producer.transactional_id or "")
    end_transaction(side, one, retried=WITHOUT_TRANSACTION_ERRORS)
    await_transaction(side, "one", "CompleteCommit")
    all_offsets(side, "g", "one committed")
    all_offsets(side, "g", "one committed, stable", require_stable=True)
    end_transaction(side, other, False)
    await_transaction(side, "other", "CompleteAbort")
    all_offsets(side, "g", "the other aborted", require_stable=True)
