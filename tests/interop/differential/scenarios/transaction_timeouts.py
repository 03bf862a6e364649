"""Compares transactions that no client ends: the coordinator aborts them, and their producers learn that."""

from __future__ import annotations

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import (
    READ_COMMITTED,
    add_partitions,
    await_markers,
    await_transaction,
    create,
    describe_transactions,
    end_transaction,
    fetch,
    init,
    produce,
    transactional_producer,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

TIMEOUT_MS = 1000
FIRST = "first"
SECOND = "second"
MIXED = "mixed"
"""Transactional ids: one uses transactions V1, one uses V2, and one begins its transaction with V2 and ends it with V1.
"""


@scenario
def timeouts(side: Side) -> None:
    """Let three transactions time out together, since coordinators search for expired transactions only
    occasionally.
    """
    create(side, "a", 3)
    partitions = {FIRST: 0, SECOND: 1, MIXED: 2}
    producers = {name: transactional_producer(side, name, TIMEOUT_MS) for name in partitions}
    for name, partition in partitions.items():
        producer, version = producers[name], 11 if name == FIRST else 12
        if name == FIRST:
            add_partitions(side, producer, {"a": [partition]}, name)
        produce(side, "a", batch(1, producer, 0), name, partition=partition, transactional_id=name, version=version)
    for name, partition in partitions.items():
        await_transaction(side, name, "CompleteAbort")
        await_markers(side, "a", partition)
        fetch(side, "a", partition=partition, isolation=READ_COMMITTED)
    describe_transactions(side, *partitions, label="after the timeout")
    for name, partition in partitions.items():
        producer = producers[name]
        for version in (11, 12):
            data = batch(1, producer, 1)
            label = f"{name}: after the timeout"
            produce(side, "a", data, label, partition=partition, transactional_id=name, version=version)
        for version in {FIRST: (4, 5), SECOND: (5,), MIXED: (4, 5)}[name]:
            for commit in (True, False):
                end_transaction(side, producer, commit, f"{name}: after the timeout", version=version)
        for version in (1, 3):
            add_partitions(side, producer, {"a": [partition]}, f"{name}: after the timeout", version=version)
        for label in ("own epoch", "own epoch again"):
            init(side, name, f"{name}: {label}", producer_id=producer.id, epoch=producer.epoch)
        init(side, name, f"{name}: plain")
