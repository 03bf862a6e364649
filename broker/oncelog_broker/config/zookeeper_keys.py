"""The broker's ZooKeeper keys. `BROKER_KEYS` in `broker_keys` includes these keys."""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.declared import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    each_of,
    not_empty,
    one_of,
)
from oncelog_broker.config.secret import Secret

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""The TLS versions that may be set, in ascending order."""

ZOOKEEPER_CONNECT = ConfigKey[str | None](
    "zookeeper.connect",
    ConfigType.STRING,
    None,
    "The ZooKeeper servers that store the cluster's metadata: host:port,host:port/chroot. A missing chroot is "
    "created. If not set, the broker is a cluster of one, with its metadata in the first directory of log.dirs.",
    not_empty(),
    Importance.HIGH,
)
ZOOKEEPER_SESSION_TIMEOUT_MS = ConfigKey[int](
    "zookeeper.session.timeout.ms",
    ConfigType.INT,
    18_000,
    "After this time without a heartbeat ZooKeeper ends the broker's session; the servers may grant another timeout. "
    "Use at least four ticks of the servers (tickTime), otherwise a broker may lead for a moment after its session "
    "has ended.",
    at_least(1),
    Importance.HIGH,
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS = ConfigKey[int | None](
    "zookeeper.connection.timeout.ms",
    ConfigType.INT,
    None,
    "How long a starting broker waits for ZooKeeper. If not set, zookeeper.session.timeout.ms.",
    at_least(1),
    Importance.HIGH,
)
BROKER_SESSION_LEASE = ConfigKey[str](
    "broker.session.lease",
    ConfigType.STRING,
    "strict",
    "When a broker without contact to ZooKeeper stops leading. strict: before another broker can have been "
    "elected, which is 0.73 of the session timeout after ZooKeeper's last response to a heartbeat; a longer "
    "outage of ZooKeeper stops the cluster. advisory: when the broker learns that its session has ended, as in "
    "Apache Kafka. Not a key of Kafka's.",
    one_of("strict", "advisory"),
)

# --- How the broker authenticates to ZooKeeper, and which rights other ZooKeeper clients get

ZOOKEEPER_SET_ACL = ConfigKey[bool](
    "zookeeper.set.acl",
    ConfigType.BOOLEAN,
    False,
    "Whether the nodes that a broker creates have ACLs: other ZooKeeper clients may not write these nodes, nor "
    "read the nodes with secrets (/config/users and /config/brokers). This key needs zookeeper.digest.user, or "
    "a zookeeper.ssl.keystore.location that the servers accept as an identity. All brokers need the same "
    "identity.",
    importance=Importance.HIGH,
)
ZOOKEEPER_DIGEST_USER = ConfigKey[str | None](
    "zookeeper.digest.user",
    ConfigType.STRING,
    None,
    "The user name with which brokers authenticate to ZooKeeper (scheme digest), together with "
    "zookeeper.digest.password. Not a key of Kafka's, which uses a JAAS file.",
    not_empty(),
)
ZOOKEEPER_DIGEST_PASSWORD = ConfigKey[Secret | None](
    "zookeeper.digest.password",
    ConfigType.PASSWORD,
    None,
    "The password of zookeeper.digest.user. The password is sent in clear text, so also use TLS. Not a key of Kafka's.",
)

# --- ZooKeeper over TLS

ZOOKEEPER_SSL_CLIENT_ENABLE = ConfigKey[bool](
    "zookeeper.ssl.client.enable",
    ConfigType.BOOLEAN,
    False,
    "Whether zookeeper.connect names ports with TLS (the servers' secureClientPort).",
)
ZOOKEEPER_CLIENT_CNXN_SOCKET = ConfigKey[str | None](
    "zookeeper.clientCnxnSocket",
    ConfigType.STRING,
    None,
    "Ignored. The broker accepts this key because Kafka needs it for TLS.",
    importance=Importance.LOW,
)
ZOOKEEPER_SSL_KEYSTORE_LOCATION = ConfigKey[str | None](
    "zookeeper.ssl.keystore.location",
    ConfigType.STRING,
    None,
    "The file with the client key and certificate for ZooKeeper, if the servers request a certificate. A "
    "changed file is reloaded for the next connection.",
    not_empty(),
)
ZOOKEEPER_SSL_KEYSTORE_PASSWORD = ConfigKey[Secret | None](
    "zookeeper.ssl.keystore.password",
    ConfigType.PASSWORD,
    None,
    "The password of a PKCS12 key store, or of the encrypted key in a PEM key store.",
)
ZOOKEEPER_SSL_KEYSTORE_TYPE = ConfigKey[str | None](
    "zookeeper.ssl.keystore.type",
    ConfigType.STRING,
    None,
    "Not set: PKCS12 if the location ends in .p12 or .pfx, else PEM. JKS is not supported.",
    one_of("PEM", "PKCS12"),
)
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = ConfigKey[str | None](
    "zookeeper.ssl.truststore.location",
    ConfigType.STRING,
    None,
    "The file with the certificates of the authorities trusted for the servers' certificates. If not set, the "
    "system's authorities are trusted.",
    not_empty(),
)
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = ConfigKey[Secret | None](
    "zookeeper.ssl.truststore.password", ConfigType.PASSWORD, None, "The password of a PKCS12 trust store."
)
ZOOKEEPER_SSL_TRUSTSTORE_TYPE = ConfigKey[str | None](
    "zookeeper.ssl.truststore.type",
    ConfigType.STRING,
    None,
    "Not set: PKCS12 if the location ends in .p12 or .pfx, else PEM. JKS is not supported.",
    one_of("PEM", "PKCS12"),
)
ZOOKEEPER_SSL_PROTOCOL = ConfigKey[str](
    "zookeeper.ssl.protocol",
    ConfigType.STRING,
    TLS_VERSIONS[-1],
    "The newest enabled version of TLS. Kafka's default is TLSv1.2.",
    one_of(*TLS_VERSIONS),
    Importance.LOW,
)
ZOOKEEPER_SSL_ENABLED_PROTOCOLS = ConfigKey[tuple[str, ...]](
    "zookeeper.ssl.enabled.protocols",
    ConfigType.LIST,
    TLS_VERSIONS,
    "The enabled versions of TLS, up to zookeeper.ssl.protocol. Kafka's default is that version only.",
    each_of(*TLS_VERSIONS),
    Importance.LOW,
)
ZOOKEEPER_SSL_CIPHER_SUITES = ConfigKey[tuple[str, ...]](
    "zookeeper.ssl.cipher.suites",
    ConfigType.LIST,
    (),
    "Cipher suites of TLSv1.2, with Java's or OpenSSL's names. If empty, OpenSSL's secure defaults. The cipher "
    "suites of TLSv1.3 are always enabled.",
    importance=Importance.LOW,
)
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = ConfigKey[str](
    "zookeeper.ssl.endpoint.identification.algorithm",
    ConfigType.STRING,
    "HTTPS",
    "Whether the host names in the servers' certificates are checked: HTTPS, or empty for no.",
    one_of("HTTPS", "https", ""),
    Importance.LOW,
)
