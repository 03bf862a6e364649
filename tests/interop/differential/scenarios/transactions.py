"""Compares transactions: taking over an id, adding partitions, producing."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.differential.batches import Producer, batch
from tests.interop.differential.calls import (
    GROUP,
    LATEST,
    READ_COMMITTED,
    TRANSACTION,
    WITHOUT_TRANSACTION_ERRORS,
    add_partitions,
    await_markers,
    await_transaction,
    coordinator,
    create,
    describe_producers,
    describe_transactions,
    end_transaction,
    fetch,
    init,
    list_offsets,
    list_offsets_quietly,
    produce,
    transactional_producer,
)
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.odd_batches import SILENCE_SECONDS
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def init_ids(side: Side) -> None:
    """Send InitProducerId in every version, with and without a transactional id, and with unusual timeouts."""
    coordinator(side, "t")
    for version in range(6):
        init(side, None, "no id", version=version)
        init(side, "t", "an id", version=version)
    for timeout in (0, -1, 1, 900_000, 900_001, 2**31 - 1):
        for version in (1, 5):
            init(side, f"x{timeout}", f"timeout {timeout}", timeout_ms=timeout, version=version)
    for timeout in (0, -1):
        init(side, None, f"no id, timeout {timeout}", timeout_ms=timeout)
    for version in (0, 5):
        init(side, "", "empty id", version=version)
    init(side, "x" * 32_000, "huge id")
    init(side, "y ä€\n", "odd id")


@scenario
def init_with_a_producer(side: Side) -> None:
    """Request the next epoch of the producer's own id (KIP-360)."""
    known = init(side, None, "plain")
    for producer_id, epoch, label in ((known.producer_id, 0, "both"), (known.producer_id, -1, "id"), (-1, 0, "epoch")):
        init(side, None, f"no transactional id, {label}", producer_id=producer_id, epoch=epoch)
    producer = transactional_producer(side, "t")
    own, epoch = producer.id, producer.epoch
    for producer_id, at, version, label in (
        (own, epoch, 5, "own epoch"),
        (own, epoch, 5, "own epoch again, a retry"),
        (own, epoch + 1, 5, "next epoch"),
        (own, epoch, 5, "an old epoch"),
        (own, epoch, 3, "an old epoch"),
        (own, epoch, 2, "an old epoch, a version without it"),
        (own, 100, 5, "higher epoch"),
        (own + 1000, 3, 5, "another id"),
        (own + 1000, 3, 3, "another id"),
        (own, -1, 5, "id without epoch"),
        (-1, 3, 5, "epoch without id"),
        (-2, -2, 5, "-2 and -2"),
    ):
        init(side, "t", label, producer_id=producer_id, epoch=at, version=version)
    init(side, "new", "unknown transactional id", producer_id=own, epoch=0)
    init(side, "newer", "unknown transactional id, made-up id", producer_id=2**50, epoch=5)
    init(side, "t", "plain")
    describe_transactions(side, "t", "new", "none")


@scenario
def init_fences(side: Side) -> None:
    """Send InitProducerId with an id in use, which aborts its open transaction and fences the old owner."""
    create(side, "a")
    old = transactional_producer(side, "t")
    add_partitions(side, old, {"a": [0]})
    produce(side, "a", batch(2, old, 0), "in the transaction", transactional_id="t")
    init(side, "t", "while it is open", retried=WITHOUT_TRANSACTION_ERRORS)
    await_markers(side, "a")
    init(side, "t", "after it was aborted")
    fetch(side, "a", isolation=READ_COMMITTED)
    produce(side, "a", batch(1, old, 2), "old epoch", transactional_id="t")
    for version in (1, 3):
        add_partitions(side, old, {"a": [0]}, "old epoch", version=version)
    for version in (1, 4, 5):
        end_transaction(side, old, label="old epoch", version=version)
    describe_producers(side, "a", 0)


@scenario
def init_by_a_predecessor(side: Side) -> None:
    """Request the next epoch with the previous epoch, after a transaction has begun with the current epoch."""
    create(side, "a", 2)
    for partition, (name, version) in enumerate((("one", 11), ("two", 12))):
        old = transactional_producer(side, name)
        answer = init(side, name, f"{name}: next epoch", producer_id=old.id, epoch=old.epoch)
        new = Producer(answer.producer_id, answer.producer_epoch, name)
        if version < 12:
            add_partitions(side, new, {"a": [partition]}, name)
        produce(side, "a", batch(1, new, 0), name, partition=partition, transactional_id=name, version=version)
        init(side, name, f"{name}: previous epoch, open", producer_id=old.id, epoch=old.epoch)
        end_transaction(side, new, True, f"{name}: the owner", version=version - 7)


