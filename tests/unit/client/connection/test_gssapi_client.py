"""SASL GSSAPI against a replacement for the library, whose security context takes two steps; no KDC is contacted."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from oncelog import Producer
from oncelog.config import ConsumerConfig, load
from oncelog.connection.gssapi_client import GssapiClient
from oncelog.connection.login import log_in
from oncelog.connection.security import security_of
from oncelog.connection.versions import VersionTable
from oncelog.errors import AuthenticationFailed, ConfigError
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsResponse
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class GSSError(Exception):
    pass


class Context:
    """A security context that is complete when it has seen the broker's token. The context's `wrap` puts `sealed:`
    before the message.
    """

    def __init__(self, name: str, usage: str) -> None:
        self.name = name
        assert usage == "initiate"
        self.complete = False

    def step(self, token: bytes | None) -> bytes | None:
        if self.name == "kafka@nowhere":
            raise GSSError("Server not found in Kerberos database")
        if token is None:
            return f"ticket for {self.name}".encode()
        assert token == b"proof of the broker"
        self.complete = True
        return None

    def unwrap(self, token: bytes) -> Any:
        if not token.startswith(b"sealed:"):
            raise GSSError("a token had an invalid MIC")
        return SimpleNamespace(message=token.removeprefix(b"sealed:"))

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"sealed:" + message)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("gssapi")
    module.exceptions = SimpleNamespace(GSSError=GSSError)
    module.NameType = SimpleNamespace(hostbased_service="service")
    module.Name = lambda text, kind: text
    module.SecurityContext = Context
    monkeypatch.setitem(sys.modules, "gssapi", module)


def versions() -> VersionTable:
    served = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1)
        for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    ]
    return VersionTable(ApiVersionsResponse(error_code=0, api_keys=served))


@pytest.mark.usefixtures("library")
async def test_a_login_names_the_brokers_principal_and_takes_no_security_layer() -> None:
    answers = [b"proof of the broker", b"sealed:\x07\0\xff\xff", b""]
    sent: list[bytes] = []

    async def ask(request: Any, version: int) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            assert request.mechanism == "GSSAPI"
            return SaslHandshakeResponse(error_code=0, mechanisms=["GSSAPI"])
        sent.append(bytes(request.auth_bytes))
        return SaslAuthenticateResponse(error_code=0, auth_bytes=answers[len(sent) - 1], session_lifetime_ms=60_000)

    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "log"}
    login = security_of(load(ConsumerConfig, "broker-1:9092", options)).login
    assert login is not None
    assert await log_in(ask, versions(), login, "broker-1") == 60_000
    assert sent == [b"ticket for log@broker-1", b"", b"sealed:\x01\0\0\0"]


@pytest.mark.usefixtures("library")
def test_a_broker_that_wants_a_security_layer_or_proves_nothing_is_refused() -> None:
    for offer in (b"sealed:\x06\0\xff\xff", b"sealed:\x01", b"unsealed"):
        client = GssapiClient("broker-1", "kafka")
        client.first()
        assert client.answer(b"proof of the broker") == b""
        with pytest.raises(AuthenticationFailed, match="Kerberos"):
            client.answer(offer)


@pytest.mark.usefixtures("library")
def test_a_principal_that_does_not_exist_is_an_authentication_error() -> None:
    with pytest.raises(AuthenticationFailed, match="Kerberos: Server not found"):
        GssapiClient("nowhere", "kafka").first()


async def test_without_the_library_the_error_says_what_to_install(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"oncelog\[gssapi\]"):
        GssapiClient("broker-1", "kafka")
    Producer(fake_broker.address, security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI")
