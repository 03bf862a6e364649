"""Compares Produce: sequences and epochs of idempotent producers, acks, limits, timestamps, many partitions in one
request.
"""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import Producer, batch, flipped, now_ms
from tests.interop.differential.calls import (
    GROUP,
    LATEST,
    TRANSACTION,
    coordinator,
    create,
    describe_producers,
    fetch,
    idempotent_producer,
    list_offsets,
    produce,
)
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.compression import Compression

LAST_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


@scenario
def duplicates(side: Side) -> None:
    """Send duplicates of the last five batches (which get the original response), of older batches, and of parts of
    batches.
    """
    create(side, "a")
    producer = idempotent_producer(side)
    for sequence in range(0, 14, 2):
        produce(side, "a", batch(2, producer, sequence), f"sequence {sequence}")
    for sequence in (12, 10, 8, 6, 4):
        produce(side, "a", batch(2, producer, sequence), f"again {sequence}")
    for sequence in (2, 0):
        produce(side, "a", batch(2, producer, sequence), f"too old {sequence}")
    produce(side, "a", batch(1, producer, 12), "part: same start, fewer records")
    produce(side, "a", batch(3, producer, 12), "same start, more records")
    produce(side, "a", batch(1, producer, 13), "part: inside")
    produce(side, "a", batch(2, producer, 11), "part: over the edge of two")
    produce(side, "a", batch(4, producer, 10), "part: two in one")
    produce(side, "a", batch(1, producer, 15), "gap of one")
    produce(side, "a", batch(1, producer, 14), "the next")
    produce(side, "a", batch(1, producer, 100), "gap of many")
    list_offsets(side, "a", LATEST)
    fetch(side, "a")


@scenario
def versions(side: Side) -> None:
    """Send a batch, a duplicate and a gap in each version."""
    create(side, "a")
    producer = idempotent_producer(side)
    for sequence, version in enumerate(range(3, 14)):
        produce(side, "a", batch(1, producer, sequence), "the next", version=version)
        produce(side, "a", batch(1, producer, sequence), "duplicate", version=version)
        produce(side, "a", batch(1, producer, sequence + 50), "gap", version=version)


@scenario
def epochs(side: Side) -> None:
    """Send producer epochs that increase and decrease, and producer ids without an epoch."""
    create(side, "a", 4)
    producer = idempotent_producer(side)
    for epoch, sequence, label in (
        (0, 5, "unknown producer, sequence 5"),
        (0, 6, "then 6"),
        (1, 1, "next epoch, sequence 1"),
        (1, 0, "next epoch, sequence 0"),
        (0, 7, "lower epoch"),
        (0, 5, "lower epoch, was there"),
        (5, 0, "epoch 5, sequence 0"),
        (5, 0, "again in epoch 5"),
        (32767, 0, "last epoch, sequence 0"),
        (32767, 1, "last epoch, sequence 1"),
    ):
        produce(side, "a", batch(1, Producer(producer.id, epoch), sequence), label)
        produce(side, "a", batch(1, Producer(producer.id, epoch), sequence), f"{label}, v7", version=7, partition=1)
    for partition in (0, 1):
        fetch(side, "a", partition=partition)
    describe_producers(side, "a", 0, 1, 2, 3, 4)


@scenario
def odd_producers(side: Side) -> None:
    """Send batches whose producer id, epoch or sequence is missing, each to its own partition."""
    known = idempotent_producer(side).id
    cases = (
        (known, -1, 0, "id with epoch -1"),
        (known, 32767, -1, "id with sequence -1"),
        (-1, 0, 0, "epoch and sequence without id"),
        (-1, -1, 0, "sequence without id"),
        (-5, 0, 0, "id -5"),
        (2**50, 0, 0, "made-up id, sequence 0"),
        (2**50 + 1, 0, 9, "made-up id, sequence 9"),
        (2**50 + 2, 0, -7, "sequence -7"),
    )
    create(side, "a", len(cases))
    for partition, (producer_id, epoch, sequence, label) in enumerate(cases):
        produce(side, "a", batch(1, Producer(producer_id, epoch), sequence), label, partition=partition)
    describe_producers(side, "a", *range(1, len(cases)))


@scenario
def sequences_wrap(side: Side) -> None:
    """Let a sequence wrap from 2^31 - 1 to 0."""
    create(side, "a", 2)
    producer = idempotent_producer(side)
    for records, sequence, label in (
        (1, LAST_SEQUENCE - 3, "near the end as first"),
        (3, LAST_SEQUENCE - 2, "the last three"),
        (1, 0, "0 after the last"),
        (3, LAST_SEQUENCE - 2, "the last three again"),
    ):
        produce(side, "a", batch(records, producer, sequence), label)
    for records, sequence, label in (
        (1, LAST_SEQUENCE - 3, "near the end as first"),
        (5, LAST_SEQUENCE - 2, "over the wrap"),
        (5, LAST_SEQUENCE - 2, "over the wrap again"),
        (1, 3, "gap after"),
        (1, 2, "right after"),
        (1, LAST_SEQUENCE, "part: back before the wrap"),
    ):
        produce(side, "a", batch(records, producer, sequence), label, partition=1)
    fetch(side, "a", partition=1)
    describe_producers(side, "a", 0, 1)


