"""The login requirements of one listener; the amount of work for a login does not reveal whether a user exists."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listeners import listeners
from oncelog_broker.security.listener_security import ListenerSecurity
from oncelog_broker.security.sasl import credentials, decoys
from oncelog_broker.security.sasl.credentials import ScramCredential, new_credential
from oncelog_broker.security.sasl.decoys import UserConfigs
from oncelog_protocol.scram import ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def security(users: UserConfigs) -> ListenerSecurity:
    config = BrokerConfig.of(SETTINGS)
    (listener,) = listeners(config)
    return ListenerSecurity(listener, config, lambda: users, lambda: bytes(32), is_inter_broker=True)


def test_an_unknown_user_costs_as_much_work_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is counted and not measured: each creation, encoding and parsing of a credential counts."""
    steps: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def count(*args: Any) -> Any:
            steps[name] += 1
            return real(*args)

        monkeypatch.setattr(module, name, count)

    for name in ("from_base64", "to_base64"):
        counted(credentials, name)
    counted(decoys, "_digest")
    counted(credentials, "parse_credential")
    counted(ScramCredential, "format")
    known = new_credential(SHA_256, "pencil", bytes(24), 4096).format()
    config = {"SCRAM-SHA-256": known}
    users: UserConfigs = {"alice": config, "bob": config, "carol": {"SCRAM-SHA-512": known}, "dave": {}}
    listener = security(users)

    def first_answer(user: str) -> Counter[str]:
        exchange = listener.exchange()
        assert exchange is not None
        exchange.handshake("SCRAM-SHA-256", 1)
        steps.clear()
        exchange.authenticate(f"n,,n={user},r=nonce".encode(), 0.0, 0.0)
        return Counter(steps)

    first_answer("alice")  # the properties of decoys are computed only once
    done = {user: first_answer(user) for user in ("alice", "bob", "carol", "dave", "nobody", "stranger")}
    assert done["alice"]["parse_credential"] == 1
    assert all(each == done["alice"] for each in done.values()), done
