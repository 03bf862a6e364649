"""The common protocol of the SASL mechanisms: a state machine that receives the client's tokens in order."""

from __future__ import annotations

from typing import Protocol

from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple


class Step(NamedTuple):
    """The server's response to a SASL token. If `user` is set, the exchange has authenticated this user."""

    token: bytes
    user: str | None = None
    expires_s: float | None = None
    """Seconds since 1970 at which the authentication expires, because its token expires; None if it does not expire."""


class Refused(KafkaError):
    """Raised when the authentication fails. `message` goes to the client; `reason` goes to the log and contains no
    secrets.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        self.reason = reason


class Mechanism(Protocol):
    """One exchange of a SASL mechanism. `step` raises Refused. After an error, or when a user is authenticated, the
    exchange gets no more tokens.
    """

    def step(self, token: bytes, now_s: float) -> Step: ...


def invalid_credentials(mechanism: str, reason: str) -> Refused:
    """Return the refusal with Kafka's text, which does not say what was wrong."""
    return Refused(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}",
        reason,
    )
