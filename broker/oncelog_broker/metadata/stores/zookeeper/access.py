"""How a broker connects to its ZooKeeper servers, and with which identity. This module does not depend on kazoo."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from oncelog_broker.config import zookeeper_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.secret import Secret
from oncelog_protocol.light_classes import NamedTuple

MakeContext = Callable[[], ssl.SSLContext]


class Identity(NamedTuple):
    """The broker's credentials for ZooKeeper's authentication scheme `digest`."""

    user: str
    password: Secret


class ZooKeeperAccess(NamedTuple):
    tls: MakeContext | None = None
    """Function that returns the TLS context for the next connection; called in kazoo's thread. A value of None means no
    TLS.
    """
    identity: Identity | None = None
    protects_nodes: bool = False
    """Whether nodes that the broker creates are protected for its identity (`acls`)."""


OPEN_ACCESS = ZooKeeperAccess()
"""Access without authentication and TLS, to nodes that anybody may change."""


def configured_access(config: BrokerConfig, tls: MakeContext | None) -> ZooKeeperAccess:
    """Return the access that `config` specifies. Raises InvalidConfig."""
    user, password = config[keys.ZOOKEEPER_DIGEST_USER], config[keys.ZOOKEEPER_DIGEST_PASSWORD]
    if (user is None) != (password is None):
        raise InvalidConfig(
            f"{keys.ZOOKEEPER_DIGEST_USER.name} and {keys.ZOOKEEPER_DIGEST_PASSWORD.name} go together: only one of "
            "them is set"
        )
    if user is not None and ":" in user:
        raise InvalidConfig(f"{keys.ZOOKEEPER_DIGEST_USER.name}={user}: a name without a colon is needed")
    identity = None if user is None or password is None else Identity(user, password)
    shows_certificate = tls is not None and config[keys.ZOOKEEPER_SSL_KEYSTORE_LOCATION] is not None
    if config[keys.ZOOKEEPER_SET_ACL] and identity is None and not shows_certificate:
        raise InvalidConfig(
            f"{keys.ZOOKEEPER_SET_ACL.name} needs an identity: set {keys.ZOOKEEPER_DIGEST_USER.name} and "
            f"{keys.ZOOKEEPER_DIGEST_PASSWORD.name}, or have {keys.ZOOKEEPER_SSL_CLIENT_ENABLE.name} with "
            f"{keys.ZOOKEEPER_SSL_KEYSTORE_LOCATION.name}"
        )
    return ZooKeeperAccess(tls, identity, config[keys.ZOOKEEPER_SET_ACL])
