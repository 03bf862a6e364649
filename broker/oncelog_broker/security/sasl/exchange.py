"""One connection's way to be authenticated: which mechanism, and what may be sent when (T22).

Handshake v1 is followed by SaslAuthenticate requests, v0 by raw tokens. Who is authenticated may begin anew where the
listener wants that (KIP-368), with the same mechanism and as the same principal; until that is done nothing else may
be sent, and after the session's end nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog_broker.security.principal import USER_TYPE, Principal
from oncelog_broker.security.sasl.mechanism import Mechanism, Refused
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError

BEFORE: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""What may be sent before a mechanism is chosen."""


class Phase(Enum):
    """What the client is expected to send next."""

    HANDSHAKE = auto()
    TOKENS = auto()
    """SaslAuthenticate requests."""
    RAW_TOKENS = auto()
    """Frames that hold a token and nothing else."""
    DONE = auto()
    FAILED = auto()


class Progress(NamedTuple):
    """The answer to a token. `principal` is set when the exchange is done."""

    token: bytes
    principal: Principal | None = None
    session_lifetime_ms: int = 0
    """For how long; 0: without end."""


class SaslExchange:
    """`mechanisms` makes a machine for one exchange of each mechanism that is enabled."""

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]], max_reauth_ms: Mapping[str, int]) -> None:
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self.phase = Phase.HANDSHAKE
        self._name = ""
        self._machine: Mechanism | None = None
        self.principal: Principal | None = None
        """Who it was proved to be, the first time."""
        self._session_ends: float | None = None

    @property
    def mechanisms(self) -> list[str]:
        """Those that are enabled."""
        return list(self._mechanisms)

    @property
    def is_done(self) -> bool:
        """Whether anything may be sent, as long as the session lasts."""
        return self.phase is Phase.DONE

    def is_expired(self, now: float) -> bool:
        """`now`: seconds of `Clock.uptime`."""
        return self._session_ends is not None and now > self._session_ends

    def allows(self, api_key: int, now: float) -> bool:
        """Whether such a request may be sent now, in seconds of `Clock.uptime`."""
        if self.phase is Phase.DONE:
            return api_key == ApiKey.SASL_HANDSHAKE or not self.is_expired(now)
        if self.phase is Phase.TOKENS:
            return api_key == ApiKey.SASL_AUTHENTICATE
        return self.phase is Phase.HANDSHAKE and api_key in BEFORE

    def handshake(self, mechanism: str, version: int) -> None:
        """Choose a mechanism. Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE."""
        is_again = self.phase is Phase.DONE
        if self.phase is not Phase.HANDSHAKE and not (is_again and self._session_ends is not None and version > 0):
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake request received after successful authentication"
            )
        if mechanism not in self._mechanisms or (is_again and mechanism != self._name):
            self.phase = Phase.FAILED
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"Unsupported SASL mechanism {mechanism!r:.100}; enabled: {', '.join(self._mechanisms)}",
            )
        self._name, self._machine = mechanism, self._mechanisms[mechanism]()
        self.phase = Phase.TOKENS if version > 0 else Phase.RAW_TOKENS

    def authenticate(self, token: bytes, wall_s: float, now: float) -> Progress:
        """A token of the client. `wall_s`: seconds since 1970, which the expiry of a token is held against; `now`:
        seconds of `Clock.uptime`, by which the session ends. Raises Refused, after which the connection must close;
        KafkaError ILLEGAL_SASL_STATE where none is expected."""
        if self.phase not in (Phase.TOKENS, Phase.RAW_TOKENS) or self._machine is None:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
            )
        try:
            step = self._machine.step(token, wall_s)
            if step.user is None:
                return Progress(step.token)
            principal = Principal(USER_TYPE, step.user)
            if self.principal not in (None, principal):
                raise Refused(
                    f"Cannot change principals during re-authentication from {self.principal}: {principal}",
                    f"{self.principal} authenticates again as {principal}",
                )
        except Refused:
            self.phase, self._machine = Phase.FAILED, None
            raise
        self.phase, self._machine, self.principal = Phase.DONE, None, principal
        lifetime_ms = self._lifetime_ms(step.expires_s, wall_s)
        self._session_ends = now + lifetime_ms / 1000 if lifetime_ms else None
        return Progress(step.token, principal, lifetime_ms)

    def _lifetime_ms(self, expires_s: float | None, wall_s: float) -> int:
        """The shorter of what the listener allows and what is left of a token."""
        limits = [limit for limit in (self._max_reauth_ms.get(self._name, 0),) if limit]
        if expires_s is not None:
            limits.append(max(1, int((expires_s - wall_s) * 1000)))
        return min(limits, default=0)
