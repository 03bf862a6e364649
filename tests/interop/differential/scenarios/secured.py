"""Compares the responses to clients before their login, and to a user without rights. In these scenarios, both compared
brokers (sides) must be of the class `LoggedIn`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.integration.cases.authorization_cases import ABSENT, CASES, Case, Names
from tests.interop.differential.logged_in import PASSWORD, USER, LoggedIn
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import NODE_ID, Side

from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey

RIGHT, WRONG = f"\0{USER}\0{PASSWORD}".encode(), f"\0{USER}\0guessed".encode()
TOKENS = {
    "right": RIGHT,
    "as oneself": f"{USER}".encode() + RIGHT,
    "as somebody else": b"bob" + RIGHT,
    "wrong": WRONG,
    "nobody": b"\0bob\0guessed",
    "without a user": b"\0\0guessed",
    "without a password": b"\0alice\0",
    "of two parts": b"alice\0secret",
    "of four parts": RIGHT + b"\0more",
    "empty": b"",
    "no text": b"\xff\xfe",
}
BEFORE_LOGIN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
BIG = 600_000
TIMEOUT_MS = 30_000


@scenario
def handshakes(side: Side) -> None:
    for version in (0, 1):
        for mechanism in ("PLAIN", "plain", "SCRAM-SHA-256", "GSSAPI", "CRAM-MD5", ""):
            name = f"stranger {version} {mechanism}"
            asked = {"mechanism": mechanism}
            side.ask(ApiKey.SASL_HANDSHAKE, version, asked, f"handshake {mechanism}", connection=name)
            side.ask(ApiKey.SASL_HANDSHAKE, version, asked, f"again {mechanism}", connection=name)


@scenario
def versions_first(side: Side) -> None:
    for version in range(5):
        name = f"stranger {version}"
        asked = {"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {}
        side.send(ApiKey.API_VERSIONS, version, asked, name)
        side.note(f"versions v{version}", side._connection(name).receive().error_code)
        side.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, "after that", connection=name)
        side.ask(ApiKey.API_VERSIONS, version, asked, "after the handshake", connection=name)


@scenario
def tokens(side: Side) -> None:
    for version in (0, 1, 2):
        for label, token in TOKENS.items():
            name = f"stranger {version} {label}"
            side.get(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, connection=name)
            side.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token}, label, connection=name)
            side.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": RIGHT}, f"{label}, then right", connection=name)


@scenario
def tokens_that_are_no_requests(side: Side) -> None:
    for label, token in TOKENS.items():
        name = f"stranger {label}"
        side.get(ApiKey.SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}, connection=name)
        side.token(token, label, name)


@scenario
def out_of_order(side: Side) -> None:
    for version in (0, 1, 2):
        side.ask(
            ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": RIGHT}, "no handshake", connection=f"stranger {version}"
        )
    handshake = {"mechanism": "PLAIN"}
    for version in (0, 1):
        side.get(ApiKey.SASL_HANDSHAKE, version, handshake, connection=f"stranger handshake {version}")
        name = f"stranger handshake {version}"
        side.ask(ApiKey.METADATA, 9, {"topics": []}, "between handshake and token", connection=name)
    name = "stranger again"
    side.get(ApiKey.SASL_HANDSHAKE, 1, handshake, connection=name)
    side.get(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": RIGHT}, connection=name)
    side.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": RIGHT}, "a second token", connection=name)
    for version in (0, 1):
        name = f"once more {version}"
        side.ask(ApiKey.SASL_HANDSHAKE, version, handshake, "handshake again", connection=name)
        side.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": WRONG}, "wrong this time", connection=name)


@scenario
def requests_of_strangers(side: Side) -> None:
    """Send a request of each API without a login; no request gets a response."""
    for served in SERVED.values():
        if served.key not in BEFORE_LOGIN and not served.is_for_brokers:
            side.raw_answer(served.key, served.versions.low, bytes(64), f"{served.key.message_name} of a stranger")


@scenario
def frames_of_strangers(side: Side) -> None:
    for label, size in (("negative", -1), ("too big", 200 << 20), ("big", BIG)):
        side.raw(size.to_bytes(4, "big", signed=True) + bytes(1000 if size < BIG else BIG), label, framed=False)
    side.raw(b"GET / HTTP/1.1\r\n\r\n", "HTTP", framed=False)
    side.raw(bytes(3), "no header")
    side.raw(b"\x16\x03\x01\x02\x00\x01" + bytes(100), "TLS", framed=False)


@scenario
def refusals(side: Side) -> None:
    """Compare the refusals for each row of the table of authorizations, in each version, with existing and missing
    resources.
    """
    assert isinstance(side, LoggedIn)
    for names, label in ((side.secret(), "there is"), (ABSENT, "there is not")):
        for case in CASES:
            _ask_all_versions(side, case, names, label)


def _ask_all_versions(side: Side, case: Case, names: Names, label: str) -> None:
    api = case.rule.api
    if SERVED[api].is_for_brokers:
        return
    for version in case.versions:
        side.send(api, version, _made(case, version, names))
        side.receive(api, version, f"{case.rule.operation.shown} {case.rule.resource.shown} {case.rule.when}, {label}")


def _made(case: Case, version: int, names: Names) -> Any:
    """Return the request with the id of an existing broker and with a timeout that gives the broker time to respond."""
    if "resource_name" in case.extra and case.extra["resource_name"] == "1":
        case = replace(case, extra={**case.extra, "resource_name": str(NODE_ID)})
    made = case.request(version, names)
    return replace(made, timeout_ms=TIMEOUT_MS) if hasattr(made, "timeout_ms") else made
