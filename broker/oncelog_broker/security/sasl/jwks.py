"""The keys that OAUTHBEARER tokens are signed with: a JSON web key set, from a file or an address, read again now and
then, and when a token names a key that is not known."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final
from urllib.parse import urlsplit

from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.runtime.addresses import is_loopback

logger = logging.getLogger(__name__)

READ_TIMEOUT_SECONDS: Final = 10.0
"""Deadline of one reading of the keys, however slowly the provider answers."""
MAX_BYTES: Final = 1024 * 1024
"""Limit of the document with the keys."""
UNKNOWN_KEY_SECONDS: Final = 10.0
"""No sooner than this after the last reading are the keys read again because a token names an unknown one."""


class Jwks:
    """The keys of one address. `key` never waits: what it does not know, the next reading may bring."""

    def __init__(self, url: str, refresh_seconds: float) -> None:
        """Raises InvalidConfig."""
        check_url(url)
        self.url = url
        self._refresh_seconds = refresh_seconds
        self._keys: dict[str | None, Any] = {}
        self._wanted = asyncio.Event()
        self._current_since: float | None = None
        """When the last reading that succeeded began, by the loop's time; before that, when the first one began. None:
        nobody has tried to read yet."""

    def age_seconds(self, now: float) -> float:
        """For how long the provider has not been heard: since the last reading that succeeded or, before that, since
        the first try. `now` is the loop's time."""
        return 0.0 if self._current_since is None else now - self._current_since

    def key(self, key_id: str | None) -> Any:
        """The public key; None where there is none of that id. A token without an id may be signed by an only key."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id)
        if found is None:
            self._wanted.set()
        return found

    async def read(self) -> None:
        """Read the keys now. Whatever fails is logged, and the keys stay as they were: the provider is not ours, and no
        answer of it may end the start of the broker or the following of the keys (S93)."""
        began = asyncio.get_running_loop().time()
        if self._current_since is None:
            self._current_since = began
        try:
            self._keys = await asyncio.to_thread(_read_keys, self.url)
        except Exception as error:
            logger.error(
                "the keys of OAUTHBEARER cannot be read: those of before stay in use, and are read again later",
                extra={"url": self.url, "reason": f"{type(error).__name__}: {error!s:.300}"},
            )
        else:
            self._current_since = began

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

    try:
        document = json.loads(content)
    except RecursionError:
        raise ValueError("no JSON web key set: it is nested too deeply") from None
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


def check_url(url: str) -> None:
    """Raises InvalidConfig where nobody should believe the keys that come from there: over http:// whoever is on the
    line could put in theirs, and log in as anybody. On this machine's loopback there is nobody else on the line."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InvalidConfig(
            f"sasl.oauthbearer.jwks.endpoint.url={url}: without TLS whoever is on the line can sign tokens. Use "
            "https://; http:// is taken for localhost and loopback addresses alone"
        )
    if parts.scheme not in ("https", "http", "file"):
        raise InvalidConfig(f"sasl.oauthbearer.jwks.endpoint.url={url}: must begin with https:// or file://")


def _read_keys(url: str) -> dict[str | None, Any]:
    """To be called in a worker thread: parsing a large set takes a while, too."""
    from oncelog_broker.security.sasl.timed_get import timed_get  # HTTP, which most brokers do without

    return parse_keys(timed_get(url, READ_TIMEOUT_SECONDS, MAX_BYTES, check_url))
