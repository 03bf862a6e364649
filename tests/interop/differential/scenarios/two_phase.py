"""Compares two-phase commit (KIP-939): InitProducerId v6, and transactions without a timeout."""

from __future__ import annotations

from tests.interop.differential.batches import Producer, batch
from tests.interop.differential.calls import (
    READ_COMMITTED,
    WITHOUT_TRANSACTION_ERRORS,
    add_partitions,
    await_markers,
    await_transaction,
    coordinator,
    create,
    describe_transactions,
    end_transaction,
    fetch,
    init,
    produce,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

FLAGS = ((False, False), (True, False), (False, True), (True, True))


def owner(side: Side, name: str, label: str = "", *, two_phase: bool = True) -> Producer:
    """Return the new owner of a transactional id, with two-phase commit or without."""
    answer = init(side, name, label, version=6, enable2_pc=two_phase)
    return Producer(answer.producer_id, answer.producer_epoch, name)


@scenario
def init_ids(side: Side) -> None:
    """Send InitProducerId v6 with and without a transactional id and two-phase commit, and with unusual timeouts."""
    coordinator(side, "t")
    for enables, keeps in FLAGS:
        flags = {"enable2_pc": enables, "keep_prepared_txn": keeps}
        label = f"enables {enables}, keeps {keeps}"
        init(side, None, f"no id, {label}", version=6, **flags)
        init(side, "", f"empty id, {label}", version=6, **flags)
    for enables in (False, True):
        for timeout in (0, -1, 1, 900_000, 900_001, 2**31 - 1):
            name = f"{enables}{timeout}"
            label = f"enables {enables}, timeout {timeout}"
            answer = init(side, name, label, timeout_ms=timeout, version=6, enable2_pc=enables)
            if answer.error_code == 0:
                describe_transactions(side, name, label=name)
    init(side, "t", "keeps nothing", version=6, keep_prepared_txn=True)


@scenario
def init_with_a_producer(side: Side) -> None:
    """Request the next epoch of the producer's own id (KIP-360)."""
    coordinator(side, "t")
    producer = owner(side, "t")
    own, epoch = producer.id, producer.epoch
    for producer_id, at, label in (
        (own, epoch, "own epoch"),
        (own, epoch, "own epoch again, a retry"),
        (own, epoch + 1, "next epoch"),
        (own, epoch, "an old epoch"),
        (own + 1000, 3, "another id"),
        (own, -1, "id without epoch"),
        (-1, 3, "epoch without id"),
    ):
        init(side, "t", label, producer_id=producer_id, epoch=at, version=6, enable2_pc=True)
    describe_transactions(side, "t")


@scenario
def transactions(side: Side) -> None:
    """Commit, abort and take over transactions with two-phase commit, with both protocols of transactions."""
    create(side, "a", 2)
    coordinator(side, "t")
    for name, versions, partition in (("t", (11, 4), 0), ("u", (12, 5), 1)):
        for commits in (True, False):
            producer = owner(side, name, f"{name}, commits {commits}")
            if versions[0] < 12:
                add_partitions(side, producer, {"a": [partition]}, name)
            data = batch(1, producer, 0)
            produce(side, "a", data, name, partition=partition, transactional_id=name, version=versions[0])
            describe_transactions(side, name, label=f"{name} is open")
            fetch(side, "a", label=f"{name} is open", partition=partition, isolation=READ_COMMITTED)
            end_transaction(side, producer, commits, name, version=versions[1])
            await_markers(side, "a", partition)
            await_transaction(side, name, "CompleteCommit" if commits else "CompleteAbort")
            describe_transactions(side, name, label=f"{name} has ended")
        fetch(side, "a", label=f"{name} has ended", partition=partition, isolation=READ_COMMITTED)


@scenario
def taking_over(side: Side) -> None:
    """Take over open transactions, from and to owners with two-phase commit, without keeping the transactions."""
    create(side, "a", 4)
    coordinator(side, "t")
    for partition, (before, after) in enumerate(((True, True), (True, False), (False, True), (False, False))):
        name = f"t{partition}"
        old = owner(side, name, f"{name}, two-phase {before}", two_phase=before)
        add_partitions(side, old, {"a": [partition]}, name)
        produce(side, "a", batch(1, old, 0), name, partition=partition, transactional_id=name)
        flags = {"version": 6, "enable2_pc": after}
        init(side, name, f"{name}, while it is open", retried=WITHOUT_TRANSACTION_ERRORS, **flags)
        await_markers(side, "a", partition)
        new = owner(side, name, f"{name}, two-phase {after}", two_phase=after)
        for version in (4, 5):
            end_transaction(side, old, True, f"{name}, the old owner", version=version)
        produce(side, "a", batch(1, old, 1), f"{name}, old", partition=partition, transactional_id=name)
        end_transaction(side, new, False, f"{name}, the new owner")
        describe_transactions(side, name, label=name)
        fetch(side, "a", partition=partition, isolation=READ_COMMITTED)


@scenario
def versions_mixed(side: Side) -> None:
    """Initialise a transactional id in versions with and without two-phase commit; an older version turns it off."""
    coordinator(side, "t")
    for number, version in enumerate((6, 5, 3, 6, 2)):
        more = {"enable2_pc": True} if version == 6 else {}
        init(side, "t", f"request {number}", version=version, timeout_ms=30_000 + number, **more)
        describe_transactions(side, "t", label=f"after v{version}")


@scenario
def keeping(side: Side) -> None:
    """Keep an open transaction, which only oncelog does."""
    create(side, "a")
    coordinator(side, "t")
    producer = owner(side, "t")
    add_partitions(side, producer, {"a": [0]})
    produce(side, "a", batch(1, producer, 0), transactional_id="t")
    init(side, "t", "keeps the transaction", version=6, enable2_pc=True, keep_prepared_txn=True)
