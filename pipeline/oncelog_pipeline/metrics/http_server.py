"""Serves /metrics over HTTP, in threads of the driver, to a few clients at a time.

The server has no login and no encryption, so it listens on loopback by default. On loopback the server accepts only
requests whose `Host` is localhost or an IP address. Without this check, a web page in a browser on this machine could
read the metrics through a host name that resolves to loopback (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socket import SO_REUSEADDR, SOL_SOCKET
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

MAX_CONNECTIONS: Final = 8
"""How many clients are served simultaneously; further connections are closed."""
EXCHANGE_SECONDS: Final = 30.0
"""How long a request and its response may take together, in seconds. After that time the connection is closed, because
a client that sends one byte now and then could otherwise keep it open for ever.
"""
LOCALHOST: Final = "localhost"

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    timeout = EXCHANGE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        pass


class MetricsHttpServer(ThreadingMixIn, WSGIServer):
    """Listens from construction on; `start` begins to serve requests. The constructor raises OSError if the address
    cannot be bound.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, collector: Collector) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        registry = CollectorRegistry()
        registry.register(collector)
        self.set_app(_metrics_only(make_wsgi_app(registry), is_loopback=_is_loopback(host)))

    def start(self) -> None:
        """Serve requests in a daemon thread until `close` is called."""
        threading.Thread(target=self.serve_forever, name="oncelog-query-metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening and serving, after requests in progress have got their responses."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        # HTTPServer.server_bind looks up the host name in the DNS, which may take seconds; WSGI accepts any name.
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread was started that would release the semaphore
                self._free.release()
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(EXCHANGE_SECONDS, _hang_up, [request])
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that has disconnected, or is too slow, is no error of the driver."""


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # the client may have closed the connection just now
        connection.shutdown(socket.SHUT_RDWR)


def _metrics_only(metrics: WsgiApp, *, is_loopback: bool) -> WsgiApp:
    def answered(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        refusal = None
        if is_loopback and not _is_local(environ.get("HTTP_HOST", "")):
            refusal = "421 Misdirected Request"
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            refusal = "405 Method Not Allowed"
        elif environ["PATH_INFO"] != "/metrics":
            refusal = "404 Not Found"
        if refusal is None:
            return metrics(environ, start_response)
        start_response(refusal, [("Content-Type", "text/plain")])
        return [f"{refusal}: metrics of Spark queries are at /metrics\n".encode()]

    return answered


def _is_local(host: str) -> bool:
    """Whether a Host header names localhost or an IP address."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    try:
        return name == LOCALHOST or bool(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOCALHOST
