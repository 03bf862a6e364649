"""A small identity provider (OpenID Connect) over real HTTP: discovery, authorization code with PKCE, refresh tokens.

The provider logs in every visitor as `user`, without a password. `mischief` names what is wrong with the provider's
next responses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID, SECRET = "oncelog-console", "s3cret"


class IdentityProvider:
    """The provider's HTTP server; runs in a thread within its `with` block. `key` signs the provider's tokens,
    `audience` is the audience of its access
    tokens.
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey, audience: str = "oncelog") -> None:
        self.key = key
        self.audience = audience
        self.user = "alice"
        self.token_seconds = 600
        self.mischief = ""
        self.refreshed = 0
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        routes = [
            Route("/.well-known/openid-configuration", self._discovery),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/jwks", self._jwks),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="error", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)

    @property
    def issuer(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def revoke(self) -> None:
        """Make all refresh tokens invalid."""
        self._refresh_tokens.clear()

    async def _discovery(self, _: Request) -> Response:
        if self.mischief == "no json":
            return PlainTextResponse("<html>")
        return JSONResponse(
            {
                "issuer": "http://evil.example" if self.mischief == "another issuer" else self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "id_token_signing_alg_values_supported": ["ES256"],
            }
        )

    async def _jwks(self, _: Request) -> Response:
        key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [{**key, "kid": "k", "use": "sig", "alg": "ES256"}]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        back = asked["redirect_uri"]
        if self.mischief == "refuses":
            return RedirectResponse(f"{back}?{urlencode({'error': 'access_denied', 'state': asked['state']})}", 302)
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return RedirectResponse(f"{back}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        expected = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {expected}":
            return JSONResponse({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self._refresh_tokens:
                return JSONResponse({"error": "invalid_grant"}, 400)
            self._refresh_tokens.remove(form["refresh_token"])
            self.refreshed += 1
            return JSONResponse(self._tokens(None))
        asked = self._codes.pop(form["code"], None)
        if asked is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse(self._tokens(asked["nonce"]))

    def _tokens(self, nonce: str | None) -> dict[str, Any]:
        now = time.time()
        refresh = secrets.token_urlsafe(16)
        self._refresh_tokens.add(refresh)
        claims = {"sub": self.user, "iat": now, "exp": now + self.token_seconds}
        tokens: dict[str, Any] = {
            "access_token": self._signed({**claims, "aud": self.audience}),
            "token_type": "Bearer",
            "expires_in": self.token_seconds,
            "refresh_token": refresh,
        }
        if nonce is not None:
            tokens["id_token"] = self._id_token({**claims, "aud": CLIENT_ID, "iss": self.issuer, "nonce": nonce})
        if self.mischief == "no id token":
            del tokens["id_token"]
        return tokens

    def _id_token(self, claims: dict[str, Any]) -> str:
        match self.mischief:
            case "another nonce":
                return self._signed({**claims, "nonce": "other"})
            case "another audience":
                return self._signed({**claims, "aud": "other"})
            case "expired":
                return self._signed({**claims, "exp": time.time() - 3600})
            case "another key":
                return jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "k"})
            case "unsigned":
                return jwt.encode(claims, None, "none", {"kid": "k"})  # type: ignore[arg-type]
        return self._signed(claims)

    def _signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode(claims, self.key, "ES256", {"kid": "k"})
