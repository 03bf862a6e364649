"""Writes and reads a few compressed bytes that unpack to a million records."""

from __future__ import annotations

import struct

import cramjam
from crc32c import crc32c
from raw_client import LIST_OFFSETS_VERSION, PRODUCE_VERSION, frame, produce_request

from hostile.client import HostileClient
from hostile.logins import SETTINGS, with_tls
from hostile.scene import TIMESTAMP, Scene, read_away
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.records.batch import CRC_AT, CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2
from oncelog_protocol.records.builder import encode_record
from oncelog_protocol.records.compression import Compression

AT_ONCE = 8


def packed(records: bytes, count: int) -> bytes:
    """Return a zstd batch whose header claims `count` records."""
    data = bytes(cramjam.zstd.compress(records, 3))
    batch = bytearray(HEADER_SIZE) + data
    length = len(batch) - LOG_OVERHEAD
    stamps = (TIMESTAMP, TIMESTAMP, -1, -1, -1)
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC_V2, 0, Compression.ZSTD, count - 1, *stamps, count)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def _same_record(count: int) -> bytes:
    """Return an empty record with an empty key, repeated `count` times."""
    return packed(encode_record(0, 0, b"", None) * count, count)


def _numbered_records(count: int) -> bytes:
    """Return `count` records as a client encodes them."""
    return packed(b"".join(encode_record(delta, 0, b"", None) for delta in range(count)), count)


def _compacted_topic(scene: Scene, _: int) -> None:
    scene.make_topic("compacted", cleanup_policy="compact")


def _plain_topic(scene: Scene, _: int) -> None:
    scene.make_topic("plain")


def _produce_compacted(scene: Scene, _: None, count: int) -> str:
    return f"{count:,} records, " + scene.ask(
        produce_request("compacted", 0, _same_record(count)), ApiKey.PRODUCE, PRODUCE_VERSION
    )


def _produce_and_look_up(scene: Scene, _: None, count: int) -> str:
    request = produce_request("plain", 0, _numbered_records(count))
    written = scene.client().call(request, ApiKey.PRODUCE, PRODUCE_VERSION).responses[0].partition_responses[0]
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = topic.ListOffsetsPartition(partition_index=0, timestamp=1)
    lookup = ListOffsetsRequest(replica_id=-1, topics=[topic(name="plain", partitions=[wanted])])
    return f"{count:,} records, Produce answers {written.error_code}, ListOffsets " + scene.ask(
        lookup, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION
    )


def _many_at_once_with_tls(scene: Scene, _: None, count: int) -> str:
    data = frame(produce_request("compacted", 0, _same_record(count)), ApiKey.PRODUCE, PRODUCE_VERSION)
    connections = [with_tls(scene) for _ in range(AT_ONCE)]
    for connection in connections:
        connection.sendall(data)
    sizes = [read_away(connection) for connection in connections]
    return f"{AT_ONCE} times {count:,} records in {len(data):,} bytes, answers of {sizes[0]} bytes, over TLS"


CLIENTS = (
    HostileClient(
        "compressed bombs with TLS",
        _many_at_once_with_tls,
        size=9_500_000,
        small=950_000,
        prepare=_compacted_topic,
        settings=SETTINGS,
        peak_mb=160,
        left_mb=64,
    ),
    HostileClient(
        "many records behind zstd, to a compacted topic",
        _produce_compacted,
        size=9_500_000,
        small=950_000,
        prepare=_compacted_topic,
        peak_mb=128,
    ),
    HostileClient(
        "a time looked up in a batch of many records",
        _produce_and_look_up,
        size=1_250_000,
        small=200_000,
        prepare=_plain_topic,
        peak_mb=128,
    ),
)
