"""Compares EndTxn with transactions V1 and V2 (KIP-890), repeated requests, requests for the opposite end, and the
records that readers see of successive transactions.
"""

from __future__ import annotations

from tests.interop.differential.batches import Producer, batch
from tests.interop.differential.calls import (
    LATEST,
    READ_COMMITTED,
    add_partitions,
    await_markers,
    await_stable_end,
    await_transaction,
    create,
    describe_producers,
    describe_transactions,
    end_transaction,
    fetch,
    fill,
    init,
    list_offsets,
    produce,
    transactional_producer,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def first_protocol(side: Side) -> None:
    """Use EndTxn versions 0-4, with which the producer epoch stays the same and repeating the request succeeds."""
    create(side, "a", 5)
    for version in range(5):
        name = f"t{version}"
        producer = transactional_producer(side, name)

        def end(commit: bool, label: str, whose: Producer = producer, version: int = version) -> None:
            end_transaction(side, whose, commit, label, version=version)

        end(True, "without a transaction")
        end(False, "without a transaction")
        add_partitions(side, producer, {"a": [version]}, name)
        end(True, "empty")
        await_transaction(side, name, "CompleteCommit")
        end(True, "again")
        end(False, "after the commit")
        add_partitions(side, producer, {"a": [version]}, name)
        produce(side, "a", batch(1, producer, 0), name, partition=version, transactional_id=name)
        end(False, "next epoch", producer.at(epoch=1))
        end(False, "epoch before", producer.at(epoch=-1))
        end(False, "wrong producer id", producer.at(id=1))
        end(False, "")
        await_transaction(side, name, "CompleteAbort")
        end(False, "again")
        end(True, "after the abort")
        end(True, "unknown transactional id", Producer(producer.id, producer.epoch, "unknown"))
        end(True, "empty transactional id", Producer(producer.id, producer.epoch))
        await_markers(side, "a", version)
        fetch(side, "a", partition=version, isolation=READ_COMMITTED)


@scenario
def second_protocol(side: Side) -> None:
    """Use EndTxn version 5, which returns the producer's next epoch, and Produce v12, which adds partitions to the
    transaction itself.
    """
    create(side, "a")
    old = transactional_producer(side, "t")
    end_transaction(side, old, True, "nothing written yet", version=5)
    answer = end_transaction(side, old, False, "nothing written yet", version=5)
    end_transaction(side, old, False, "retry with the old epoch", version=5)
    end_transaction(side, old, True, "opposite with the old epoch", version=5)
    producer = Producer(answer.producer_id, answer.producer_epoch, "t")

    def send(sequence: int, label: str, version: int = 12, whose: Producer | None = None) -> None:
        data = batch(1, whose or producer, sequence)
        produce(side, "a", data, label, transactional_id="t", version=version)

    send(0, "adds by itself")
    send(1, "second")
    send(1, "duplicate")
    send(1, "duplicate", version=11)
    describe_transactions(side, "t")
    answer = end_transaction(side, producer, True, version=5)
    end_transaction(side, producer, True, "retry", version=5)
    end_transaction(side, producer, False, "opposite with the old epoch", version=5)
    send(2, "old epoch")
    producer = Producer(answer.producer_id, answer.producer_epoch, "t")
    end_transaction(side, producer, True, "nothing written since", version=5)
    send(2, "new epoch, sequence 2")
    send(0, "new epoch, sequence 0")
    send(0, "next epoch", whose=producer.at(epoch=1))
    send(0, "wrong producer id", whose=producer.at(id=1))
    answer = end_transaction(side, producer, False, version=5)
    end_transaction(side, producer, False, "retry", version=5)
    end_transaction(side, producer, True, "opposite with the old epoch", version=5)
    end_transaction(side, Producer(answer.producer_id, answer.producer_epoch, "t"), False, "empty", version=5)
    init(side, "t", "taken over")
    await_markers(side, "a")
    fetch(side, "a", isolation=READ_COMMITTED)
    describe_producers(side, "a", 0)
    describe_transactions(side, "t", label="after the end")


@scenario
def another_id_in_the_second_protocol(side: Side) -> None:
    """Send a batch that names another transactional id than its producer's, while a transaction is open in that
    partition.
    """
    create(side, "a")
    producer = transactional_producer(side, "t")
    transactional_producer(side, "other")
    produce(side, "a", batch(1, producer, 0), "own", transactional_id="t", version=12)
    produce(side, "a", batch(1, producer, 1), "another's", transactional_id="other", version=12)
    produce(side, "a", batch(1, producer, 1), "unknown", transactional_id="unknown", version=12)


@scenario
def both_protocols(side: Side) -> None:
    """Send requests of transactions V2 in a transaction that began with V1, and requests of V1 in a V2 transaction."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    produce(side, "a", batch(1, producer, 0), "second protocol", transactional_id="t", version=12)
    end_transaction(side, producer, True, "first protocol")
    await_markers(side, "a")
    produce(side, "a", batch(1, producer, 1), "second, same epoch", transactional_id="t", version=12)
    add_partitions(side, producer, {"a": [0]}, "first protocol")
    answer = end_transaction(side, producer, True, "second protocol", version=5)
    await_markers(side, "a")
    producer = Producer(answer.producer_id, answer.producer_epoch, "t")
    add_partitions(side, producer, {"a": [0]}, "first protocol, new epoch")
    produce(side, "a", batch(1, producer, 0), "first protocol", transactional_id="t")
    end_transaction(side, producer, False, "second protocol", version=5)
    await_markers(side, "a")
    fetch(side, "a", isolation=READ_COMMITTED)


@scenario
def aborted_transactions(side: Side) -> None:
    """With three overlapping transactions, compare the last stable offset, and the aborted transactions that a fetch of
    each part of the log returns.
    """
    create(side, "a")
    x, y, z = (transactional_producer(side, name) for name in "xyz")
    for producer in (x, y, z):
        add_partitions(side, producer, {"a": [0]})
        _write(side, producer, batch(2, producer, 0))
    list_offsets(side, "a", LATEST, "all open", isolation=READ_COMMITTED)
    end_transaction(side, y, False, "y")
    await_transaction(side, "y", "CompleteAbort")
    list_offsets(side, "a", LATEST, "y aborted", isolation=READ_COMMITTED)
    _write(side, x, batch(3, x, 2))
    end_transaction(side, x, False, "x")
    await_stable_end(side, "a", 4)
    list_offsets(side, "a", LATEST, "x aborted", isolation=READ_COMMITTED)
    add_partitions(side, x, {"a": [0]}, "x again")
    _write(side, x, batch(1, x, 5))
    fill(side, "a", [batch(2)])
    end_transaction(side, z, True, "z")
    await_stable_end(side, "a", 11)
    list_offsets(side, "a", LATEST, "z committed", isolation=READ_COMMITTED)
    _read_in_pieces(side, "x open")
    end_transaction(side, x, False, "x")
    await_markers(side, "a")
    _read_in_pieces(side, "all ended")


def _write(side: Side, producer: Producer, data: bytes) -> None:
    topic = {"name": side.own("a"), "partition_data": [{"index": 0, "records": data}]}
    transactional_id = side.own(producer.transactional_id or "")
    asked = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 5000, "topic_data": [topic]}
    side.get(ApiKey.PRODUCE, 11, asked)


def _read_in_pieces(side: Side, label: str) -> None:
    for offset in range(16):
        fetch(side, "a", offset, f"{label}, to the end", isolation=READ_COMMITTED)
        for size, piece in ((80, "one batch"), (180, "two batches")):
            fetch(side, "a", offset, f"{label}, {piece}", isolation=READ_COMMITTED, partition_max_bytes=size)
