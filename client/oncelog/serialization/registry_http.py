"""Sends requests to a schema registry, bounded in time and size: chooses the URL, repeats requests, and interprets
errors.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from oncelog.errors import ConfigError
from oncelog.serialization.errors import (
    NOT_FOUND_CODES,
    RegistryRefused,
    RegistryUnavailable,
    SchemaNotFound,
    shown_url,
)

try:
    import httpx
except ModuleNotFoundError as missing:  # pragma: no cover - each environment of the tests has it
    raise ModuleNotFoundError(
        "the client of a schema registry needs httpx: pip install 'oncelog[serializers]'", name=missing.name
    ) from missing

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Largest response in bytes that is read: four times the largest record of the topic `_schemas`."""
MAX_CONNECTIONS: Final = 10
ATTEMPTS: Final = 3
"""Number of attempts at each URL before a request fails."""
BACKOFF_SECONDS: Final = 0.1
"""Seconds to wait after all URLs have failed, before they are tried again; the wait doubles each time."""
SHOWN: Final = 300
"""Maximum number of characters of a response that an error message contains."""
NOT_FOUND: Final = 404
FIRST_ERROR: Final = 400
FIRST_SERVER_ERROR: Final = 500
TOO_MANY_REQUESTS: Final = 429


class RegistryHttp:
    """The connections to the URLs of one registry. Requests are sent to the first URL that responds, until it fails.

    A user and a password in a URL are sent to that URL only, as Basic authentication, and never appear in a message.
    `timeout_s` bounds a request with all its attempts. Responses are requested without compression, so that the limit
    of their size also limits the memory that they use.
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        *,
        auth: tuple[str, str] | None,
        token: str | Callable[[], str] | None,
        ssl_context: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        """Raises ConfigError for an invalid URL."""
        listed = urls.split(",") if isinstance(urls, str) else list(urls)
        given = [_without_user(url.strip()) for url in listed if url.strip()]
        self._urls = [url for url, _ in given]
        self._auth_of = {url: own for url, own in given if own is not None}
        """URL -> the authentication that was contained in the URL."""
        if not self._urls:
            raise ConfigError("a schema registry has at least one URL")
        if (auth is not None or self._auth_of) and token is not None:
            raise ConfigError("auth and token exclude each other")
        self._token = token
        self._timeout_s = timeout_s
        # Load the system's certificate authorities only for https, because loading them takes 30 ms.
        is_secure = any(url.startswith("https:") for url in self._urls)
        self._client = httpx.AsyncClient(
            auth=None if auth is None else httpx.BasicAuth(*auth),
            verify=is_secure if ssl_context is None else ssl_context,
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            follow_redirects=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of a response; a str if the JSON is not an object. Raises SchemaNotFound, RegistryRefused,
        RegistryUnavailable."""
        failure: RegistryUnavailable | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                for attempt in range(ATTEMPTS):
                    if attempt:
                        await asyncio.sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
                    for _ in range(len(self._urls)):
                        try:
                            return await self._ask(self._urls[0], method, path, body)
                        except RegistryUnavailable as error:
                            failure = error
                            self._urls.append(self._urls.pop(0))
        except TimeoutError:
            raise RegistryUnavailable(
                f"{self._urls[0]}{path}: no answer within {self._timeout_s:g} s" + (f" ({failure})" if failure else "")
            ) from failure
        assert failure is not None
        raise failure

    async def _ask(self, url: str, method: str, path: str, body: Any) -> Any:
        headers = {"Accept": f"{MEDIA_TYPE}, application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token if isinstance(self._token, str) else self._token()}"
        content = None if body is None else json.dumps(body).encode()
        auth = self._auth_of.get(url, httpx.USE_CLIENT_DEFAULT)
        try:
            async with self._client.stream(method, url + path, content=content, headers=headers, auth=auth) as response:
                received = await _received(response, f"{url}{path}")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            why = str(error) or type(error).__name__
            raise RegistryUnavailable(f"{url}{path}: the schema registry does not answer: {why}") from error
        return _answer(response.status_code, received, f"{url}{path}")


def _without_user(given: str) -> tuple[str, httpx.BasicAuth | None]:
    """Return the URL without user and password, and the user and password as authentication. Raises ConfigError."""
    if not given.startswith(("http://", "https://")):
        raise ConfigError(
            f"the URL of a schema registry begins with http:// or https://, not {shown_url(given)!r:.100}"
        )
    try:
        url = httpx.URL(given)
    except httpx.InvalidURL:
        raise ConfigError(f"{shown_url(given)!r:.100} is no URL of a schema registry") from None
    auth = httpx.BasicAuth(url.username, url.password) if url.username or url.password else None
    return str(url.copy_with(username=None, password=None)).rstrip("/"), auth


async def _received(response: httpx.Response, where: str) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise RegistryUnavailable(f"{where}: the answer is compressed ({encoding:.50}), which was not asked for")
    received = bytearray()
    async for part in response.aiter_raw():
        received += part
        if len(received) > MAX_ANSWER_BYTES:
            raise RegistryUnavailable(f"{where}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(received)


def _answer(status: int, received: bytes, where: str) -> Any:
    try:
        document = json.loads(received)
    except (ValueError, RecursionError):
        document = None
    if status < FIRST_ERROR:
        if document is None or status >= 300:
            raise RegistryUnavailable(f"{where}: does not answer as a schema registry (HTTP {status})")
        return document
    match document:
        case {"error_code": int(code), "message": str(message)}:
            pass
        case _:
            code, message = status, received[:SHOWN].decode(errors="replace")
    told = f"{where}: {message:.{SHOWN}} (HTTP {status}, error {code})"
    if code in NOT_FOUND_CODES or status == NOT_FOUND:
        raise SchemaNotFound(told, status, code)
    if status >= FIRST_SERVER_ERROR or status == TOO_MANY_REQUESTS:
        raise RegistryUnavailable(told)
    raise RegistryRefused(told, status, code)
