"""The keys for authentication: TLS, SASL, and the security between brokers.

The keys in `OF_MECHANISMS` may also be set for one of the listener's mechanisms, as
`listener.name.<name>.<mechanism>.<key>` (`overrides`).
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
    "The listener that the other brokers connect to, given by its security protocol, as the name of that listener. "
    "Only one of this and inter.broker.listener.name may be set. Kafka's default is PLAINTEXT.",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = ConfigKey[str](
    "sasl.mechanism.inter.broker.protocol",
    STRING,
    SCRAM_SHA_512,
    "The mechanism with which this broker logs in to other brokers: PLAIN or SCRAM, with the username and "
    "password of the listener's sasl.jaas.config for that mechanism. Kafka's default is GSSAPI.",
    one_of(PLAIN, SCRAM_SHA_256, SCRAM_SHA_512),
)

# --- TLS

SSL_KEYSTORE_TYPE = ConfigKey[str](
    "ssl.keystore.type",
    STRING,
    "PEM",
    "PEM or PKCS12. Kafka's default is JKS, which is not supported: keytool -importkeystore -deststoretype PKCS12 "
    "converts one.",
    one_of(*STORE_TYPES),
)
SSL_KEYSTORE_LOCATION = ConfigKey[str | None](
    "ssl.keystore.location",
    STRING,
    None,
    "The file with the private key and its certificate chain. The broker reloads the file when it changes.",
    not_empty(),
    HIGH,
)
SSL_KEYSTORE_PASSWORD = ConfigKey[Secret | None](
    "ssl.keystore.password", PASSWORD, None, "The password of a PKCS12 key store.", importance=HIGH
)
SSL_KEY_PASSWORD = ConfigKey[Secret | None](
    "ssl.key.password",
    PASSWORD,
    None,
    "The password of the private key in a PEM key store, if it is encrypted.",
    importance=HIGH,
)
SSL_KEYSTORE_KEY = ConfigKey[Secret | None](
    "ssl.keystore.key", PASSWORD, None, "The private key as PEM text (PKCS#8), instead of a file.", importance=HIGH
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = ConfigKey[Secret | None](
    "ssl.keystore.certificate.chain",
    PASSWORD,
    None,
    "The certificate chain of ssl.keystore.key as PEM text.",
    importance=HIGH,
)
SSL_TRUSTSTORE_TYPE = ConfigKey[str](
    "ssl.truststore.type",
    STRING,
    "PEM",
    "PEM or PKCS12. Kafka's default is JKS, which is not supported.",
    one_of(*STORE_TYPES),
)
SSL_TRUSTSTORE_LOCATION = ConfigKey[str | None](
    "ssl.truststore.location",
    STRING,
    None,
    "The file with the certificates of trusted authorities. The broker reloads the file when it changes. If "
    "neither this key nor ssl.truststore.certificates is set, this broker's own connections trust the system's "
    "authorities. With ssl.client.auth a trust store must be set, because the system's authorities certify "
    "anybody with a domain.",
    not_empty(),
    HIGH,
)
SSL_TRUSTSTORE_PASSWORD = ConfigKey[Secret | None](
    "ssl.truststore.password", PASSWORD, None, "The password of a PKCS12 trust store.", importance=HIGH
)
SSL_TRUSTSTORE_CERTIFICATES = ConfigKey[Secret | None](
    "ssl.truststore.certificates",
    PASSWORD,
    None,
    "The certificates of trusted authorities as PEM text, instead of a file.",
    importance=HIGH,
)
SSL_CLIENT_AUTH = ConfigKey[str](
    "ssl.client.auth",
    STRING,
    "none",
    "Whether clients must present a certificate: none, requested (a client without one is User:ANONYMOUS) or required.",
    one_of("none", "requested", "required"),
)
SSL_ENABLED_PROTOCOLS = ConfigKey[tuple[str, ...]](
    "ssl.enabled.protocols",
    LIST,
    ("TLSv1.2", "TLSv1.3"),
    "The enabled versions of TLS. Older versions are not supported.",
    each_of("TLSv1.2", "TLSv1.3"),
)
SSL_CIPHER_SUITES = ConfigKey[tuple[str, ...]](
    "ssl.cipher.suites",
    LIST,
    (),
    "Cipher suites of TLSv1.2, with Java's or OpenSSL's names. If empty, OpenSSL's secure defaults. The cipher "
    "suites of TLSv1.3 are always enabled.",
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
    "Rules that map the distinguished name in a client's certificate to the principal's name; the first match "
    "applies. RULE:pattern/replacement/[LU], or DEFAULT for the name unchanged.",
    importance=LOW,
)

# --- SASL

SASL_ENABLED_MECHANISMS = ConfigKey[tuple[str, ...]](
    "sasl.enabled.mechanisms",
    LIST,
    (),
    "The SASL mechanisms that clients may use. Kafka's default is GSSAPI, which is not supported.",
    each_of(*MECHANISMS),
    HIGH,
)
SASL_JAAS_CONFIG = ConfigKey[Secret | None](
    "sasl.jaas.config",
    PASSWORD,
    None,
    'In Kafka\'s form, for one mechanism of a listener. PLAIN: user_<name>="<password>" for each user; username and '
    "password are this broker's own login to other brokers.",
)
SASL_SERVER_MAX_RECEIVE_SIZE = ConfigKey[int](
    "sasl.server.max.receive.size",
    INT,
    524_288,
    "The largest size of a request on a connection that is not authenticated yet, in bytes.",
    at_least(64),
)
CONNECTIONS_MAX_REAUTH_MS = ConfigKey[int](
    "connections.max.reauth.ms",
    LONG,
    0,
    "After this time a client must authenticate again on the same connection (KIP-368); otherwise its next "
    "request closes the connection. 0 means never.",
    at_least(0),
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = ConfigKey[int](
    "connection.failed.authentication.delay.ms",
    INT,
    100,
    "The delay of the response to a failed login.",
    at_least(0),
    LOW,
)
SCRAM_FIRST_USERS = ConfigKey[Secret | None](
    "sasl.scram.first.users",
    PASSWORD,
    None,
    "name=password,...: users created at startup if they do not exist, so that the first login is possible."
    " Existing users stay unchanged. Not a key of Kafka's.",
)
OAUTHBEARER_JWKS_ENDPOINT_URL = ConfigKey[str | None](
    "sasl.oauthbearer.jwks.endpoint.url",
    STRING,
    None,
    "The https or file URL of the keys that verify tokens; http for loopback addresses only.",
    not_empty(),
)
OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = ConfigKey[int](
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    LONG,
    3_600_000,
    "How often the broker reads the keys again. The broker also reads them when a token names an unknown key.",
    at_least(1000),
    LOW,
)
OAUTHBEARER_EXPECTED_AUDIENCE = ConfigKey[tuple[str, ...]](
    "sasl.oauthbearer.expected.audience",
    LIST,
    (),
    "The accepted audiences: a token's aud must contain one of them. If empty, the audience is not checked.",
)
OAUTHBEARER_EXPECTED_ISSUER = ConfigKey[str | None](
    "sasl.oauthbearer.expected.issuer",
    STRING,
    None,
    "The required issuer (iss) of a token. If not set, the issuer is not checked.",
)
OAUTHBEARER_CLOCK_SKEW_SECONDS = ConfigKey[int](
    "sasl.oauthbearer.clock.skew.seconds",
    INT,
    30,
    "The tolerated clock difference when the times of a token are checked, in seconds.",
    at_least(0),
    LOW,
)
OAUTHBEARER_SUB_CLAIM_NAME = ConfigKey[str](
    "sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim with the principal's name.", not_empty(), LOW
)
OAUTHBEARER_ALLOW_UNSECURED = ConfigKey[bool](
    "sasl.oauthbearer.allow.unsecured.tokens",
    BOOLEAN,
    False,
    "Whether unsigned tokens are accepted. For tests only, because unsigned tokens authenticate nobody. Kafka "
    "accepts unsigned tokens if nothing else is configured. Not a key of Kafka's.",
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
