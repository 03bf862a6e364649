"""The formulas of SCRAM (RFC 5802, RFC 7677), which clients and brokers share. The functions are pure; nonces and salts
are arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from enum import Enum
from typing import Final

from oncelog_protocol.errors import MalformedMessage

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Largest number of iterations, as in Kafka. A client also refuses a larger number from a broker, because the client
must compute all iterations.
"""
GS2_HEADER: Final = "n,,"
"""The GS2 header that says that the client uses no channel binding and no separate authorization id."""
CHANNEL_BINDING: Final = base64.b64encode(GS2_HEADER.encode()).decode()


class ScramMechanism(Enum):
    """A SCRAM mechanism; the values are the numbers that DescribeUserScramCredentials uses."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def named(cls, name: str) -> ScramMechanism | None:
        return next((each for each in cls if each.mechanism_name == name), None)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password; this is the only expensive step, with some milliseconds per 4096 iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return keyed(mechanism, salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return keyed(mechanism, salted, b"Server Key")


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    """Return the server's verifier of a client key, from which the client key cannot be derived."""
    return hashlib.new(mechanism.hash_name, key).digest()


def keyed(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def auth_message(client_first_bare: str, server_first: str, client_final_without_proof: str) -> bytes:
    return f"{client_first_bare},{server_first},{client_final_without_proof}".encode()


def escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped_name(text: str) -> str:
    """Return a user name without its escapes. Raises MalformedMessage."""
    if "=" in text.replace("=2C", "").replace("=3D", ""):
        raise MalformedMessage("SCRAM: the user name is not escaped")
    return text.replace("=2C", ",").replace("=3D", "=")


def attributes(message: str, *names: str) -> list[str]:
    """Return the values of these attributes, which must be at the start of `message` in this order. Further attributes
    are ignored, except `m`, which announces a mandatory extension; no extension is supported. Raises MalformedMessage.
    """
    parts = message.split(",")
    if any(part.startswith("m=") for part in parts):
        raise MalformedMessage("SCRAM: a mandatory extension (m=) is not supported")
    values = []
    for index, name in enumerate(names):
        if index >= len(parts) or not parts[index].startswith(name + "="):
            raise MalformedMessage(f"SCRAM: expected the attribute {name}")
        values.append(parts[index][len(name) + 1 :])
    return values


def from_base64(text: str) -> bytes:
    """Decode base64. Raises MalformedMessage."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedMessage("SCRAM: not base64") from None


def to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
