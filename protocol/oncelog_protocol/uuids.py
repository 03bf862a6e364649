"""Kafka's Uuid: 16 raw bytes in memory and on the wire; 22 characters of unpadded base64url in JSON and in files.

This module only converts; random ids are generated in the broker (`oncelog_broker.runtime.entropy`), because this
package has no source of randomness. The source is KIP-516, `org.apache.kafka.common.Uuid`.
"""

from __future__ import annotations

import base64
import binascii

UUID_BYTES = 16
UUID_STRING_CHARS = 22

ZERO_UUID = bytes(UUID_BYTES)
"""The value that means "no id" where the protocol has no null."""
ONE_UUID = bytes(UUID_BYTES - 1) + b"\x01"
"""The id of KRaft's metadata topic; never given to another topic."""


def uuid_to_string(uuid: bytes) -> str:
    """Return the text of 22 characters for 16 bytes. Raises ValueError for any other length."""
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"a uuid has {UUID_BYTES} bytes, not {len(uuid)}")
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> bytes:
    """Return the 16 bytes for a text of 22 characters (with or without padding). Raises ValueError for other text."""
    stripped = text.rstrip("=")
    # The characters "+" and "/" are refused, because Java and librdkafka treat them differently.
    if len(stripped) != UUID_STRING_CHARS or "+" in stripped or "/" in stripped:
        raise ValueError(f"a uuid has {UUID_STRING_CHARS} base64url characters, not {text!r:.40}")
    try:
        return base64.b64decode(stripped.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not a base64url uuid: {text!r:.40}") from error


def is_issuable(uuid: bytes) -> bool:
    """Return whether Kafka would issue this id: it is not reserved, and its text does not begin with '-', because
    command lines would take such a text for an option.
    """
    return uuid not in (ZERO_UUID, ONE_UUID) and not uuid_to_string(uuid).startswith("-")
