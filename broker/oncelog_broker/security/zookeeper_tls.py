"""TLS to ZooKeeper: maps the settings for ZooKeeper to those of a listener, so that the same code reads key stores and
trust stores.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, TypeVar, cast

from oncelog_broker.config import security_keys, zookeeper_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import ConfigKey, InvalidConfig

T = TypeVar("T")

PREFIX: Final = "zookeeper."
PKCS12_SUFFIXES: Final = (".p12", ".pfx")
_SAME: Final[dict[ConfigKey[Any], ConfigKey[Any]]] = {
    security_keys.SSL_KEYSTORE_LOCATION: zookeeper_keys.ZOOKEEPER_SSL_KEYSTORE_LOCATION,
    security_keys.SSL_KEYSTORE_PASSWORD: zookeeper_keys.ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
    security_keys.SSL_KEY_PASSWORD: zookeeper_keys.ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
    security_keys.SSL_TRUSTSTORE_LOCATION: zookeeper_keys.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION,
    security_keys.SSL_TRUSTSTORE_PASSWORD: zookeeper_keys.ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD,
    security_keys.SSL_CIPHER_SUITES: zookeeper_keys.ZOOKEEPER_SSL_CIPHER_SUITES,
}
"""Maps a listener's key to the ZooKeeper key with the same meaning."""


def tls_to_zookeeper(config: BrokerConfig) -> Callable[[], ssl.SSLContext] | None:
    """Return a function that creates the context of the next connection and may be called in any thread; None if TLS is
    off. Raises InvalidConfig."""
    if not config[zookeeper_keys.ZOOKEEPER_SSL_CLIENT_ENABLE]:
        return None
    from oncelog_broker.security.tls.contexts import ClientContext  # most brokers need no TLS, and start without it

    return ClientContext(_Settings(config)).current


class _Settings:
    """The `zookeeper.ssl.` settings as `TlsSettings`. Raises InvalidConfig."""

    def __init__(self, config: BrokerConfig) -> None:
        self.listener = "ZooKeeper"
        self._config = config
        self._types: dict[ConfigKey[Any], str] = {
            security_keys.SSL_KEYSTORE_TYPE: self._type(
                zookeeper_keys.ZOOKEEPER_SSL_KEYSTORE_TYPE, zookeeper_keys.ZOOKEEPER_SSL_KEYSTORE_LOCATION
            ),
            security_keys.SSL_TRUSTSTORE_TYPE: self._type(
                zookeeper_keys.ZOOKEEPER_SSL_TRUSTSTORE_TYPE, zookeeper_keys.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION
            ),
        }

    def name_of(self, key: ConfigKey[Any]) -> str:
        return _SAME[key].name if key in _SAME else PREFIX + key.name

    def __getitem__(self, key: ConfigKey[T]) -> T:
        return cast(T, self._value(key))

    def _value(self, key: ConfigKey[Any]) -> object:
        config = self._config
        if key in _SAME:
            return config[_SAME[key]]
        if key in self._types:
            return self._types[key]
        if key is security_keys.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM:
            return config[zookeeper_keys.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM].lower()
        if key is security_keys.SSL_ENABLED_PROTOCOLS:
            newest = config[zookeeper_keys.ZOOKEEPER_SSL_PROTOCOL]
            enabled = config[zookeeper_keys.ZOOKEEPER_SSL_ENABLED_PROTOCOLS]
            return tuple(version for version in enabled if version <= newest)
        return key.default  # settings that ZooKeeper's clients do not have, such as inline keys, keep their defaults

    def _type(self, key: ConfigKey[str | None], location_key: ConfigKey[str | None]) -> str:
        location = self._config[location_key]
        suffix = "" if location is None else PurePath(location).suffix.lower()
        named = self._config[key]
        if named is None and suffix == ".jks":
            raise InvalidConfig(
                f"{location_key.name}={location}: JKS is not served; keytool -importkeystore -deststoretype PKCS12 "
                "converts one"
            )
        return named or ("PKCS12" if suffix in PKCS12_SUFFIXES else "PEM")
