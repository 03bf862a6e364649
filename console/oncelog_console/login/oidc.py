"""The login at an identity provider (OpenID Connect, authorization code with PKCE), by Authlib.

Authlib checks the state, the nonce, and signature, issuer, audience and times of the id token. The cluster receives the
access token, or the id token (OAUTHBEARER), so the cluster decides what the user may do.

Invariants: whatever the provider responds, it either logs the user in or raises LoginFailed; a login ends when the
token for the cluster expires; a replacement token must belong to the same user.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any, Final

from authlib.integrations.starlette_client import OAuth, OAuthError
from starlette.requests import Request
from starlette.responses import Response

from oncelog_console.limits import MAX_PROVIDER_BYTES, PROVIDER_SECONDS

try:  # Authlib sends requests with httpx2, or with httpx if httpx2 is not installed
    import httpx2 as httpx
except ModuleNotFoundError:  # pragma: no cover - each environment of the tests has it
    import httpx  # type: ignore[no-redef]

SCOPE: Final = "openid profile"
IDENTITY: Final = "id_token"
TOKENS: Final = ("access_token", IDENTITY)
SPARE_SECONDS: Final = 60.0
"""A token is replaced this many seconds before it expires."""
DISCOVERY: Final = "/.well-known/openid-configuration"
CALLBACK: Final = "/oidc/callback"
USER_CLAIMS: Final = ("preferred_username", "email", "sub")


class LoginFailed(Exception):
    """Raised if the provider did not log the user in. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """`issuer`: the provider's URL. `public_url`: the console's URL for browsers. `shown_token`: the token that the
    cluster receives, "access_token" or "id_token".
    """

    issuer: str
    client_id: str
    client_secret: str | None
    public_url: str
    scope: str = SCOPE
    shown_token: str = TOKENS[0]

    def check(self) -> None:
        """Raise ValueError for invalid settings."""
        for name, address in (("issuer", self.issuer), ("public_url", self.public_url)):
            url = httpx.URL(address)
            if url.scheme != "https" and not (url.scheme == "http" and url.host in ("127.0.0.1", "localhost", "::1")):
                raise ValueError(f"oidc.{name} is an https:// URL (http:// on the loopback), not {address!r}")
        if self.shown_token not in TOKENS:
            raise ValueError(f"oidc.shown_token is one of {', '.join(TOKENS)}, not {self.shown_token!r}")
        if "openid" not in self.scope.split():
            raise ValueError("oidc.scope has openid in it")


