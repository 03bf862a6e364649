"""The fail control over HTTP, in its own threads, outside the event loop. The fail control is only for tests: every
client that can connect to the control can kill the broker.

GET    /points           the points at which a fault can be injected
GET    /faults           the faults that are set
POST   /faults           set a fault (JSON as in `commands.py`); the response has its id
GET    /faults/7         one fault, with the number of its strikes; ?struck=1&wait_ms=5000 waits for one strike
DELETE /faults/7         delete one fault; /faults deletes all faults
POST   /crash            kill the broker process (kill -9)
POST   /pause, /resume   pause or resume the broker (`standstill.py`)

A web page in a browser on this machine could also send requests to the control. The control therefore refuses requests
whose Host is a name instead of an IP address. It also refuses requests without the JSON Content-Type, because a page of
another origin cannot send this Content-Type without a preflight.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from oncelog.fail_points.controlled import Fault, TooManyFaults
from oncelog.fail_points.faults import Faults, crash
from oncelog_broker.fail_control.standstill import Standstill
from oncelog_broker.runtime.addresses import is_loopback, may_be_asked_for

logger = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
MAX_BODY_BYTES: Final = 64 * 1024
MAX_WAIT_MS: Final = 60_000
IDLE_SECONDS: Final = 90.0
"""Seconds after which an idle connection is closed; longer than the longest time that a request may wait for a fault to
strike (MAX_WAIT_MS).
"""
MAX_CONNECTIONS: Final = 64
JSON_TYPE: Final = "application/json"


def _commands() -> ModuleType:
    """Return the module `commands`, imported at the first request: it imports all messages of the protocol, and an
    earlier import would delay the start of the broker.
    """

    from oncelog_broker.fail_control import commands

    return commands


class Refused(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Address(NamedTuple):
    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parse HOST:PORT, or PORT, which means loopback; port 0 means any free port. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (colon and not host):
        raise ValueError(f"{text!r} is not [HOST:]PORT")
    return Address(host.strip("[]") or LOOPBACK, int(port))


class HttpControl:
    """The fail control, which listens from `start` until `close`."""

    def __init__(self, faults: Faults, address: Address) -> None:
        self.faults = faults.controlled
        self._address = address
        self._server: _Server | None = None
        self._standstill: Standstill

    def start(self, loop: asyncio.AbstractEventLoop) -> str:
        """Start the threads; `loop` is the event loop that the command `pause` stops. Returns the URL. Raises
        OSError."""
        self._standstill = Standstill(loop)
        server = _Server(self._address, self)
        self._server = server
        threading.Thread(target=server.serve_forever, name="fail control", daemon=True).start()
        host, port = server.server_name, server.server_port
        if not is_loopback(host):
            logger.warning("any client of the fail control can kill this broker", extra={"host": host, "port": port})
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop serving; returns immediately. This method may be called twice, and also without an earlier `start`."""
        server, self._server = self._server, None
        if server is not None:
            self._standstill.close()
            threading.Thread(target=server.end, name="end of fail control", daemon=True).start()

    # --- handlers; `ROUTES` maps method and path, without the number of a fault, to a handler

    def points(self, _: _Question) -> Any:
        return {"points": _commands().catalogue()}

    def list_faults(self, _: _Question) -> Any:
        return {"faults": [_commands().described(fault) for fault in self.faults.all()]}

    def add_fault(self, question: _Question) -> Any:
        try:
            command = _commands().command_of(question.body)
            fault = self.faults.add(
                command.point, command.action, is_after=command.is_after, times=command.times, filters=command.filters
            )
        except (_commands().BadCommand, TooManyFaults) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        return _commands().described(fault)

    def show_fault(self, question: _Question) -> Any:
        fault = self._fault(question)
        wait_ms = min(question.number_of("wait_ms", 0), MAX_WAIT_MS)
        if wait_ms:
            self.faults.until_struck(fault, question.number_of("struck", 1), wait_ms / 1000)
        return _commands().described(fault)

    def remove_fault(self, question: _Question) -> Any:
        fault = self._fault(question)
        self.faults.remove(fault.number)
        return _commands().described(fault)

    def clear_faults(self, _: _Question) -> Any:
        self.faults.clear()
        return {}

    def crash(self, _: _Question) -> Any:
        crash()

    def pause(self, _: _Question) -> Any:
        if not self._standstill.pause():
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "the broker is too busy to pause immediately; it will pause soon"
            )
        return {}

    def resume(self, _: _Question) -> Any:
        self._standstill.resume()
        return {}

    def _fault(self, question: _Question) -> Fault:
        fault = self.faults.get(question.fault)
        if fault is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"unknown fault {question.fault}")
        return fault


class _Question(NamedTuple):
    fault: int
    body: Any
    parameters: dict[str, list[str]]

    def number_of(self, name: str, default: int) -> int:
        text = self.parameters.get(name, [str(default)])[0]
        if not text.isdecimal() or len(text) > 9:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be a number")
        return int(text)


ROUTES: Final[dict[tuple[str, str], Callable[[HttpControl, _Question], Any]]] = {
    ("GET", "/points"): HttpControl.points,
    ("GET", "/faults"): HttpControl.list_faults,
    ("POST", "/faults"): HttpControl.add_fault,
    ("DELETE", "/faults"): HttpControl.clear_faults,
    ("GET", "/faults/"): HttpControl.show_fault,
    ("DELETE", "/faults/"): HttpControl.remove_fault,
    ("POST", "/crash"): HttpControl.crash,
    ("POST", "/pause"): HttpControl.pause,
    ("POST", "/resume"): HttpControl.resume,
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 2 * MAX_CONNECTIONS

    def __init__(self, address: Address, control: HttpControl) -> None:
        self.control = control
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind the socket without HTTPServer's lookup of the host's own name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def end(self) -> None:
        """Stop the server. Stopping takes up to half a second, the polling interval of `serve_forever`."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the exception only at debug level, because a client that closes the connection is no error."""
        logger.debug("fail control", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        try:
            status, answer = HTTPStatus.OK, self._answer()
        except Refused as error:
            status, answer = error.status, {"error": str(error)}
            # Close the connection, because the request body may not have been read, so that its bytes would look like
            # the next request.
            self.close_connection = True
        body = json.dumps(answer, indent=2).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", JSON_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> Any:
        self._check_host()
        url = urlsplit(self.path)
        path, fault = url.path, 0
        if path.startswith("/faults/"):
            number = path.removeprefix("/faults/")
            if not number.isdecimal() or len(number) > 9:
                raise Refused(HTTPStatus.NOT_FOUND, "the id of a fault must be a number")
            path, fault = "/faults/", int(number)
        serve = ROUTES.get((self.command, path))
        if serve is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"{self.command} {path[:100]} is not among {_routes()}")
        body = self._body() if self.command == "POST" else None
        return serve(self.server.control, _Question(fault, body, parse_qs(url.query)))

    def _body(self) -> Any:
        if self.headers.get_content_type() != JSON_TYPE:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type: {JSON_TYPE} is expected")
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is expected")
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes, with their length")
        body = self.rfile.read(int(length))
        try:
            return json.loads(body) if body else None
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None

    def _check_host(self) -> None:
        if is_loopback(self.server.server_name) and not may_be_asked_for(self.headers.get("Host", "")):
            raise Refused(HTTPStatus.FORBIDDEN, "Host must be localhost or an address")

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("fail control: %s", format % args)


def _routes() -> str:
    return ", ".join(f"{method} {path}" for method, path in ROUTES)