@scenario
def init_in_a_transaction(side: Side) -> None:
    """Request the next epoch of a producer while its own transaction is open."""
    create(side, "a")
    for name, version in (("one", 11), ("two", 12)):
        producer = transactional_producer(side, name)
        if version < 12:
            add_partitions(side, producer, {"a": [0]}, name)
        produce(side, "a", batch(1, producer, 0), name, transactional_id=name, version=version)
        own = {"producer_id": producer.id, "epoch": producer.epoch}
        init(side, name, f"{name}: own epoch", **own, retried=WITHOUT_TRANSACTION_ERRORS)
        await_transaction(side, name, "CompleteAbort")
        init(side, name, f"{name}: again", **own)
        init(side, name, f"{name}: plain")
        describe_transactions(side, name)
    await_markers(side, "a")
    fetch(side, "a", isolation=READ_COMMITTED)


@scenario
def add(side: Side) -> None:
    """Send AddPartitionsToTxn as clients do, with right and wrong partitions, producers and epochs."""
    create(side, "a", 2)
    producer = transactional_producer(side, "t")
    for version in range(4):
        add_partitions(side, producer, {"a": [0, 1]}, version=version)
    odd: tuple[tuple[dict[str, Sequence[int]], str], ...] = (
        ({"a": [0]}, "again"),
        ({"a": [0, 0]}, "twice"),
        ({"none": [0]}, "unknown topic"),
        ({"a": [0, 5]}, "unknown partition"),
        ({"a": [-1]}, "partition -1"),
        ({"a": []}, "no partitions"),
        ({}, "no topics"),
        ({"a": [0], "none": [0]}, "known and unknown"),
    )
    for topics, label in odd:
        add_partitions(side, producer, topics, label)
    add_partitions(side, producer.at(id=1), {"a": [0]}, "wrong producer id")
    add_partitions(side, Producer(-1, -1, "t"), {"a": [0]}, "no producer")
    for version in range(4):
        add_partitions(side, producer.at(epoch=1), {"a": [0]}, "next epoch", version=version)
    add_partitions(side, Producer(producer.id, -1, "t"), {"a": [0]}, "epoch -1")
    add_partitions(side, Producer(producer.id, producer.epoch, "other"), {"a": [0]}, "unknown transactional id")
    add_partitions(side, Producer(producer.id, producer.epoch), {"a": [0]}, "empty transactional id")
    describe_transactions(side, "t")
    end_transaction(side, producer)


@scenario
def verify(side: Side) -> None:
    """Send AddPartitionsToTxn as brokers do (KIP-890), with many transactions, to add partitions or only to verify
    them.
    """
    create(side, "a", 2)
    producer = transactional_producer(side, "t")
    add_partitions(side, producer, {"a": [0]})

    def of(transactional_id: str, partitions: list[int], only_verify: bool, producer_id: int = producer.id) -> Plain:
        return {
            "transactional_id": side.own(transactional_id),
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "verify_only": only_verify,
            "topics": [{"name": side.own("a"), "partitions": partitions}],
        }

    def ask(version: int, transactions: list[Plain], label: str, patience: float = 20.0) -> None:
        asked = {"transactions": transactions}
        side.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, asked, label, patience=patience)

    for version in (4, 5):
        ask(version, [of("t", [0], True)], "what is in it")
        ask(version, [of("t", [0, 1], True)], "one that is not in it")
        ask(version, [of("none", [0], True), of("t", [0], True, producer.id + 1)], "others")
    end_transaction(side, producer)
    for version in (4, 5):
        ask(version, [of("t", [0, 1], True)], "not in it, after the end")
        ask(version, [of("t", [0, 1], False)], "added")
        ask(version, [of("t", [0], False), of("none", [0], False)], "added, and an unknown transaction")
    ask(5, [], "no transactions", SILENCE_SECONDS)


@scenario
def internal_topics(side: Side) -> None:
    """Try to use the internal topics, which clients may not write to."""
    create(side, "a")
    coordinator(side, "x", GROUP)
    coordinator(side, "x", TRANSACTION)
    producer = transactional_producer(side, "t")
    for topic in ("__consumer_offsets", "__transaction_state"):
        add_partitions(side, producer, {topic: [0]}, topic)
        add_partitions(side, producer, {topic: [0], "a": [0]}, f"{topic} beside another")
    describe_transactions(side, "t")
    end_transaction(side, producer, commit=False)


