"""The keys that OAUTHBEARER tokens are signed with: a JSON web key set, from a file or an address, read again now and
then, and when a token names a key that is not known."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final

from oncelog_broker.config.declared import InvalidConfig

logger = logging.getLogger(__name__)

READ_TIMEOUT_SECONDS: Final = 10.0
MAX_BYTES: Final = 1024 * 1024
UNKNOWN_KEY_SECONDS: Final = 10.0
"""No sooner than this after the last reading are the keys read again because a token names an unknown one."""


class Jwks:
    """The keys of one address. `key` never waits: what it does not know, the next reading may bring."""

    def __init__(self, url: str, refresh_seconds: float) -> None:
        """Raises InvalidConfig."""
        if not url.startswith(("https://", "http://", "file://")):
            raise InvalidConfig(f"sasl.oauthbearer.jwks.endpoint.url={url}: must begin with https:// or file://")
        self._url = url
        self._refresh_seconds = refresh_seconds
        self._keys: dict[str | None, Any] = {}
        self._wanted = asyncio.Event()

    def key(self, key_id: str | None) -> Any:
        """The public key; None where there is none of that id. A token without an id may be signed by an only key."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id)
        if found is None:
            self._wanted.set()
        return found

    async def read(self) -> None:
        """Read the keys now. What fails is logged, and the keys stay as they were."""
        try:
            self._keys = parse_keys(await asyncio.to_thread(_content, self._url))
        except (OSError, ValueError) as error:
            logger.error("the keys of OAUTHBEARER cannot be read", extra={"url": self._url, "reason": str(error)})

    async def follow(self) -> None:
        """Read them again and again, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            read_at = loop.time()
            await self.read()
            self._wanted.clear()
            try:
                async with asyncio.timeout_at(read_at + self._refresh_seconds):
                    await self._wanted.wait()
                    await asyncio.sleep(max(0.0, read_at + UNKNOWN_KEY_SECONDS - loop.time()))
            except TimeoutError:
                pass


def parse_keys(content: bytes) -> dict[str | None, Any]:
    """The public keys by id. Those of a kind that is not known, or malformed, are passed over. Raises ValueError."""
    from jwt import PyJWK, PyJWTError

    document = json.loads(content)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("no JSON web key set: expected an object with `keys`")
    keys: dict[str | None, Any] = {}
    for each in document["keys"]:
        if not isinstance(each, dict) or each.get("kty") == "oct" or each.get("use", "sig") != "sig":
            continue  # a shared secret is no public key
        try:
            keys[each.get("kid")] = PyJWK.from_dict(each)
        except (PyJWTError, ValueError, TypeError, AttributeError, KeyError) as error:
            logger.warning("a key of the set is passed over", extra={"reason": type(error).__name__})
    return keys


def _content(url: str) -> bytes:
    from urllib.request import urlopen

    with urlopen(url, timeout=READ_TIMEOUT_SECONDS) as answer:  # noqa: S310 - looked at in __init__
        content: bytes = answer.read(MAX_BYTES)
    return content
