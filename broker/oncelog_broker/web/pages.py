"""The pages /metrics, /health/live and /health/ready, for GET and HEAD; an ASGI application."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from oncelog.connection.versions import CLIENT_SOFTWARE_VERSION
from oncelog_broker.metrics.scraping import CONTENT_TYPE, Scraper
from oncelog_broker.runtime.addresses import may_be_asked_for
from oncelog_broker.web.health import Readiness

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]

JSON: Final = "application/json"
METHODS: Final = ("GET", "HEAD")
BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


class Answer:
    """A response: status, content type and the pieces of the body."""

    __slots__ = ("content_type", "headers", "pieces", "status")

    def __init__(self, status: HTTPStatus, content_type: str, pieces: list[bytes], **headers: str) -> None:
        self.status = status
        self.content_type = content_type
        self.pieces = pieces
        self.headers = headers

    @classmethod
    def json(cls, status: HTTPStatus, value: Mapping[str, object], **headers: str) -> Answer:
        return cls(status, JSON, [json.dumps(value).encode() + b"\n"], **headers)

    async def send(self, send: Send) -> None:
        """Send the response piece by piece, so that at most one piece waits in memory for a slow client."""
        size = sum(map(len, self.pieces))
        headers = {"content-type": self.content_type, "content-length": str(size), "cache-control": "no-store"}
        await send(
            {
                "type": "http.response.start",
                "status": int(self.status),
                "headers": [(name.encode(), value.encode()) for name, value in (headers | self.headers).items()],
            }
        )
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Pages:
    """The ASGI application with the pages of one broker."""

    def __init__(
        self,
        node_id: int,
        readiness: Readiness,
        scraper: Scraper,
        now_ms: Callable[[], int],
        *,
        is_on_loopback: bool = False,
    ) -> None:
        """`now_ms`: the wall clock, for /health/live. `is_on_loopback`: whether /metrics accepts a request only if its
        Host header is localhost or an address.
        """
        self._now_ms = now_ms
        self._is_on_loopback = is_on_loopback
        self._node_id = node_id
        self._readiness = readiness
        self._scraper = scraper

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await (await self._answer(scope)).send(send)

    async def _answer(self, scope: Mapping[str, Any]) -> Answer:
        method, path = scope["method"], scope["path"]
        if method not in METHODS:
            # The connection is closed, because a request body is not read.
            return Answer.json(
                HTTPStatus.METHOD_NOT_ALLOWED, {"error": "GET or HEAD"}, allow="GET, HEAD", connection="close"
            )
        if any(name in BODY_HEADERS and value != b"0" for name, value in scope["headers"]):
            return Answer.json(HTTPStatus.BAD_REQUEST, {"error": "a request body is not accepted"}, connection="close")
        if path == "/health/live":
            return self._live()
        if path == "/health/ready":
            return self._ready()
        if path == "/metrics" and self._is_asked_by_another_name(scope):
            return Answer.json(
                HTTPStatus.MISDIRECTED_REQUEST, {"error": "Host must be localhost or an address"}, connection="close"
            )
        if path == "/metrics":
            return await self._metrics()
        return Answer.json(HTTPStatus.NOT_FOUND, {"error": "/metrics, /health/live or /health/ready"})

    def _is_asked_by_another_name(self, scope: Mapping[str, Any]) -> bool:
        """Whether the request names a host that a foreign web page may have chosen (DNS rebinding). Requests for health
        pages are not checked, because these pages contain no secrets.
        """
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return self._is_on_loopback and not all(map(may_be_asked_for, hosts))

    def _live(self) -> Answer:
        said = {"status": "live", "broker": self._node_id, "release": CLIENT_SOFTWARE_VERSION}
        return Answer.json(HTTPStatus.OK, {**said, "time_ms": self._now_ms()})

    def _ready(self) -> Answer:
        reasons = self._readiness.reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        said = {"status": "not ready" if reasons else "ready", "broker": self._node_id, "reasons": reasons}
        return Answer.json(status, said)

    async def _metrics(self) -> Answer:
        text = await self._scraper.text()
        if text is None:
            return Answer.json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the broker starts, or stops"})
        return Answer(HTTPStatus.OK, CONTENT_TYPE, text)