class Provider:
    """Client of the identity provider."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time) -> None:
        """Raises ValueError for invalid settings."""
        settings.check()
        self.settings = settings
        self._clock = clock
        oauth = OAuth()
        self._client: Any = oauth.register(
            "provider",
            server_metadata_url=settings.issuer.rstrip("/") + DISCOVERY,
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            client_kwargs={
                "scope": settings.scope,
                "code_challenge_method": "S256",
                "timeout": PROVIDER_SECONDS,
                "follow_redirects": False,
                "headers": {"Accept-Encoding": "identity"},
                "event_hooks": {"response": [_bound]},
                "token_endpoint_auth_method": "none" if settings.client_secret is None else "client_secret_basic",
            },
        )

    async def redirect(self, request: Request) -> Response:
        """Redirect the browser to the provider. Raises LoginFailed."""
        back = self.settings.public_url.rstrip("/") + CALLBACK
        response: Response = await _within_time(self._client.authorize_redirect(request, back))
        return response

    async def login(self, request: Request) -> OidcLogin:
        """Return the user and the user's tokens, after the identity provider has redirected the browser back to the
        console. Raises LoginFailed.
        """
        token = await _within_time(self._client.authorize_access_token(request))
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping) or claims.get("iss") != await self._issuer():
            raise LoginFailed("the provider has sent no id token that names its issuer")
        user = next((str(claims[name]) for name in USER_CLAIMS if claims.get(name)), "")
        if not user:
            raise LoginFailed("the provider names no user")
        return OidcLogin(self, user, self._checked(token, claims))

    async def refreshed(self, token: Mapping[str, Any]) -> dict[str, Any]:
        """Request and return new tokens in place of tokens that expire soon. Raises LoginFailed."""
        refresh = token.get("refresh_token")
        if not refresh:
            raise LoginFailed("the token has expired")
        fresh = await _within_time(self._replaced(refresh))
        before, claims = token["userinfo"], fresh.get("userinfo")
        if claims is None:
            if self.settings.shown_token == IDENTITY:
                raise LoginFailed("the provider replaces no id token, and the one so far has expired")
            claims = before
        if claims.get("sub") != before.get("sub"):
            raise LoginFailed("the provider names another user than at the login")
        return self._checked({**token, **fresh}, claims)

    async def _replaced(self, refresh: str) -> dict[str, Any]:
        """Request new tokens from the provider. `userinfo` in the result has the claims of the new id token, if the
        provider has sent one.
        """
        metadata = await self._client.load_server_metadata()
        async with self._client._get_oauth_client(**metadata) as client:
            fresh = dict(await client.refresh_token(metadata["token_endpoint"], refresh_token=refresh))
        fresh.pop("userinfo", None)
        claims = await self._client.parse_id_token(fresh, nonce=None)
        return fresh if claims is None else {**fresh, "userinfo": claims}

    def is_fresh(self, token: Mapping[str, Any]) -> bool:
        """Return whether the token does not expire soon."""
        expires = token["expires_at"]
        return expires is None or expires - SPARE_SECONDS > self._clock()

    async def _issuer(self) -> str:
        metadata = await _within_time(self._client.load_server_metadata())
        issuer = metadata.get("issuer")
        if not isinstance(issuer, str) or issuer.rstrip("/") != self.settings.issuer.rstrip("/"):
            raise LoginFailed("the provider names itself otherwise than it is configured")
        return issuer

    def _checked(self, token: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tokens, with the claims of the id token as `userinfo`, and the expiry of the token for the cluster
        as `expires_at` (seconds; None if unknown). Raises LoginFailed.
        """
        shown = self.settings.shown_token
        if not isinstance(token.get(shown), str):
            raise LoginFailed(f"the provider has sent no {shown}")
        expires = claims.get("exp") if shown == IDENTITY else token.get("expires_at")
        try:
            ends = None if expires is None else float(expires)
        except (TypeError, ValueError, OverflowError):
            ends = math.nan
        if ends is not None and not math.isfinite(ends):
            raise LoginFailed("the provider says no time at which the token ends")
        return {**token, "expires_at": ends, "userinfo": claims}


class OidcLogin:
    """A user whom the provider has authenticated, with tokens that are replaced while the session lasts."""

    def __init__(self, provider: Provider, user: str, token: dict[str, Any]) -> None:
        self.user = user
        self._provider = provider
        self._token = token
        self._refreshing = asyncio.Lock()

    def token(self) -> str:
        """Return the token for the cluster."""
        shown: str = self._token[self._provider.settings.shown_token]
        return shown

    async def is_valid(self) -> bool:
        """Return whether the token is valid; a token that expires soon is replaced by a new token from the provider, if
        the provider issues one.
        """
        async with self._refreshing:
            if self._provider.is_fresh(self._token):
                return True
            try:
                self._token = await self._provider.refreshed(self._token)
            except LoginFailed:
                return False
            return True

    async def close(self) -> None:
        """Forget the user's tokens, at the end of the session."""
        self._token = {self._provider.settings.shown_token: ""}


async def _bound(response: httpx.Response) -> None:
    """Limit the size of a provider's response: reading fails after MAX_PROVIDER_BYTES, and a compressed response is
    refused immediately.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, which was not asked for")
    assert isinstance(response.stream, httpx.AsyncByteStream)
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx.AsyncByteStream):
    """The body of a response; raises httpx.DecodingError beyond MAX_PROVIDER_BYTES."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for part in self._body:
            received += len(part)
            if received > MAX_PROVIDER_BYTES:
                raise httpx.DecodingError(f"the answer is longer than {MAX_PROVIDER_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


async def _within_time(asked: Any) -> Any:
    """Await a request with a time limit; raises LoginFailed for every failure."""
    try:
        async with asyncio.timeout(PROVIDER_SECONDS):
            return await asked
    except TimeoutError:
        raise LoginFailed("the identity provider does not answer in time") from None
    except OAuthError as error:
        raise LoginFailed(f"the identity provider refuses: {error.error}: {error.description or ''}") from error
    except httpx.HTTPError as error:
        raise LoginFailed(f"the identity provider cannot be reached: {type(error).__name__}") from error
    except Exception as error:  # a provider's response may make the library raise any exception
        raise LoginFailed(f"the answer of the identity provider cannot be used: {type(error).__name__}") from error
