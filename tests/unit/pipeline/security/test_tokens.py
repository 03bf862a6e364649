"""OAUTHBEARER tokens are fetched from an endpoint on this machine, and read from a file."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from oncelog_pipeline.security.tokens import ClientCredentials, NoToken, TokenFile


class Endpoint(HTTPServer):
    """Responds with `status` and `answer`, and stores the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.answer: Any = {"access_token": "first", "expires_in": 100}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append((self.headers["Authorization"], form))
        content = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_token_is_asked_for_with_the_credentials_and_kept_for_most_of_its_life(endpoint: Endpoint) -> None:
    now = 1000.0
    provider = ClientCredentials(endpoint.url, "me", "secret", "kafka", clock=lambda: now)
    assert [provider.token(), provider.token()] == ["first", "first"]
    authorization = "Basic " + base64.b64encode(b"me:secret").decode()
    assert endpoint.asked == [(authorization, {"grant_type": ["client_credentials"], "scope": ["kafka"]})]
    endpoint.answer = {"access_token": "second", "expires_in": 100}
    now += 79
    assert provider.token() == "first"
    now += 2
    assert provider.token() == "second"


def test_a_provider_is_sent_without_its_token(endpoint: Endpoint) -> None:
    provider = ClientCredentials(endpoint.url, "me", "secret")
    provider.token()
    sent = pickle.loads(pickle.dumps(provider))
    assert sent == provider
    sent.token()
    assert len(endpoint.asked) == 2
    assert "secret" not in repr(sent)


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (401, {"error": "invalid_client"}, r"answered 401 to client 'me': .*invalid_client"),
        (302, {}, "answered 302"),
        (200, {"token": "x"}, "something else than a token"),
        (200, ["x"], "something else than a token"),
        (200, {"access_token": ""}, "empty access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_told(endpoint: Endpoint, status: int, answer: object, why: str) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(NoToken, match=why):
        ClientCredentials(endpoint.url, "me", "secret").token()


def test_an_endpoint_that_is_away_is_told(endpoint: Endpoint) -> None:
    with pytest.raises(NoToken, match="cannot be reached"):
        ClientCredentials("http://127.0.0.1:1/", "me", "secret").token()


def test_a_token_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"
    provider = TokenFile(str(path))
    with pytest.raises(NoToken, match="cannot be read"):
        provider.token()
    path.write_text("first\n")
    assert provider.token() == "first"
    path.write_text("second\n")
    assert provider.token() == "second"
    path.write_text("\n")
    with pytest.raises(NoToken, match="is empty"):
        provider.token()
