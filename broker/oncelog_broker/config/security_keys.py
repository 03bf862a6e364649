"""The authentication keys: TLS, SASL and the security between brokers.

The keys in `OF_LISTENERS` may be set for one listener, `listener.name.<name>.<key>`, those in `OF_MECHANISMS` also for
one of its mechanisms, `listener.name.<name>.<mechanism>.<key>` (`overrides`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog_broker.config.declared import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    each_of,
    not_empty,
    one_of,
)
from oncelog_broker.config.quota_keys import MAX_CONNECTION_CREATION_RATE
from oncelog_broker.config.secret import Secret

BOOLEAN, STRING, INT, LONG, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
HIGH, LOW = Importance.HIGH, Importance.LOW
STORE_TYPES: Final = ("PEM", "PKCS12")
PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

# --- Between brokers

SECURITY_INTER_BROKER_PROTOCOL = ConfigKey[str | None](
    "security.inter.broker.protocol",
    STRING,
    None,
    "The listener that the other brokers connect to, by its protocol, whose name it has. Only one of this and "
    "inter.broker.listener.name may be set. Kafka's default is PLAINTEXT.",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = ConfigKey[str](
    "sasl.mechanism.inter.broker.protocol",
    STRING,
    SCRAM_SHA_512,
    "How this broker logs in to others: PLAIN or SCRAM, with the username and password of the listener's "
    "sasl.jaas.config for that mechanism. Kafka's default is GSSAPI.",
    one_of(PLAIN, SCRAM_SHA_256, SCRAM_SHA_512),
)

# --- TLS

SSL_KEYSTORE_TYPE = ConfigKey[str](
    "ssl.keystore.type",
    STRING,
    "PEM",
    "Kafka's default is JKS, which is not served: keytool -importkeystore -deststoretype PKCS12 converts one.",
    one_of(*STORE_TYPES),
)
SSL_KEYSTORE_LOCATION = ConfigKey[str | None](
    "ssl.keystore.location",
    STRING,
    None,
    "The private key and its certificate chain. Read again when the file changes.",
    not_empty(),
    HIGH,
)
SSL_KEYSTORE_PASSWORD = ConfigKey[Secret | None](
    "ssl.keystore.password", PASSWORD, None, "Of a PKCS12 key store.", importance=HIGH
)
SSL_KEY_PASSWORD = ConfigKey[Secret | None](
    "ssl.key.password", PASSWORD, None, "Of the private key in a PEM key store, if it is encrypted.", importance=HIGH
)
SSL_KEYSTORE_KEY = ConfigKey[Secret | None](
    "ssl.keystore.key", PASSWORD, None, "The private key itself, as PEM (PKCS#8).", importance=HIGH
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = ConfigKey[Secret | None](
    "ssl.keystore.certificate.chain",
    PASSWORD,
    None,
    "The certificate chain itself, as PEM, with ssl.keystore.key.",
    importance=HIGH,
)
SSL_TRUSTSTORE_TYPE = ConfigKey[str](
    "ssl.truststore.type", STRING, "PEM", "Kafka's default is JKS, which is not served.", one_of(*STORE_TYPES)
)
SSL_TRUSTSTORE_LOCATION = ConfigKey[str | None](
    "ssl.truststore.location",
    STRING,
    None,
    "The certificates of the authorities that are trusted. Read again when the file changes. Not set, with nothing in "
    "ssl.truststore.certificates: those of the system for this broker's own connections. With ssl.client.auth it must "
    "be set, as the system trusts everybody who has a domain.",
    not_empty(),
    HIGH,
)
SSL_TRUSTSTORE_PASSWORD = ConfigKey[Secret | None](
    "ssl.truststore.password", PASSWORD, None, "Of a PKCS12 trust store.", importance=HIGH
)
SSL_TRUSTSTORE_CERTIFICATES = ConfigKey[Secret | None](
    "ssl.truststore.certificates", PASSWORD, None, "The trusted certificates themselves, as PEM.", importance=HIGH
)
SSL_CLIENT_AUTH = ConfigKey[str](
    "ssl.client.auth",
    STRING,
    "none",
    "Whether clients show a certificate: none, requested (whoever shows none is User:ANONYMOUS) or required.",
    one_of("none", "requested", "required"),
)
SSL_ENABLED_PROTOCOLS = ConfigKey[tuple[str, ...]](
    "ssl.enabled.protocols",
    LIST,
    ("TLSv1.2", "TLSv1.3"),
    "Older versions of TLS are not served.",
    each_of("TLSv1.2", "TLSv1.3"),
)
SSL_CIPHER_SUITES = ConfigKey[tuple[str, ...]](
    "ssl.cipher.suites",
    LIST,
    (),
    "Cipher suites of TLSv1.2, with Java's names or OpenSSL's. Empty: the good ones. Those of TLSv1.3 are always on.",
    importance=LOW,
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = ConfigKey[str](
    "ssl.endpoint.identification.algorithm",
    STRING,
    "https",
    "Whether this broker checks the host names in other brokers' certificates: https, or empty for no.",
    one_of("https", ""),
    LOW,
)
SSL_PRINCIPAL_MAPPING_RULES = ConfigKey[str](
    "ssl.principal.mapping.rules",
    STRING,
    "DEFAULT",
    "From the distinguished name in a client's certificate to the name of the principal: the first of these that "
    "matches. RULE:pattern/replacement/[LU], or DEFAULT for the name as it is.",
    importance=LOW,
)

# --- SASL

SASL_ENABLED_MECHANISMS = ConfigKey[tuple[str, ...]](
    "sasl.enabled.mechanisms",
    LIST,
    (),
    "How clients of a SASL listener log in. Kafka's default is GSSAPI, which is not served.",
    each_of(*MECHANISMS),
    HIGH,
)
SASL_JAAS_CONFIG = ConfigKey[Secret | None](
    "sasl.jaas.config",
    PASSWORD,
    None,
    'In Kafka\'s form, for one mechanism of a listener. PLAIN: user_<name>="<password>" for each user; username and '
    "password are what this broker logs in with to others.",
)
SASL_SERVER_MAX_RECEIVE_SIZE = ConfigKey[int](
    "sasl.server.max.receive.size",
    INT,
    524_288,
    "The largest request before a connection is authenticated.",
    at_least(64),
)
CONNECTIONS_MAX_REAUTH_MS = ConfigKey[int](
    "connections.max.reauth.ms",
    LONG,
    0,
    "After this time a client must log in again on the same connection (KIP-368), or it is cut off with its next "
    "request; 0: never.",
    at_least(0),
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = ConfigKey[int](
    "connection.failed.authentication.delay.ms",
    INT,
    100,
    "How long the answer to a login that failed waits.",
    at_least(0),
    LOW,
)
SCRAM_FIRST_USERS = ConfigKey[Secret | None](
    "sasl.scram.first.users",
    PASSWORD,
    None,
    "name=password,...: users that are made at the start where there are none of that name, so that somebody can log "
    "in for the first time. Whoever exists stays as they are. No key of Kafka's.",
)
OAUTHBEARER_JWKS_ENDPOINT_URL = ConfigKey[str | None](
    "sasl.oauthbearer.jwks.endpoint.url",
    STRING,
    None,
    "Where the keys are that tokens are signed with, an https or file URL; http for loopback addresses alone.",
    not_empty(),
)
OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = ConfigKey[int](
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    LONG,
    3_600_000,
    "How often the keys are read again; they also are when a token names one that is not known.",
    at_least(1000),
    LOW,
)
OAUTHBEARER_EXPECTED_AUDIENCE = ConfigKey[tuple[str, ...]](
    "sasl.oauthbearer.expected.audience", LIST, (), "Of whom a token's aud must name one. Empty: not looked at."
)
OAUTHBEARER_EXPECTED_ISSUER = ConfigKey[str | None](
    "sasl.oauthbearer.expected.issuer", STRING, None, "What a token's iss must be. Not set: not looked at."
)
OAUTHBEARER_CLOCK_SKEW_SECONDS = ConfigKey[int](
    "sasl.oauthbearer.clock.skew.seconds", INT, 30, "By how much clocks may differ.", at_least(0), LOW
)
OAUTHBEARER_SUB_CLAIM_NAME = ConfigKey[str](
    "sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim with the principal's name.", not_empty(), LOW
)
OAUTHBEARER_ALLOW_UNSECURED = ConfigKey[bool](
    "sasl.oauthbearer.allow.unsecured.tokens",
    BOOLEAN,
    False,
    "Whether tokens without a signature are believed: for tests alone, as anybody can be anybody. Kafka does so where "
    "nothing else is configured; this is no key of Kafka's.",
    importance=LOW,
)

OF_MECHANISMS: Final[Mapping[str, ConfigKey[Any]]] = {
    key.name: key
    for key in (
        SASL_JAAS_CONFIG,
        CONNECTIONS_MAX_REAUTH_MS,
        OAUTHBEARER_JWKS_ENDPOINT_URL,
        OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
        OAUTHBEARER_EXPECTED_AUDIENCE,
        OAUTHBEARER_EXPECTED_ISSUER,
        OAUTHBEARER_CLOCK_SKEW_SECONDS,
        OAUTHBEARER_SUB_CLAIM_NAME,
        OAUTHBEARER_ALLOW_UNSECURED,
    )
}
"""The keys that may be set for one mechanism of one listener."""

OF_LISTENERS: Final[Mapping[str, ConfigKey[Any]]] = {
    **OF_MECHANISMS,
    **{
        name: key
        for name, key in ((value.name, value) for value in list(globals().values()) if isinstance(value, ConfigKey))
        if name.startswith("ssl.")
    },
    **{
        key.name: key
        for key in (
            MAX_CONNECTION_CREATION_RATE,
            SASL_ENABLED_MECHANISMS,
            SASL_SERVER_MAX_RECEIVE_SIZE,
            CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
        )
    },
}
"""The keys that may be set for one listener."""
