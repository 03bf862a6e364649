"""The login at an identity provider (OpenID Connect, authorization code with PKCE), by Authlib.

Authlib checks the state, the nonce, and signature, issuer, audience and times of the id token. The access token, or the
id token, is what the cluster is shown (OAUTHBEARER), so the cluster decides what the user may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any, Final

import httpx
from authlib.integrations.starlette_client import OAuth, OAuthError
from starlette.requests import Request
from starlette.responses import Response

from oncelog_console.limits import PROVIDER_SECONDS

SCOPE: Final = "openid profile"
TOKENS: Final = ("access_token", "id_token")
SPARE_SECONDS: Final = 60.0
"""How long before its end a token is replaced."""
DISCOVERY: Final = "/.well-known/openid-configuration"
CALLBACK: Final = "/oidc/callback"
USER_CLAIMS: Final = ("preferred_username", "email", "sub")


class LoginFailed(Exception):
    """The provider did not log the user in. The message says why."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """`issuer`: the provider's URL. `public_url`: where browsers reach the console. `shown_token`: which token the
    cluster is shown, one of TOKENS."""

    issuer: str
    client_id: str
    client_secret: str | None
    public_url: str
    scope: str = SCOPE
    shown_token: str = TOKENS[0]

    def check(self) -> None:
        """Raises ValueError."""
        for name, address in (("issuer", self.issuer), ("public_url", self.public_url)):
            url = httpx.URL(address)
            if url.scheme != "https" and not (url.scheme == "http" and url.host in ("127.0.0.1", "localhost", "::1")):
                raise ValueError(f"oidc.{name} is an https:// URL (http:// on the loopback), not {address!r}")
        if self.shown_token not in TOKENS:
            raise ValueError(f"oidc.shown_token is one of {', '.join(TOKENS)}, not {self.shown_token!r}")
        if "openid" not in self.scope.split():
            raise ValueError("oidc.scope has openid in it")


class Provider:
    """The identity provider."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time) -> None:
        """Raises ValueError."""
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
                "token_endpoint_auth_method": "none" if settings.client_secret is None else "client_secret_basic",
            },
        )

    async def redirect(self, request: Request) -> Response:
        """Lead the browser to the provider. Raises LoginFailed."""
        back = self.settings.public_url.rstrip("/") + CALLBACK
        response: Response = await _within_time(self._client.authorize_redirect(request, back))
        return response

    async def login(self, request: Request) -> OidcLogin:
        """The login of a browser that the provider has led back. Raises LoginFailed."""
        token = await _within_time(self._client.authorize_access_token(request))
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping) or claims.get("iss") != await self._issuer():
            raise LoginFailed("the provider has sent no id token that names its issuer")
        user = next((str(claims[name]) for name in USER_CLAIMS if claims.get(name)), "")
        if not user:
            raise LoginFailed("the provider names no user")
        return OidcLogin(self, user, self._checked(token))

    async def refreshed(self, token: Mapping[str, Any]) -> dict[str, Any]:
        """A token in the place of one that ends soon. Raises LoginFailed."""
        refresh = token.get("refresh_token")
        if not refresh:
            raise LoginFailed("the token has expired")
        metadata = await _within_time(self._client.load_server_metadata())
        client = self._client._get_oauth_client(**metadata)
        async with client:
            fresh = await _within_time(client.refresh_token(metadata["token_endpoint"], refresh_token=refresh))
        return self._checked({**token, **fresh})

    def is_fresh(self, token: Mapping[str, Any]) -> bool:
        """Whether the token lasts for some time yet."""
        expires = token.get("expires_at")
        return expires is None or float(expires) - SPARE_SECONDS > self._clock()

    async def _issuer(self) -> str:
        metadata = await _within_time(self._client.load_server_metadata())
        issuer: str = metadata.get("issuer", "")
        if issuer.rstrip("/") != self.settings.issuer.rstrip("/"):
            raise LoginFailed("the provider names itself otherwise than it is configured")
        return issuer

    def _checked(self, token: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(token.get(self.settings.shown_token), str):
            raise LoginFailed(f"the provider has sent no {self.settings.shown_token}")
        return dict(token)


class OidcLogin:
    """A user whom the provider has named, with tokens that are replaced while the session lasts."""

    def __init__(self, provider: Provider, user: str, token: dict[str, Any]) -> None:
        self.user = user
        self._provider = provider
        self._token = token
        self._refreshing = asyncio.Lock()

    def token(self) -> str:
        """What the cluster is shown now."""
        shown: str = self._token[self._provider.settings.shown_token]
        return shown

    async def is_valid(self) -> bool:
        """Whether the token lasts; it is replaced if it ends soon and the provider agrees."""
        async with self._refreshing:
            if self._provider.is_fresh(self._token):
                return True
            try:
                self._token = await self._provider.refreshed(self._token)
            except LoginFailed:
                return False
            return True

    async def close(self) -> None:
        """Forget the tokens."""
        self._token = {self._provider.settings.shown_token: ""}


async def _within_time(asked: Any) -> Any:
    """Raises LoginFailed, whatever a provider answers."""
    try:
        async with asyncio.timeout(PROVIDER_SECONDS):
            return await asked
    except TimeoutError:
        raise LoginFailed("the identity provider does not answer in time") from None
    except OAuthError as error:
        raise LoginFailed(f"the identity provider refuses: {error.error}: {error.description or ''}") from error
    except httpx.HTTPError as error:
        raise LoginFailed(f"the identity provider cannot be reached: {type(error).__name__}") from error
    except Exception as error:  # a provider's answer may lead the library to raise anything
        raise LoginFailed(f"the answer of the identity provider cannot be used: {type(error).__name__}") from error
