"""Brokers that log in to each other over TLS, and to ZooKeeper; any cluster scenario can use them.

If `ONCELOG_TEST_SECURED=1` is set, all clusters of tests/cluster are secured in this way. Clients connect without a
login, because other tests check their login. A test reads ZooKeeper without a login, through the port without TLS.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tests.support.certificates import WEEK, Certificate
from tests.support.zookeeper.fixtures import ZOOKEEPER_PASSWORD, SecuredZooKeeper

IS_ASKED_FOR = os.environ.pop("ONCELOG_TEST_SECURED", "") == "1"
"""The variable is removed from the environment, because brokers treat variables with its prefix as settings."""
PASSWORD = "brokers among themselves"
SECRETS = (PASSWORD, ZOOKEEPER_PASSWORD)
"""Secrets that no log may contain."""

_chroots: dict[str, SecuredZooKeeper] = {}


def known(zookeeper: SecuredZooKeeper) -> str:
    """Return the connect string with which tests observe ZooKeeper; a cluster that is created with this connect string
    uses TLS and logins.
    """
    _chroots[zookeeper.connect_plainly] = zookeeper
    return zookeeper.connect_plainly


@cache
def authority() -> Certificate:
    return Certificate.authority()


def settings_of(directory: Path, zookeeper: str) -> dict[str, str]:
    """Return the settings of each broker of a cluster with this connect string; empty unless the connect string is that
    of a secured cluster.
    """
    secured = _chroots.get(zookeeper)
    if secured is None and not IS_ASKED_FOR:
        return {}
    directory.mkdir(parents=True, exist_ok=True)
    key_store = authority().issue(("CN", "broker"), valid=WEEK).store(directory / "broker.pem")
    return {
        "listener.security.protocol.map": "PEER:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "listener.name.peer.ssl.keystore.location": key_store,
        "listener.name.peer.ssl.truststore.certificates": authority().pem,
        "listener.name.peer.ssl.client.auth": "required",
        "listener.name.peer.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.peer.scram-sha-512.sasl.jaas.config": (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="{PASSWORD}";'
        ),
        "sasl.scram.first.users": f"broker={PASSWORD}",
        **({} if secured is None else secured.settings),
    }
