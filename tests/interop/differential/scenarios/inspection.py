"""Compares DescribeProducers, DescribeTransactions, ListTransactions, and WriteTxnMarkers requests like those that
brokers send.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.interop.differential.batches import Producer, batch
from tests.interop.differential.calls import (
    READ_COMMITTED,
    add_partitions,
    await_markers,
    await_transaction,
    create,
    describe_producers,
    describe_transactions,
    end_transaction,
    fetch,
    idempotent_producer,
    produce,
    transactional_producer,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def describe(side: Side) -> None:
    """Describe an open transaction and an ended one."""
    create(side, "a", 2)
    producer = transactional_producer(side, "t")
    add_partitions(side, producer, {"a": [0, 1]})
    produce(side, "a", batch(1, producer, 0), transactional_id="t")
    describe_producers(side, "a", 0, 1, 2)
    describe_producers(side, "none", 0)
    describe_transactions(side, "t", "none", "", label="open")
    describe_transactions(side, "t", "t", label="twice")
    end_transaction(side, producer)
    await_transaction(side, "t", "CompleteCommit")
    describe_transactions(side, "t", label="ended")
    describe_producers(side, "a", 0, 1)


@scenario
def list_transactions(side: Side) -> None:
    """List transactions with filters by state, age and pattern; all requests also filter by producer id, because the
    brokers have transactions of other scenarios.
    """
    create(side, "a")
    producer = transactional_producer(side, "t")
    add_partitions(side, producer, {"a": [0]})

    def ask(version: int, label: str, *states: str, **more: Any) -> None:
        asked = {"state_filters": list(states), "producer_id_filters": [producer.id], **more}
        side.ask(ApiKey.LIST_TRANSACTIONS, version, asked, label)

    for version in (0, 1, 2):
        ask(version, "open ones", "Ongoing")
        ask(version, "all")
    ask(1, "with unknown states", "Ongoing", "Nonsense", "ongoing", "")
    for state in ("Empty", "Dead"):
        ask(1, state, state)
    for age in (0, 60_000):
        ask(1, f"older than {age} ms", duration_filter=age)
    for pattern in ("", ".*", "t", ".*-t", "(("):
        ask(2, f"pattern {pattern}", transactional_id_pattern=pattern)
    end_transaction(side, producer, False)


def _write_marker(
    side: Side,
    version: int,
    label: str,
    producer: Producer,
    partitions: list[int],
    *,
    commit: bool = False,
    transaction_version: int = 0,
) -> None:
    marker = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "transaction_result": commit,
        "topics": [{"name": side.own("a"), "partition_indexes": partitions}],
        "coordinator_epoch": 0,
        "transaction_version": transaction_version,
    }
    side.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]}, label)


@scenario
def markers(side: Side) -> None:
    """Send WriteTxnMarkers for a producer with an open transaction, for a producer without one, for a fenced producer,
    and for a missing partition.
    """
    create(side, "a", 3)
    for version, name in ((1, "t"), (2, "u")):
        producer = transactional_producer(side, name)
        add_partitions(side, producer, {"a": [0, 1]})
        produce(side, "a", batch(1, producer, 0), transactional_id=name)
        write = partial(_write_marker, side, version)
        write("epoch before", producer.at(epoch=-1), [0])
        write("unknown partition", producer, [9])
        write("no transaction in it", producer, [1])
        write("a producer that never wrote", idempotent_producer(side), [2], commit=True)
        write("open transaction", producer, [0], commit=True)
        write("again", producer, [0], commit=True)
        await_markers(side, "a")
        side.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": []}, "none")
        for partition in (0, 1, 2):
            fetch(side, "a", partition=partition, isolation=READ_COMMITTED)
        describe_producers(side, "a", 0, 1, 2)
        end_transaction(side, producer, False)
        await_transaction(side, name, "CompleteAbort")


@scenario
def markers_of_transactions_v2(side: Side) -> None:
    """Send WriteTxnMarkers v2 with the version of the transaction protocol (KIP-1228), and producer epochs around that
    of the open transaction. The coordinator does not end these transactions, since markers of other senders have raised
    the producer epochs in the partitions.
    """
    versions = (0, 1, 2, 3)
    create(side, "a", len(versions) + 1)
    for partition, transaction_version in enumerate(versions):
        name = f"t{partition}"
        producer = transactional_producer(side, name)
        add_partitions(side, producer, {"a": [partition]})
        produce(side, "a", batch(1, producer, 0), name, partition=partition, transactional_id=name)
        for more in (0, 1, 1, 0, 2):
            label = f"transaction version {transaction_version}, epoch {more:+d}"
            whose = producer.at(epoch=more)
            _write_marker(side, 2, label, whose, [partition], transaction_version=transaction_version)
        await_markers(side, "a", partition)
        describe_producers(side, "a", partition, label=name)
        fetch(side, "a", partition=partition, isolation=READ_COMMITTED)
    nobody = idempotent_producer(side)
    _write_marker(side, 2, "transaction version -1", nobody, [len(versions)], transaction_version=-1)


@scenario
def marker_of_no_coordinator(side: Side) -> None:
    """Send WriteTxnMarkers with a future coordinator epoch, to a partition that nothing else uses."""
    create(side, "a")
    marker = {
        "producer_id": idempotent_producer(side).id,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": side.own("a"), "partition_indexes": [0]}],
        "coordinator_epoch": 1_000_000,
    }
    side.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]}, "epoch to come")
