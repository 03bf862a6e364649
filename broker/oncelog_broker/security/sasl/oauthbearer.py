"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): authentication by a JSON web token signed by a key of the issuer.

PyJWT checks signatures; this module checks the claims. Unsigned tokens (algorithm none) are accepted only if that is
configured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from oncelog_broker.security.sasl.mechanism import Refused, Step, invalid_credentials
from oncelog_protocol.light_classes import NamedTuple

NAME: Final = "OAUTHBEARER"
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms that verify with a public key. With a shared-secret algorithm, anybody who has the public key could forge
tokens.
"""
LAST_SECOND: Final = 1e12
"""The latest accepted expiry of a token, in seconds since 1970: with a later expiry the session lifetime in
milliseconds would not fit into the response's field.
"""
_TOKEN: Final = re.compile(rb"n,(?:a=(?P<authorization>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
_BEARER: Final = re.compile(rb"(?:^|\x01)auth=[Bb]earer +(?P<token>[-_.~+/A-Za-z0-9=]+)\x01")
_INVALID_TOKEN: Final = json.dumps({"status": "invalid_token"})
"""The server's error of RFC 7628: the challenge after a refused token, and, as in Kafka, the message of the refusal."""

KeyOf = Callable[[str | None], Any]
"""Type of a function that returns the public key with a given id (`kid`); None if no such key exists."""


class TokenRules(NamedTuple):
    """The requirements that a token must meet."""

    key_of: KeyOf
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_seconds: int = 30
    subject_claim: str = "sub"
    allows_unsecured: bool = False


class OAuthExchange:
    """One exchange: a single token and, if the token is refused, the client's response to the error."""

    def __init__(self, rules: TokenRules) -> None:
        self._rules = rules
        self._refused: Refused | None = None

    def step(self, token: bytes, now_s: float) -> Step:
        if self._refused is not None:
            raise self._refused
        match = _TOKEN.fullmatch(token)
        bearer = None if match is None else _BEARER.search(match["pairs"])
        if match is None or bearer is None:
            raise invalid_credentials(NAME, "the request contains no OAUTHBEARER token")
        try:
            claims = verified_claims(bearer["token"].decode(), self._rules, now_s)
            subject, expires = claims[self._rules.subject_claim], float(claims["exp"])
            if not isinstance(subject, str) or not subject:
                raise ValueError(f"{self._rules.subject_claim} is not a name")
        except (ValueError, KeyError, TypeError) as error:
            # Because of RFC 7628, the error goes to the client as a challenge, and the client sends one more message
            # before the login is refused.
            self._refused = Refused(_INVALID_TOKEN, f"the token is refused: {error}")
            return Step(_INVALID_TOKEN.encode())
        authorization = match["authorization"]
        if authorization and authorization.decode(errors="replace") != subject:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
                f"{subject!r:.100} requests another authorization identity",
            )
        return Step(b"", subject, expires)


def verified_claims(token: str, rules: TokenRules, now_s: float) -> dict[str, Any]:
    """Return the claims of a valid token. Raises ValueError, whose message contains no part of the token."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm == "none":
            if not rules.allows_unsecured:
                raise ValueError("the token is not signed")
            claims = jwt.decode(token, options={"verify_signature": False})
        elif algorithm not in ALGORITHMS:
            raise ValueError("the token's signature algorithm is not accepted")
        else:
            key = rules.key_of(header.get("kid"))
            if key is None:
                raise ValueError("the token is signed by an unknown key")
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False},
            )
    except (jwt.PyJWTError, RecursionError) as error:
        raise ValueError(type(error).__name__) from None
    _check_claims(claims, rules, now_s)
    return dict(claims)


def _check_claims(claims: dict[str, Any], rules: TokenRules, now_s: float) -> None:
    """Check the token's times and names here and not in the library, because the library uses its own clock."""
    expires, begins = claims.get("exp"), claims.get("nbf", 0)
    if not _is_time(expires) or float(claims["exp"]) + rules.skew_seconds <= now_s:
        raise ValueError("the token has no expiry, or has expired")
    if not _is_time(begins) or float(begins) - rules.skew_seconds > now_s:
        raise ValueError("the token is not valid yet")
    audience = claims.get("aud", ())
    named = {audience} if isinstance(audience, str) else set(audience)
    if rules.audience and not named & set(rules.audience):
        raise ValueError("the token is for another audience")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise ValueError("the token has another issuer")


def _is_time(value: object) -> bool:
    """Return False for non-numbers and unusable numbers, because Python's JSON accepts NaN, Infinity, and numbers of
    any length.
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LAST_SECOND
