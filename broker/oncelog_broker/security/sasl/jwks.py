"""The keys that verify OAUTHBEARER tokens: a JSON web key set from a file or URL. The set is read again periodically,
and also when a token names an unknown key.
"""

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
"""Limit in seconds on one reading of the keys, after which the reading fails."""
MAX_BYTES: Final = 1024 * 1024
"""Limit in bytes on the key set document."""
UNKNOWN_KEY_SECONDS: Final = 10.0
"""Minimum seconds between two readings of the key set that tokens with unknown keys cause."""


class Jwks:
    """The key set of one URL. The method `key` never waits: for an unknown key it returns None and requests a reading,
    so that a later login may succeed.
    """

    def __init__(self, url: str, refresh_seconds: float) -> None:
        """Raises InvalidConfig."""
        check_url(url)
        self.url = url
        self._refresh_seconds = refresh_seconds
        self._keys: dict[str | None, Any] = {}
        self._wanted = asyncio.Event()
        self._current_since: float | None = None
        """The start of the last successful reading or, before the first success, the start of the first attempt; in
        seconds of the event loop's time. A value of None means that no attempt was made yet.
        """

    def age_seconds(self, now: float) -> float:
        """Return the seconds since the last successful reading or, before the first success, since the first attempt.
        `now` is the event loop's time in seconds.
        """
        return 0.0 if self._current_since is None else now - self._current_since

    def key(self, key_id: str | None) -> Any:
        """Return the public key; None if no key has this id. A token without an id matches a set with a single key."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id)
        if found is None:
            self._wanted.set()
        return found

    async def read(self) -> None:
        """Read the key set now. A failure is logged, and the old keys stay in use: a failing external provider must not
        prevent the start of the broker, and must not end the periodic readings (S93).
        """
        began = asyncio.get_running_loop().time()
        if self._current_since is None:
            self._current_since = began
        try:
            self._keys = await asyncio.to_thread(_read_keys, self.url)
        except Exception as error:
            logger.error(
                "the keys of OAUTHBEARER cannot be read: the broker keeps the previous keys, and tries again later",
                extra={"url": self.url, "reason": f"{type(error).__name__}: {error!s:.300}"},
            )
        else:
            self._current_since = began

    async def follow(self) -> None:
        """Read the key set periodically, without end."""
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
    """Return the public keys by id. Keys of unknown type and malformed keys are skipped. Raises ValueError."""
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
            continue  # skip a shared secret, which is not a public key
        try:
            keys[each.get("kid")] = PyJWK.from_dict(each)
        except (PyJWTError, ValueError, TypeError, AttributeError, KeyError) as error:
            logger.warning("a key of the set is skipped", extra={"reason": type(error).__name__})
    return keys


def check_url(url: str) -> None:
    """Check the URL of a key set. Raises InvalidConfig if its keys cannot be trusted: with http://, an attacker on the
    network path could insert a key and log in as any user. http:// on loopback is allowed.
    """
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InvalidConfig(
            f"sasl.oauthbearer.jwks.endpoint.url={url}: without TLS an attacker on the network path can sign "
            "tokens. Use "
            "https://; http:// is accepted only for localhost and loopback addresses"
        )
    if parts.scheme not in ("https", "http", "file"):
        raise InvalidConfig(f"sasl.oauthbearer.jwks.endpoint.url={url}: must begin with https:// or file://")


def _read_keys(url: str) -> dict[str | None, Any]:
    """Read and parse the key set. Call this in a worker thread, because parsing a large set also takes time."""
    # Imported here, because this module imports an HTTP client, which most brokers do not need.
    from oncelog_broker.security.sasl.timed_get import timed_get

    return parse_keys(timed_get(url, READ_TIMEOUT_SECONDS, MAX_BYTES, check_url))
