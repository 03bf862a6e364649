"""PLAIN (RFC 4616): user name and password in clear text, so only for listeners with TLS."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from oncelog_broker.config.secret import Secret
from oncelog_broker.security.sasl.mechanism import Refused, Step

_NOBODY: Final = Secret("\0")
"""The password of unknown users, so that a login takes the same time for known and unknown names. No client can send
this password, because NUL ends a field.
"""
_MESSAGE: Final = "Authentication failed: Invalid username or password"


class PlainMechanism:
    """One PLAIN exchange, which has a single token."""

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self._users = users

    def step(self, token: bytes, now_s: float) -> Step:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise Refused(_MESSAGE, "the PLAIN token does not have three parts")
        authorization, name, password = parts
        if not name or not password:
            raise Refused(_MESSAGE, "the PLAIN token has no user name, or no password")
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise Refused(_MESSAGE, "the user name in the PLAIN token is not UTF-8") from None
        expected = self._users.get(user, _NOBODY).reveal().encode()
        if not hmac.compare_digest(expected, password):
            known = "a wrong password" if user in self._users else "no such user"
            raise Refused(_MESSAGE, f"{known}: {user!r:.100}")
        if authorization and authorization != name:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different from username",
                f"{user!r:.100} requests another authorization identity",
            )
        return Step(b"", user)
