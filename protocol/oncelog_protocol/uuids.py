"""Kafka's Uuid: 16 raw bytes in memory and on the wire, 22 characters of unpadded base64url in JSON and in files.

Only the conversion lives here; making a random one needs entropy, which is the broker's business
(`oncelog_broker.runtime.entropy`). Source: KIP-516, `org.apache.kafka.common.Uuid`.
"""

from __future__ import annotations

import base64
import binascii

UUID_BYTES = 16
UUID_STRING_CHARS = 22

ZERO_UUID = bytes(UUID_BYTES)
"""Means "no id" where the wire has no null."""
ONE_UUID = bytes(UUID_BYTES - 1) + b"\x01"
"""The id of KRaft's metadata topic; never given to another topic."""


def uuid_to_string(uuid: bytes) -> str:
    """Return the 22 characters of 16 bytes. ValueError for any other length."""
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"a uuid has {UUID_BYTES} bytes, not {len(uuid)}")
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> bytes:
    """Return the 16 bytes of 22 characters (with or without padding). ValueError for other text."""
    stripped = text.rstrip("=")
    if len(stripped) != UUID_STRING_CHARS or "+" in stripped or "/" in stripped:  # Java and librdkafka differ there
        raise ValueError(f"a uuid has {UUID_STRING_CHARS} base64url characters, not {text!r:.40}")
    try:
        return base64.b64decode(stripped.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not a base64url uuid: {text!r:.40}") from error


def is_issuable(uuid: bytes) -> bool:
    """Return whether Kafka would issue this id: not reserved, and without a leading '-', which command lines take for
    an option.
    """
    return uuid not in (ZERO_UUID, ONE_UUID) and not uuid_to_string(uuid).startswith("-")
