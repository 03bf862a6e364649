"""Compares Produce with invalid or unusual batches. Each batch is sent to its own partition, so that no batch affects
another.
"""

from __future__ import annotations

from tests.interop.differential import batches as fields
from tests.interop.differential.batches import batch, flipped, now_ms, patched, sealed, with_body
from tests.interop.differential.calls import (
    LATEST,
    MAX_TIMESTAMP,
    create,
    fetch,
    idempotent_producer,
    list_offsets,
    list_offsets_quietly,
    produce,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.records.compression import Compression

CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
SILENCE_SECONDS = 3.0
"""Seconds to wait for a response that Apache Kafka does not send."""


def send_each(side: Side, cases: dict[str, bytes], topic: str = "a", version: int = 11, **configs: str | int) -> None:
    """Send each batch to its own partition."""
    create(side, topic, len(cases), **configs)
    for partition, (label, data) in enumerate(cases.items()):
        produce(side, topic, data, label, partition=partition, version=version)


@scenario
def framing(side: Side) -> None:
    """Send too few bytes, too many bytes, and headers that do not fit the bytes."""
    one = batch()
    cases = {
        "no bytes": b"",
        "5 zero bytes": bytes(5),
        "61 zero bytes": bytes(61),
        "cut by one byte": one[:-1],
        "a byte to spare": one + b"\0",
        "the second is cut": one + one[:-3],
        "two batches": one + one,
        "wrong CRC": flipped(one, 18),
        "wrong byte": flipped(one, -1),
        "length 10": patched(one, fields.LENGTH, 10),
        "length -1": patched(one, fields.LENGTH, -1),
        "length 2^30": patched(one, fields.LENGTH, 2**30),
    }
    cases |= {f"magic {magic}": patched(one, fields.MAGIC, magic) for magic in (0, 1, 3, 127)}
    send_each(side, cases)
    for version in (3, 7, 8, 9, 12, 13):
        produce(side, "a", b"", "no bytes", version=version)
    producer = idempotent_producer(side)
    two = batch(1, producer, 0) + batch(1, producer, 1)
    produce(side, "a", two, "two batches, idempotent")
    for version in (8, 11):
        produce(side, "a", None, "null", version=version, patience=SILENCE_SECONDS)


@scenario
def headers(side: Side) -> None:
    """Send header fields and attributes that only a defective client would send."""
    producer = idempotent_producer(side)
    one, two = batch(), batch(2)
    cases = {
        "base offset 5": batch(base_offset=5),
        "base offset -1": batch(base_offset=-1),
        "control": batch(control=True),
        "control, idempotent": batch(1, producer, 0, control=True),
        "control, transactional": batch(1, producer, 0, control=True, transactional=True),
        "transactional, no transactional id": batch(1, producer, 0, transactional=True),
        "transactional, no producer": batch(transactional=True),
        "no records": batch(0),
        "count 1 of 2": patched(two, fields.RECORDS_COUNT, 1),
        "count 3 of 2": patched(two, fields.RECORDS_COUNT, 3),
        "count 0 of 2": patched(two, fields.RECORDS_COUNT, 0),
        "count -1": patched(two, fields.RECORDS_COUNT, -1),
        "last delta 5": patched(two, fields.LAST_OFFSET_DELTA, 5),
        "last delta 0": patched(two, fields.LAST_OFFSET_DELTA, 0),
        "last delta -1": patched(two, fields.LAST_OFFSET_DELTA, -1),
        "empty, last delta -1": patched(patched(two, fields.LAST_OFFSET_DELTA, -1), fields.RECORDS_COUNT, 0),
        "leader epoch 77": patched(one, fields.LEADER_EPOCH, 77),
        "delete horizon bit": patched(one, fields.ATTRIBUTES, 0x40),
        "unused bit": patched(one, fields.ATTRIBUTES, 0x80),
        "LogAppendTime bit": patched(one, fields.ATTRIBUTES, 0x08),
        "codec 5": patched(one, fields.ATTRIBUTES, 5),
        "codec 7": patched(one, fields.ATTRIBUTES, 7),
    }
    send_each(side, cases)
    for partition, label in enumerate(cases):
        list_offsets(side, "a", LATEST, f"after {label}", partition=partition)


@scenario
def records(side: Side) -> None:
    """Send records that contradict the header of their batch, with a correct CRC."""

    def record(delta: int) -> bytes:
        return bytes([14, 0, 0, delta * 2, 1, 2, 120, 0])

    cases = {
        "good": with_body(record(0), 1, 0),
        "delta twice": with_body(record(0) + record(0), 2, 1),
        "deltas swapped": with_body(record(1) + record(0), 2, 1),
        "delta 5 of 1": with_body(record(5), 1, 0),
        "garbage": with_body(b"\xff" * 20, 1, 0),
        "none of one": with_body(b"", 1, 0),
        "bytes to spare": with_body(record(0) + b"xyz", 1, 0),
        "cut": with_body(record(0)[:-2], 1, 0),
        "value longer than the record": with_body(bytes([14, 0, 0, 0, 1, 40, 120, 0]), 1, 0),
        "key length -2": with_body(bytes([14, 0, 0, 0, 3, 2, 120, 0]), 1, 0),
    }
    send_each(side, {f"record: {label}": data for label, data in cases.items()})
    compacted = {f"compacted: {label}": data for label, data in cases.items()}
    send_each(side, compacted, "compacted", cleanup_policy="compact")


@scenario
def compressed_garbage(side: Side) -> None:
    """Send data that cannot be decompressed, with a correct CRC."""
    cases = {f"says {codec.name}, is not": patched(batch(), fields.ATTRIBUTES, codec) for codec in CODECS}
    for codec in CODECS:
        whole = batch(3, compression=codec, size=100)
        cases[f"{codec.name}, one byte wrong"] = sealed(flipped(whole, 70))
    send_each(side, cases)


@scenario
def record_timestamps(side: Side) -> None:
    """Send batches whose header has another timestamp than their records."""
    now = now_ms()
    create(side, "a", message_timestamp_after_max_ms=10_000)
    ahead = patched(batch(timestamp=now + 600_000), fields.MAX_TIMESTAMP, now)
    produce(side, "a", ahead, "the record is later than the limit, the header is not")
    create(side, "b")
    produce(side, "b", patched(batch(2, timestamp=now), fields.MAX_TIMESTAMP, now + 50_000), "the header is later")
    for timestamp, label in ((now + 1, "behind the records"), (MAX_TIMESTAMP, "the latest record")):
        side.note(label, list_offsets_quietly(side, "b", timestamp=timestamp))
    create(side, "c")
    produce(side, "c", patched(batch(2, timestamp=now), fields.MAX_TIMESTAMP, 0), "the header says 0")
    side.note("by time, the header says 0", list_offsets_quietly(side, "c", timestamp=now))


@scenario
def codecs(side: Side) -> None:
    """Use every codec, in old and new versions of Produce and Fetch."""
    create(side, "a")
    for codec in CODECS:
        for version in (3, 6, 7, 11):
            produce(side, "a", batch(3, compression=codec, size=100), codec.name, version=version)
    for version in (9, 10):
        fetch(side, "a", version=version, label="with zstd in it")
    create(side, "b")
    produce(side, "b", batch(3, compression=Compression.LZ4, size=100), "only lz4")
    fetch(side, "b", version=9, label="without zstd")
    create(side, "c", compression_type="zstd")
    produce(side, "c", batch(3, compression=Compression.ZSTD, size=100), "zstd to zstd")
    for version in (9, 10):
        fetch(side, "c", version=version, label="the topic is zstd")


@scenario
def compression_type(side: Side) -> None:
    """Set a compression type for a topic, and send batches with other codecs."""
    for codec in ("producer", "uncompressed", "gzip"):
        create(side, codec, compression_type=codec)
        for sent in Compression:
            produce(side, codec, batch(3, compression=sent, size=100), f"{sent.name} to {codec}")
        fetch(side, codec)
