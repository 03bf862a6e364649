"""Serves POST /verdict: reads the topics of a history, and judges the history."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from oncelog.errors import KafkaError
from oncelog_testing.application import ApplicationHistory
from oncelog_testing.judge.document import record, shown
from oncelog_testing.readers import StillOpen

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Limit in bytes on the history in a request."""
BODY_SECONDS: Final = 30.0
"""Seconds in which a client must send the history."""


def verdict_of(document: Any, bootstrap_servers: str) -> dict[str, Any]:
    """Return the verdict of a history as JSON. Raises ValueError, StillOpen or KafkaError."""
    history = ApplicationHistory(lambda: bootstrap_servers)
    case = record(document, history)
    if case.processed is not None:
        told = case.processed
        history.read_processed(told.source, told.into, told.made_of, group_id=told.group_id)
    if case.topics:
        history.read(*case.topics)
    return shown(history.verdict(apart_from=case.apart_from))


class Judge(ThreadingHTTPServer):
    """The HTTP server, which serves on `address` until `shutdown`; each request runs in its own thread."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], bootstrap_servers: str) -> None:
        """Raises OSError."""
        super().__init__(address, _Handler)
        self.judge: Callable[[Any], dict[str, Any]] = lambda document: verdict_of(document, bootstrap_servers)


class _Handler(BaseHTTPRequestHandler):
    timeout = BODY_SECONDS
    server: Judge

    def do_POST(self) -> None:
        status, answer = self._judged()
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the client gets the error."""

    def _judged(self) -> tuple[int, dict[str, Any]]:
        if self.path != "/verdict":
            return 404, {"error": "there is POST /verdict"}
        if self.headers.get_content_type() != "application/json":
            return 415, {"error": "Content-Type: application/json is needed, so that no page in a browser can send it"}
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal():
            return 411, {"error": "Content-Length is needed"}
        if int(length[:20]) > MAX_BODY_BYTES:
            return 413, {"error": f"a history has at most {MAX_BODY_BYTES} bytes"}
        try:
            return 200, self.server.judge(json.loads(self.rfile.read(int(length))))
        except (ValueError, RecursionError) as error:
            return 400, {"error": f"the history cannot be judged: {error}"}
        except (StillOpen, KafkaError) as error:
            return 503, {"error": f"the topics cannot be read: {error}"}
