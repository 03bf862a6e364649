"""The SASL exchange of one connection: the mechanism, and which requests are allowed in which phase (T22).

After SaslHandshake v1 the client sends SaslAuthenticate requests, after v0 raw tokens. If the listener requires
re-authentication (KIP-368), the client must use the same mechanism and principal again; no other request is allowed
during a re-authentication. After the end of the session, the only allowed request is the SaslHandshake of a
re-authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from oncelog_broker.security.principal import USER_TYPE, Principal
from oncelog_broker.security.sasl.mechanism import Mechanism, Refused
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

BEFORE: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""The APIs that a client may use before it has chosen a SASL mechanism."""


class Phase(Enum):
    """The phases of an exchange; a phase determines what the client must send next."""

    HANDSHAKE = auto()
    TOKENS = auto()
    """In this phase the client sends SaslAuthenticate requests."""
    RAW_TOKENS = auto()
    """In this phase the client sends frames that contain only a token, without a request header."""
    DONE = auto()
    FAILED = auto()


class Progress(NamedTuple):
    """The server's response to a SASL token. `principal` is set when the exchange is complete."""

    token: bytes
    principal: Principal | None = None
    session_lifetime_ms: int = 0
    """Milliseconds until the session ends; 0 means that it does not end."""


class SaslExchange:
    """The SASL exchange of one connection. `mechanisms` creates the state machine of each enabled mechanism."""

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]], max_reauth_ms: Mapping[str, int]) -> None:
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self.phase = Phase.HANDSHAKE
        self._name = ""
        self._machine: Mechanism | None = None
        self.principal: Principal | None = None
        """The principal of the first authentication; None before the first authentication."""
        self._session_ends: float | None = None

    @property
    def mechanisms(self) -> list[str]:
        """The names of the enabled mechanisms."""
        return list(self._mechanisms)

    @property
    def is_done(self) -> bool:
        """Whether the client has authenticated, so that requests other than SASL requests are allowed until the session
        ends.
        """
        return self.phase is Phase.DONE

    def is_expired(self, now: float) -> bool:
        """Whether the session has ended; `now` is in seconds of `Clock.uptime`."""
        return self._session_ends is not None and now > self._session_ends

    def allows(self, api_key: int, now: float) -> bool:
        """Return whether a request of this API is allowed now; `now` is in seconds of `Clock.uptime`."""
        if self.phase is Phase.DONE:
            return api_key == ApiKey.SASL_HANDSHAKE or not self.is_expired(now)
        if self.phase is Phase.TOKENS:
            return api_key == ApiKey.SASL_AUTHENTICATE
        return self.phase is Phase.HANDSHAKE and api_key in BEFORE

    def handshake(self, mechanism: str, version: int) -> None:
        """Choose a SASL mechanism. Raises KafkaError UNSUPPORTED_SASL_MECHANISM or ILLEGAL_SASL_STATE."""
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
        """Process a token from the client. `wall_s`: seconds since 1970, compared with the expiry of a token; `now`:
        seconds of `Clock.uptime`, used for the end of the session. Raises Refused, after which the connection must be
        closed; KafkaError ILLEGAL_SASL_STATE if no token is expected.
        """
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
        """Return the lower of the listener's limit and the remaining life of a token, in milliseconds."""
        limits = [limit for limit in (self._max_reauth_ms.get(self._name, 0),) if limit]
        if expires_s is not None:
            limits.append(max(1, int((expires_s - wall_s) * 1000)))
        return min(limits, default=0)