@scenario
def produce_in_one(side: Side) -> None:
    """Produce to partitions that are in the transaction and to other partitions, with the transaction's producer and
    with other producers.
    """
    create(side, "a", 3)
    producer = transactional_producer(side, "t")
    for version in (8, 10, 11):
        produce(side, "a", batch(1, producer, 0), "not added", transactional_id="t", version=version)
    describe_producers(side, "a", 0, label="nothing written")
    add_partitions(side, producer, {"a": [0]})
    produce(side, "a", batch(1, producer, 0), "sequence 0", transactional_id="t")
    produce(side, "a", batch(1, producer, 1), "acks 1", transactional_id="t", acks=1)
    produce(side, "a", batch(1, producer, 2, transactional=False), "plain batch, with the id", transactional_id="t")
    produce(side, "a", batch(1, producer, 2, transactional=False), "plain batch, no id")
    produce(side, "a", batch(1, producer, 2), "another's transactional id", transactional_id="other")
    produce(side, "a", batch(1, producer, 3), "empty transactional id", transactional_id="")
    produce(side, "a", batch(1, producer, 3), "no transactional id")
    produce(side, "a", batch(1, producer, 3), "partition not added", partition=1, transactional_id="t")
    for epoch in (1, -1):
        odd = batch(1, producer.at(epoch=epoch), 0)
        produce(side, "a", odd, f"epoch {epoch:+d}", transactional_id="t")
    _read(side, "open")
    end_transaction(side, producer)
    await_markers(side, "a")
    _read(side, "ended")
    produce(side, "a", batch(1, producer, 2), "after the end", transactional_id="t")
    produce(side, "a", batch(1, producer, 2, transactional=False), "plain, after the end")
    describe_producers(side, "a", 0, 1, 2)


def _read(side: Side, label: str) -> None:
    for isolation in (0, READ_COMMITTED):
        list_offsets(side, "a", LATEST, f"{label}, isolation level {isolation}", isolation=isolation)
        fetch(side, "a", label=label, isolation=isolation)


@scenario
def first_sequence(side: Side) -> None:
    """Send a first batch with a sequence above 0, to a partition that has no state of the producer."""
    create(side, "a", 4)
    for partition, version in ((0, 12), (1, 11)):
        producer = transactional_producer(side, f"t{version}")
        if version < 12:
            add_partitions(side, producer, {"a": [partition]}, f"v{version}")
        for sequence in (5, 0):
            data = batch(1, producer, sequence)
            label = f"no state, sequence {sequence}"
            produce(side, "a", data, label, partition=partition, transactional_id=f"t{version}", version=version)


@scenario
def sequences_used_again(side: Side) -> None:
    """Use the same sequences again in the next transaction, as if the first batch had never been written (E33)."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    for commit in (False, True):
        add_partitions(side, producer, {"a": [0]}, version=3)
        produce(side, "a", batch(2, producer, 0), f"then ended by {commit}", transactional_id="t", version=11)
        end_transaction(side, producer, commit, "", version=3)
        await_transaction(side, "t", "CompleteCommit" if commit else "CompleteAbort")
        await_markers(side, "a", 0)
        add_partitions(side, producer, {"a": [0]}, version=3)
        produce(side, "a", batch(2, producer, 0), f"used again after {commit}", transactional_id="t", version=11)
        end_transaction(side, producer, False, "", version=3)
        await_transaction(side, "t", "CompleteAbort")
        producer = transactional_producer(side, "t")


@scenario
def refused_then_next(side: Side) -> None:
    """Send sequence 1 after sequence 0 was refused because its partition was not added yet."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    produce(side, "a", batch(1, producer, 0), "sequence 0, not added", transactional_id="t")
    add_partitions(side, producer, {"a": [0]})
    produce(side, "a", batch(1, producer, 1), "sequence 1, added", transactional_id="t")
    produce(side, "a", batch(1, producer, 0), "sequence 0, added", transactional_id="t")
    side.note("records", list_offsets_quietly(side, "a"))


@scenario
def many_epochs(side: Side) -> None:
    """Request many epochs of a producer one after another."""
    producer = transactional_producer(side, "t")
    producer_id, epoch = producer.id, producer.epoch
    for number in range(20):
        answer = init(side, "t", f"number {number}", producer_id=producer_id, epoch=epoch)
        producer_id, epoch = answer.producer_id, answer.producer_epoch
