"""The stored form of a SCRAM password, as in Kafka: `salt=...,stored_key=...,server_key=...,iterations=4096`.

This stored credential is part of a user's settings in the metadata store. A thief of the stored credential cannot log
in with it, but can try to guess the password offline.
"""

from __future__ import annotations

from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.scram import (
    ScramMechanism,
    client_key,
    from_base64,
    salted_password,
    server_key,
    stored_key,
    to_base64,
)


class ScramCredential(NamedTuple):
    """The stored credential of one user for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def format(self) -> str:
        return (
            f"salt={to_base64(self.salt)},stored_key={to_base64(self.stored_key)},"
            f"server_key={to_base64(self.server_key)},iterations={self.iterations}"
        )


def parse_credential(text: str) -> ScramCredential:
    """Parse a stored credential. Raises ValueError, whose message does not contain the text."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        credential = ScramCredential(
            from_base64(fields["salt"]),
            from_base64(fields["stored_key"]),
            from_base64(fields["server_key"]),
            int(fields["iterations"]),
        )
        if credential.iterations <= 0:
            raise ValueError(credential.iterations)
        return credential
    except (KeyError, ValueError, MalformedMessage):
        raise ValueError("no SCRAM credential") from None


def credential_of(mechanism: ScramMechanism, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
    """Derive the credential from a salted password that a client has computed."""
    key = client_key(mechanism, salted)
    return ScramCredential(salt, stored_key(mechanism, key), server_key(mechanism, salted), iterations)


def new_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Derive the credential from a password. The derivation takes some milliseconds."""
    return credential_of(mechanism, salt, salted_password(mechanism, password, salt, iterations), iterations)
