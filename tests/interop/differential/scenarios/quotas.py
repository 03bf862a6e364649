"""Compares quotas of users, client ids and addresses: requests that set quotas, requests that describe quotas by
filters, and refused requests. No client is
throttled here.
"""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entry = tuple[list[dict[str, str | None]], list[dict[str, Any]]]
Component = tuple[str, int, str | None]
RATE, PERCENTAGE, CONNECTIONS = "consumer_byte_rate", "request_percentage", "connection_creation_rate"


def entity(**names: str | None) -> list[dict[str, str | None]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]


def op(key: str, value: float | None) -> dict[str, Any]:
    return {"key": key, "value": value or 0.0, "remove": value is None}


def alter(side: Side, label: str, *entries: Entry, **options: Any) -> None:
    version = options.pop("version", 1)
    asked = {"entries": [{"entity": e, "ops": o} for e, o in entries], "validate_only": False, **options}
    side.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, asked, label)


def describe(side: Side, label: str, *components: Component, strict: bool = False, version: int = 1) -> None:
    named = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": named, "strict": strict}, label)


def until_shown(side: Side, user: str, client_id: str) -> None:
    """Wait until a quota is visible, because Kafka's brokers learn of a new quota only a moment later."""
    components = [
        {"entity_type": "user", "match_type": EXACT, "match": user},
        {"entity_type": "client-id", "match_type": EXACT, "match": client_id},
    ]
    asked = {"components": components, "strict": True}
    side.get(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, asked, until=lambda answer: bool(answer.entries))


@scenario
def entities(side: Side) -> None:
    """Compare for which entities quotas may be set."""
    name = side.own("alice")
    rate = [op(RATE, 5e6)]
    for version in (0, 1):
        alter(side, f"user v{version}", (entity(user=name), rate), version=version)
    alter(side, "tried", (entity(user=side.own("nobody")), rate), validate_only=True)
    alter(side, "nobody", ([], rate))
    alter(side, "empty name", (entity(user=""), rate))
    alter(side, "unknown type", (entity(group=name), rate))
    alter(side, "user twice", (entity(user=name) * 2, rate))
    alter(side, "user and address", (entity(user=name, ip="10.9.9.9"), [op(CONNECTIONS, 5.0)]))
    alter(side, "address by name", (entity(ip="localhost"), [op(CONNECTIONS, 50_000.0)]))
    alter(side, "long name", (entity(user=name + "x" * 300), rate))
    alter(side, "entity twice", (entity(client_id=name), rate), (entity(client_id=name), [op(PERCENTAGE, 1e3)]))


@scenario
def values(side: Side) -> None:
    """Compare which quotas may be set."""
    name = side.own("values")
    for label, change in {
        "unknown key": op("producer_rate", 5.0),
        "of addresses": op(CONNECTIONS, 5.0),
        "nothing": op(RATE, 0.0) | {"remove": False},
        "negative": op(RATE, -5.0),
        "fraction of a byte": op(RATE, 5.5),
        "fraction of a percent": op(PERCENTAGE, 250.5),
        "too much": op(RATE, 1e300),
        "not a number": op(PERCENTAGE, float("nan")),
        "infinite": op(PERCENTAGE, float("inf")),
        "remove what is not there": op("producer_byte_rate", None),
        "remove what does not exist": op("producer_rate", None),
    }.items():
        alter(side, label, (entity(user=name), [change]))
    alter(side, "key twice", (entity(user=name), [op(RATE, 5e6), op(RATE, 6e6)]))
    alter(side, "of an address", (entity(ip="10.9.9.9"), [op(RATE, 5e6)]))


@scenario
def filters(side: Side) -> None:
    """Compare which quotas a filter returns."""
    user, client_id = side.own("u"), side.own("c")
    both = entity(user=user, client_id=client_id)
    alter(side, "user", (entity(user=user), [op(RATE, 5e6)]))
    alter(side, "user and any client", (entity(user=user, client_id=None), [op(RATE, 6e6)]))
    alter(side, "both", (both, [op(RATE, 7e6), op(PERCENTAGE, 350.5)]))
    until_shown(side, user, client_id)
    for version in (0, 1):
        describe(side, f"both v{version}", ("user", EXACT, user), ("client-id", EXACT, client_id), version=version)
    describe(side, "user alone", ("user", EXACT, user), strict=True)
    describe(side, "any client", ("user", EXACT, user), ("client-id", DEFAULT, None))
    describe(side, "no address", ("ip", EXACT, "10.99.99.99"))
    describe(side, "empty type", ("", EXACT, user))
    describe(side, "unknown type", ("group", EXACT, user))
    describe(side, "twice", ("user", EXACT, user), ("user", SPECIFIED, None))
    describe(side, "exactly nobody", ("user", EXACT, None))
    describe(side, "a name of any", ("user", SPECIFIED, user))
    describe(side, "a name of the default", ("user", DEFAULT, user))
    describe(side, "unknown match", ("user", 7, None))
    describe(side, "user and address", ("user", EXACT, user), ("ip", EXACT, "10.9.9.9"))
    alter(side, "removed", (both, [op(RATE, None), op(PERCENTAGE, None)]))
