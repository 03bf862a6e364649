"""What every mechanism is: a machine that is given tokens of a client, one after the other."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from oncelog_protocol.errors import ErrorCode, KafkaError


class Step(NamedTuple):
    """The answer to a token. With a `user` the exchange is done: that is who it was."""

    token: bytes
    user: str | None = None
    expires_s: float | None = None
    """When what was shown ends to be valid, in seconds since 1970: a token's end."""


class Refused(KafkaError):
    """Who it was said to be is not proved. The client is told `message`; `reason` is for the log, without secrets."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        self.reason = reason


class Mechanism(Protocol):
    """One exchange. Raises Refused; after that, and after a user, it is given nothing more."""

    def step(self, token: bytes, now_s: float) -> Step: ...


def invalid_credentials(mechanism: str, reason: str) -> Refused:
    """In Kafka's words, which do not say what was wrong."""
    return Refused(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}",
        reason,
    )
