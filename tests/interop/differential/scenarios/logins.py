"""Compares logins where no login is required, and the management of SCRAM users. No request or response contains a
secret.
"""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey

SALT, SALTED = b"0123456789abcdef", b"\1" * 32
SHA_256, SHA_512, UNKNOWN = 1, 2, 9


@scenario
def where_nobody_has_to(side: Side) -> None:
    """Send SASL requests to a listener without SASL."""
    for version in (0, 1):
        side.ask(ApiKey.SASL_HANDSHAKE, version, {"mechanism": "PLAIN"}, "handshake")
    for version in (0, 1, 2):
        side.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": b"\0a\0b"}, "token")


@scenario
def users(side: Side) -> None:
    """Create, change, describe and delete SCRAM users."""
    name = side.own("alice")

    def alter(label: str, *, upsertions: object = (), deletions: object = ()) -> None:
        asked = {"deletions": list(deletions), "upsertions": list(upsertions)}  # type: ignore[call-overload]
        side.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked, label)

    def upsertion(user: str = name, mechanism: int = SHA_256, iterations: int = 4096) -> dict[str, object]:
        credential = {"mechanism": mechanism, "iterations": iterations, "salt": SALT, "salted_password": SALTED}
        return {"name": user, **credential}

    def describe(label: str, *names: str) -> None:
        asked = {"users": [{"name": each} for each in names]}
        side.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, asked, label)

    describe("before", name)
    alter("made", upsertions=[upsertion()])
    alter("made for another mechanism", upsertions=[upsertion(mechanism=SHA_512, iterations=8192)])
    asked = {"users": [{"name": name}]}
    side.get(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        asked,
        until=lambda answer: len(answer.results[0].credential_infos) == 2,
    )
    describe("described", name)
    describe("twice", name, name)
    alter("nobody", upsertions=[upsertion("")])
    alter("unknown mechanism", upsertions=[upsertion(mechanism=UNKNOWN)])
    alter("too few iterations", upsertions=[upsertion(iterations=100)])
    alter("too many iterations", upsertions=[upsertion(iterations=20_000)])
    alter("changed twice", upsertions=[upsertion()], deletions=[{"name": name, "mechanism": SHA_256}])
    for mechanism in (SHA_256, SHA_512):
        alter(f"deleted {mechanism}", deletions=[{"name": name, "mechanism": mechanism}])
    both = side.own("both")
    alter("both at once", upsertions=[upsertion(both), upsertion(both, mechanism=SHA_512)])