@scenario
def many_partitions(side: Side) -> None:
    """Mix good and bad partitions in one request, and name partitions and topics twice."""
    create(side, "a", 4)
    producer = idempotent_producer(side)

    def many(label: str, topics: list[tuple[str, list[tuple[int, bytes]]]], version: int = 11) -> None:
        data = [
            {"name": name, "partition_data": [{"index": index, "records": records} for index, records in partitions]}
            for name, partitions in topics
        ]
        side.ask(ApiKey.PRODUCE, version, _produce(data), label)

    good, gap = batch(1, producer, 0), batch(1, producer, 5)
    topic, unknown = side.own("a"), side.own("unknown")
    for version in (8, 11):
        mixed = [(topic, [(0, good), (9, good), (-1, good)]), (unknown, [(0, good)]), ("bad name!", [(0, good)])]
        many("mixed", [*mixed, ("", [(0, good)])], version)
    many("gap beside a good one", [(topic, [(0, batch(1, producer, 9)), (1, gap)])])
    many("partition twice", [(topic, [(2, good), (2, batch(1, producer, 1))])])
    many("topic twice", [(topic, [(3, good)]), (topic, [(3, batch(1, producer, 1))])])
    many("no topics", [])
    many("no partitions", [(topic, [])])
    for topic_id, label in ((b"\7" * 16, "unknown id"), (bytes(16), "zero id")):
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": good}]}]
        side.ask(ApiKey.PRODUCE, 13, _produce(data), label)
    coordinator(side, "x", GROUP)
    coordinator(side, "x", TRANSACTION)
    for internal in ("__consumer_offsets", "__transaction_state"):
        many(internal, [(internal, [(0, batch())])])


def _produce(data: list[Plain], **more: Any) -> Plain:
    return {"acks": -1, "timeout_ms": 5000, "topic_data": data} | more


@scenario
def acks(side: Side) -> None:
    """Send all values of acks, including acks=0, which gets no response."""
    create(side, "a")
    for wanted in (1, -1, 2, -2, 32767):
        produce(side, "a", batch(), f"acks {wanted}", acks=wanted)
        produce(side, "a", batch(), f"acks {wanted}", acks=wanted, version=5)
    for timeout_ms in (-1, 0):
        data = [{"name": side.own("a"), "partition_data": [{"index": 0, "records": batch()}]}]
        side.ask(ApiKey.PRODUCE, 11, _produce(data, timeout_ms=timeout_ms), f"timeout {timeout_ms}")
    for topic, records, label in (
        ("a", batch(), "good"),
        ("unknown", batch(), "unknown topic"),
        ("a", flipped(batch(), -1), "wrong CRC"),
        ("a", b"", "no bytes"),
    ):
        data = [{"name": side.own(topic), "partition_data": [{"index": 0, "records": records}]}]
        side.tell(ApiKey.PRODUCE, 11, _produce(data, acks=0))
        list_offsets(side, "a", LATEST, f"whether the connection stands after acks=0: {label}")
        list_offsets(side, "a", LATEST, f"after acks=0: {label}")


@scenario
def timestamps(side: Side) -> None:
    """Send timestamps beyond the limits of the broker and of a topic, and use LogAppendTime."""
    now = now_ms()
    create(side, "a")
    for timestamp, label in (
        (now + 7_200_000, "in two hours, one is allowed"),
        (now + 1_800_000, "in half an hour"),
        (now - 365 * DAY_MS, "a year ago"),
        (0, "0"),
        (-1, "-1"),
        (-2, "-2"),
        (2**62, "2^62"),
    ):
        produce(side, "a", batch(2, timestamp=timestamp), label)
        produce(side, "a", batch(2, timestamp=timestamp), label, version=7)
    create(side, "b", message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=60_000)
    for timestamp, label in ((now + 600_000, "later"), (now - 600_000, "earlier"), (now, "now"), (-1, "none")):
        produce(side, "b", batch(2, timestamp=timestamp), f"limits: {label}")
        produce(side, "b", batch(2, timestamp=timestamp, compression=Compression.GZIP), f"limits, gzip: {label}")
    create(side, "c", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=60_000)
    produce(side, "c", batch(2, timestamp=now + 10 * DAY_MS), "append time, far ahead")
    produce(side, "c", batch(2, timestamp=-1), "append time, none")
    producer = idempotent_producer(side)
    produce(side, "c", batch(1, producer, 0), "append time, sequence 0")
    produce(side, "c", batch(1, producer, 0), "append time, duplicate")
    fetch(side, "c")


@scenario
def sizes(side: Side) -> None:
    """Send batches just below, exactly at, and just above max.message.bytes."""
    create(side, "a", max_message_bytes=1000)
    for version in (7, 11):
        produce(side, "a", batch(size=1000), "too large", version=version)
    produce(side, "a", batch(size=2000, compression=Compression.GZIP), "small once it is compressed")
    most = next(size for size in range(1000, 0, -1) if len(batch(size=size)) <= 1000)
    for size in (most - 1, most, most + 1):
        produce(side, "a", batch(size=size), f"{size - most:+d} from the limit")
    produce(side, "a", batch(size=700) + batch(size=700), "two that are small, together too large")


@scenario
def compacted(side: Side) -> None:
    """Send a record without a key to a compacted topic, which the broker must refuse."""
    create(side, "a", cleanup_policy="compact")
    for version in (7, 11):
        produce(side, "a", batch(2), "no key", version=version)
    produce(side, "a", batch(2, key=b"k"), "key")
    produce(side, "a", batch(2, compression=Compression.GZIP), "no key, gzip")
    produce(side, "a", batch(2, key=b"k", compression=Compression.ZSTD), "key, zstd")
    produce(side, "a", batch(2, idempotent_producer(side), 0), "no key, idempotent")


@scenario
def min_insync_replicas(side: Side) -> None:
    """Produce with min.insync.replicas above the number of replicas."""
    create(side, "a", min_insync_replicas=2)
    producer = idempotent_producer(side)
    produce(side, "a", batch(1, producer, 0), "acks 1", acks=1)
    produce(side, "a", batch(1, producer, 0), "again, acks all", retried=())
    produce(side, "a", batch(1, producer, 1), "acks all", retried=())
