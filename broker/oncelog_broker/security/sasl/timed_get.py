"""Reads a small document from an https, http or file URL, with one deadline for the entire read.

The timeout of `urlopen` applies to each socket call: a server that sends a byte from time to time would block the
thread forever. So this module gives each socket call the remaining time as its timeout. urllib handles proxies and
redirects.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import FileHandler, HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener


class _Deadline:
    """A deadline, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds; raises TimeoutError if no time is left."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not complete after {self._seconds:.0f} s")
        return left


class _TimedReader(io.RawIOBase):
    """Reads the bytes that a socket receives. Each read waits no longer than the deadline."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._socket, self._deadline = sock, deadline
        self._raw: Any = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(self._deadline.left())
        read: int | None = self._raw.readinto(buffer)
        return read

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connection(kind: type[HTTPConnection], deadline: _Deadline, *args: Any, **options: Any) -> HTTPConnection:
    """Return an HTTP connection with the deadline, as urllib's handlers expect it."""
    made = kind(*args, **{**options, "timeout": deadline.left()})

    def answer(sock: socket.socket, *args: Any, **options: Any) -> HTTPResponse:
        response = HTTPResponse(sock, *args, **options)
        untimed: IO[bytes] = response.fp
        response.fp = io.BufferedReader(_TimedReader(sock, deadline))
        untimed.close()
        return response

    made.response_class = answer  # type: ignore[assignment]
    return made


class _Http(HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: Any) -> Any:
        return self.do_open(partial(_connection, HTTPConnection, self._deadline), request)


class _Https(HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, request: Any) -> Any:
        return self.do_open(partial(_connection, HTTPSConnection, self._deadline), request)


class _Redirects(HTTPRedirectHandler):
    """Follows a redirect only if its target would have been allowed as the first URL."""

    def __init__(self, check: Callable[[str], None]) -> None:
        self._check = check

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        self._check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def timed_get(url: str, seconds: float, max_bytes: int, check: Callable[[str], None]) -> bytes:
    """Return the document at `url`. `check` is called with the URL of each redirect, and raises if the redirect must
    not be followed.

    Raises OSError for every failure of the server or its response; ValueError if the document has more than
    `max_bytes`; and the errors of `check`. Blocks for at most `seconds`, plus the time to resolve the host's name.
    """
    deadline = _Deadline(seconds)
    opener = build_opener(_Http(deadline), _Https(deadline), FileHandler(), _Redirects(check))
    try:
        with opener.open(url, timeout=seconds) as answer:
            content: bytes = answer.read(max_bytes + 1)
    except HTTPError as error:  # unwrap the error: URLError contains the OSError of the connection
        error.close()
        raise
    except HTTPException as error:  # raised if the response is not HTTP, or is truncated
        raise OSError(f"{type(error).__name__}: {error!s:.200}") from error
    if len(content) <= max_bytes and getattr(answer, "length", None):
        raise OSError(f"the response is truncated after {len(content)} bytes")
    if len(content) > max_bytes:
        raise ValueError(f"more than {max_bytes} bytes")
    return content
