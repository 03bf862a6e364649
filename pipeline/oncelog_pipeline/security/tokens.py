"""Gets tokens for OAUTHBEARER as Kafka's clients do: from a token endpoint of OAuth, or from a file.

A request to the endpoint carries client credentials (RFC 6749, 4.4). Redirects are not followed, because the
credentials would then go to another host. A token is cached for most of its lifetime, so that many connections cause
one request to the endpoint. The client calls `token` in a thread.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

REFRESHED_AT: Final = 0.8
"""The share of a token's lifetime after which the next token is fetched, like Kafka's
sasl.login.refresh.window.factor.
"""
UNKNOWN_LIFE_SECONDS: Final = 60.0
"""How many seconds a token is cached if the endpoint does not return its lifetime (expires_in)."""
MAX_ANSWER_BYTES: Final = 1 << 20
SHOWN_CHARACTERS: Final = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None, so that urllib reports the redirect as an HTTPError."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


class NoToken(Exception):
    """The token endpoint returned no token: the message names the endpoint and its response."""


@dataclass(frozen=True)
class ClientCredentials:
    """A token provider (`sasl_oauth_token_provider`) that requests tokens from an endpoint. The cached token is not
    pickled.
    """

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    timeout_seconds: float = 10.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept", _Kept())

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.endpoint, self.client_id, self.client_secret, self.scope, self.timeout_seconds, self.clock)
        return ClientCredentials, given

    def token(self) -> str:
        """Return a cached or new token; blocks while the endpoint is requested. Raises NoToken."""
        kept: _Kept = self.__dict__["_kept"]
        with kept.lock:
            if self.clock() >= kept.until:
                token, life_seconds = self._ask()
                kept.token, kept.until = token, self.clock() + life_seconds * REFRESHED_AT
            return kept.token

    def _ask(self) -> tuple[str, float]:
        """Request a new token; return it and its lifetime in seconds."""
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 (the options let http and https pass)
            self.endpoint,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": f"Basic {credentials}",
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        try:
            with _OPENER.open(request, timeout=self.timeout_seconds) as response:
                content = response.read(MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(SHOWN_CHARACTERS).decode(errors="replace")
            raise NoToken(f"{self.endpoint} answered {error.code} to client {self.client_id!r}: {told}") from error
        except OSError as error:
            raise NoToken(f"{self.endpoint} cannot be reached: {error}") from error
        return self._token_of(content)

    def _token_of(self, content: bytes) -> tuple[str, float]:
        try:
            answer = json.loads(content)
            token, life = answer["access_token"], answer.get("expires_in", UNKNOWN_LIFE_SECONDS)
            if isinstance(token, str) and token:
                return token, float(life)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise NoToken(f"{self.endpoint} answered something else than a token: {error}") from error
        raise NoToken(f"{self.endpoint} answered with an empty access_token")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token provider that reads a file at each login, because another process may renew the token."""

    path: str

    def token(self) -> str:
        """Return the token in the file. Raises NoToken."""
        try:
            token = Path(self.path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoToken(f"{self.path} cannot be read: {error}") from error
        if not token:
            raise NoToken(f"{self.path} is empty")
        return token


class _Kept:
    """The cached token, and the time until which it is used, by the clock of the token provider."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""
        self.until = float("-inf")
