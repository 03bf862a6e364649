"""Compares invalid frames and headers, and API keys and versions that are not served."""

from __future__ import annotations

from struct import pack

from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import CORRELATION_ID, HEADER, Side

from oncelog_protocol.api import ApiKey

ZEROS = bytes(60)

UNSERVED = (
    *((999, 0), (-1, 0), (4, 0), (5, 0), (6, 0), (7, 0), (56, 0), (67, 0)),
    *((ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 14), (ApiKey.FETCH, 3), (ApiKey.FETCH, 19), (ApiKey.LIST_OFFSETS, 0)),
    *((ApiKey.METADATA, 14), (ApiKey.OFFSET_COMMIT, 1), (ApiKey.OFFSET_COMMIT, 11), (ApiKey.OFFSET_FETCH, 0)),
    *((ApiKey.JOIN_GROUP, 10), (ApiKey.CREATE_TOPICS, 1), (ApiKey.CREATE_TOPICS, 8), (ApiKey.DELETE_TOPICS, 0)),
    *((ApiKey.INIT_PRODUCER_ID, 6), (ApiKey.INIT_PRODUCER_ID, 7), (ApiKey.ADD_PARTITIONS_TO_TXN, 6)),
    *((ApiKey.END_TXN, 6), (ApiKey.TXN_OFFSET_COMMIT, 6), (ApiKey.DESCRIBE_CONFIGS, 0)),
    *((ApiKey.DESCRIBE_TOPIC_PARTITIONS, 1),),
)
"""API keys that no broker has, and versions that were removed or do not exist yet."""


@scenario
def unserved(side: Side) -> None:
    for key, version in UNSERVED:
        side.raw_answer(key, version, ZEROS, f"key {int(key)} v{version}")


@scenario
def zero_bodies(side: Side) -> None:
    """Send requests of four APIs whose bodies are zeros: two of SASL, a version of ConsumerGroupHeartbeat that does not
    exist, and AlterReplicaLogDirs.
    """
    for key, version in (
        *((ApiKey.SASL_HANDSHAKE, 1), (ApiKey.SASL_AUTHENTICATE, 0), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 9)),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 1),
    ):
        side.raw_answer(key, version, ZEROS, key.message_name, shown=4)


@scenario
def frames(side: Side) -> None:
    """Send sizes and headers without a request."""
    side.raw(b"", "empty frame")
    side.raw(b"\0\3", "two bytes")
    side.raw(pack(">i", -5), "negative size", framed=False)
    side.raw(pack(">i", 2**31 - 1), "size 2^31-1", framed=False)


@scenario
def bodies(side: Side) -> None:
    """Send bodies that are cut, or that declare more than they contain."""
    side.raw_answer(ApiKey.METADATA, 1, b"", "no body")
    side.raw_answer(ApiKey.METADATA, 1, pack(">i", 2**30), "an array of 2^30")
    side.raw_answer(ApiKey.METADATA, 9, b"\0\xff\xff\xff\xff\x7f", "a varint that is too long")
    side.raw_answer(ApiKey.METADATA, 1, pack(">i", 0), "no topics", shown=8)


@scenario
def bytes_to_spare(side: Side) -> None:
    side.raw_answer(ApiKey.METADATA, 1, pack(">i", 0) + b"extra", "bytes behind the request", shown=4)


@scenario
def client_ids(side: Side) -> None:
    """Send requests without a client id, with an empty one, and with an unusual one."""
    for client_id in (b"\xff\xff", b"\0\0", b"\0\4\xc3\xa4 \n"):
        header = HEADER.pack(ApiKey.METADATA, 1, CORRELATION_ID, 0)[:8] + client_id
        side.raw(header + pack(">i", 0), f"client id {client_id.hex()}", shown=8)
