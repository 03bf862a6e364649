"""The HTTP server that exports metrics of Spark queries at /metrics: which clients it admits, and how many at the same
time.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from socketserver import ThreadingMixIn

import httpx
import pytest

from oncelog_pipeline.metrics import http_server
from oncelog_pipeline.metrics.http_server import MetricsHttpServer
from oncelog_pipeline.metrics.query_metrics import QueryMetrics


@pytest.fixture
def server() -> Iterator[MetricsHttpServer]:
    metrics = QueryMetrics()
    metrics.started("q1", "orders")
    server = MetricsHttpServer("127.0.0.1", 0, metrics)
    server.start()
    yield server
    server.close()


def ask(server: MetricsHttpServer, path: str = "/metrics", *, method: str = "GET", **headers: str) -> httpx.Response:
    return httpx.request(method, f"http://127.0.0.1:{server.server_port}{path}", headers=headers)


def test_metrics_are_answered(server: MetricsHttpServer) -> None:
    answer = ask(server)
    assert answer.status_code == 200
    assert 'oncelog_query_running{query="orders",query_id="q1"} 1.0' in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:9405", "127.0.0.1:9405", "[::1]:9405", "[::1]"])
def test_the_loopback_is_asked_by_its_names(server: MetricsHttpServer, host: str) -> None:
    assert ask(server, Host=host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9405", "localhost.evil.example", ""])
def test_a_page_with_a_name_of_its_own_gets_nothing(server: MetricsHttpServer, host: str) -> None:
    answer = ask(server, Host=host)
    assert answer.status_code == 421
    assert "oncelog_query" not in answer.text


def test_other_paths_and_methods_are_refused(server: MetricsHttpServer) -> None:
    assert ask(server, "/").status_code == 404
    assert ask(server, method="POST").status_code == 405


def test_clients_beyond_the_limit_are_sent_away_and_come_again(server: MetricsHttpServer) -> None:
    address = ("127.0.0.1", server.server_port)
    waiting = [socket.create_connection(address) for _ in range(http_server.MAX_CONNECTIONS)]
    with socket.create_connection(address) as one_more:
        assert one_more.recv(1) == b"", "its connection is closed"
    for each in waiting:
        each.close()
    while True:  # repeat until one of the threads has noticed that its client is gone
        try:
            assert ask(server).status_code == 200
        except httpx.TransportError:
            continue
        break


def test_connections_for_which_there_was_no_thread_do_not_count(
    server: MetricsHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as changed:
        changed.setattr(ThreadingMixIn, "process_request", fails)
        for _ in range(http_server.MAX_CONNECTIONS + 1):
            with pytest.raises(httpx.TransportError):
                ask(server)
    assert ask(server).status_code == 200


def test_a_client_has_so_long_however_often_it_sends_something(
    server: MetricsHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "EXCHANGE_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as slow:
        slow.sendall(b"GET /metrics HTTP/1.0\r\nHost: loc")
        assert slow.recv(1) == b"", "its connection is closed"


def test_an_address_in_use_is_an_error_at_once(server: MetricsHttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsHttpServer("127.0.0.1", server.server_port, QueryMetrics())
