"""Warnings at startup about settings that give less security than an administrator may expect (E56).

Each such setting has a legitimate use, so no setting prevents the start. Settings without a legitimate use are rejected
when they are read: http:// for token keys (`sasl.jwks`), client certificates without a trust store (`tls.contexts`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from oncelog_broker.config import authorizer_keys, zookeeper_keys
from oncelog_broker.config import security_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.config.listeners import Listener, inter_broker_listener, listeners
from oncelog_broker.runtime.addresses import is_loopback
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

READABLE: Final = {keys.PLAIN: "passwords", keys.OAUTHBEARER: "tokens"}
"""Maps a mechanism to the secret that its clients send in clear text. SCRAM is missing, because its clients send no
secret in clear text.
"""
SCRAM: Final = frozenset({keys.SCRAM_SHA_256, keys.SCRAM_SHA_512})


class Weakness(NamedTuple):
    """One weak or missing setting, with the reason."""

    setting: str
    reason: str
    """Says what the risk of the setting is, and what to do."""
    listener: str | None = None


class StoreFile(NamedTuple):
    """The file of the embedded metadata store."""

    path: str
    is_readable_by_others: bool
    has_users: bool


def weak_settings(config: BrokerConfig, store: StoreFile | None = None) -> Iterator[Weakness]:
    """Yield the weak settings in `config`. `store` is None if the metadata is in ZooKeeper."""
    mechanisms: set[str] = set()
    for listener in listeners(config):
        settings = ListenerConfig(config, listener.name)
        if listener.security_protocol.has_sasl:
            enabled = settings[keys.SASL_ENABLED_MECHANISMS]
            mechanisms.update(enabled)
            for mechanism in enabled:
                yield from _of_mechanism(listener, mechanism, settings.with_mechanism(mechanism))
    peers = inter_broker_listener(config)
    is_clustered = config[zookeeper_keys.ZOOKEEPER_CONNECT] is not None
    if is_clustered and any(each.name == peers and each.security_protocol.has_tls for each in listeners(config)):
        settings = ListenerConfig(config, peers)
        if not settings[keys.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM]:
            yield Weakness(
                settings.name_of(keys.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM),
                "host names in the certificates of other brokers are not checked: everyone with any certificate of a "
                "trusted authority can intercept connections between brokers. Leave it at https",
                peers,
            )
    is_secured = bool(config[authorizer_keys.AUTHORIZER_CLASS_NAME]) or bool(mechanisms & SCRAM)
    if is_clustered and is_secured and not config[zookeeper_keys.ZOOKEEPER_SET_ACL]:
        yield Weakness(
            zookeeper_keys.ZOOKEEPER_SET_ACL.name,
            "everyone who reaches ZooKeeper can read and write users and access rights, and so become a super "
            "user. Set it to true, with an identity (docs/security.md), or let only brokers reach ZooKeeper",
        )
    if store is not None and store.is_readable_by_others and store.has_users:
        yield Weakness(
            "log.dirs",
            f"every user of this machine can read {store.path}, and the keys with which SCRAM logins are verified: "
            f"chmod 600 {store.path}*, and change the passwords of SCRAM users if strangers had access",
        )


def _of_mechanism(listener: Listener, mechanism: str, settings: ListenerConfig) -> Iterator[Weakness]:
    if mechanism in READABLE and not listener.security_protocol.has_tls and not is_loopback(listener.host):
        yield Weakness(
            "listeners",
            f"{mechanism} without TLS: an attacker on the network path can read the {READABLE[mechanism]} of "
            "clients. Give the listener the protocol SASL_SSL, or clients another mechanism",
            listener.name,
        )
    if mechanism == keys.OAUTHBEARER:
        if settings[keys.OAUTHBEARER_ALLOW_UNSECURED]:
            yield Weakness(
                settings.name_of(keys.OAUTHBEARER_ALLOW_UNSECURED),
                "anybody may be anybody: unsecured tokens are allowed. For tests alone",
                listener.name,
            )
        elif not settings[keys.OAUTHBEARER_EXPECTED_AUDIENCE]:
            yield Weakness(
                settings.name_of(keys.OAUTHBEARER_EXPECTED_AUDIENCE),
                "not set: a token that the identity provider has given for any other service is good for this one",
                listener.name,
            )


def warn_of_weak_settings(config: BrokerConfig, store: StoreFile | None) -> None:
    """Log a warning for each weak setting, once at startup."""
    for setting, reason, listener in weak_settings(config, store):
        where = {} if listener is None else {"listener": listener}
        logger.warning(f"weak setting: {reason}", extra={"setting": setting, **where})
