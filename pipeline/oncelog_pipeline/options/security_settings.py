"""Converts the options kafka.security.*, kafka.ssl.* and kafka.sasl.* to keyword arguments of oncelog's clients.

client_settings.py handles `kafka.security.protocol`, `kafka.sasl.mechanism` and the names of oncelog's own client. This
module converts the remaining options: certificate stores, the check of host names, the JAAS configuration. The module
reads the stores, so a wrong file or password is reported when a query is planned.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.jaas import jaas_module, jaas_options
from oncelog_pipeline.options.reading import OptionError, number
from oncelog_pipeline.security.jks import BadStore
from oncelog_pipeline.security.tls_stores import Store, TlsStores, store_context
from oncelog_pipeline.security.tokens import ClientCredentials, TokenFile

JAAS: Final = "kafka.sasl.jaas.config"
MECHANISM: Final = "kafka.sasl.mechanism"
ENDPOINT: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "kafka.sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "kafka.sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 (the name of the option)
SCOPE: Final = "kafka.sasl.oauthbearer.scope"
CALLBACK: Final = "kafka.sasl.login.callback.handler.class"
CONNECT_TIMEOUT: Final = "kafka.sasl.login.connect.timeout.ms"
READ_TIMEOUT: Final = "kafka.sasl.login.read.timeout.ms"
HOSTNAMES: Final = "kafka.ssl.endpoint.identification.algorithm"
TRUSTSTORE: Final = "kafka.ssl.truststore."
KEYSTORE: Final = "kafka.ssl.keystore."
KEY_PASSWORD: Final = "kafka.ssl.key.password"  # noqa: S105 (the name of the option)

STORE_OPTIONS: Final = (
    *(TRUSTSTORE + each for each in ("location", "password", "type", "certificates")),
    *(KEYSTORE + each for each in ("location", "password", "type", "key", "certificate.chain")),
    KEY_PASSWORD,
)
CREDENTIALS: Final = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET, "scope": SCOPE}
"""Maps each option of OAuthBearerLoginModule to the separate option that Kafka has instead from 4.1 on; the separate
option has precedence.
"""
LOGIN_OPTIONS: Final = (JAAS, ENDPOINT, *CREDENTIALS.values(), CALLBACK, CONNECT_TIMEOUT, READ_TIMEOUT)
KNOWN: Final = (*STORE_OPTIONS, HOSTNAMES, *LOGIN_OPTIONS)
OUR_TLS: Final = tuple(f"kafka.ssl.{each}" for each in ("cafile", "certfile", "keyfile", "password", "check.hostname"))
"""Names under which oncelog's own client takes the same settings, in PEM."""
OUR_LOGIN: Final = ("kafka.sasl.plain.username", "kafka.sasl.plain.password")
TYPES: Final = ("PEM", "PKCS12", "JKS")

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MODULES: Final[Mapping[str, Callable[[str], bool]]] = {
    "PlainLoginModule": lambda mechanism: mechanism == PLAIN,
    "ScramLoginModule": lambda mechanism: mechanism.startswith("SCRAM-"),
    "OAuthBearerLoginModule": lambda mechanism: mechanism == OAUTHBEARER,
}
"""Maps each of Kafka's login modules, by the last part of its name, to a function that returns whether the module can
be used for a SASL mechanism.
"""
KERBEROS: Final = "Krb5LoginModule"
CALLBACK_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
"""Kafka's class that requests tokens with client credentials; it is the only supported login callback handler."""
DEFAULT_TIMEOUT_MS: Final = "10000"


def security_settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the keyword arguments of oncelog's clients for those options in `kafka` that are in KNOWN. Raises
    OptionError."""
    return _tls(kafka) | _login(kafka)


def _tls(kafka: Mapping[str, str]) -> dict[str, Any]:
    checks_hostname = _checks_hostname(kafka)
    given = [name for name in STORE_OPTIONS if name in kafka]
    if not given:
        return {} if checks_hostname is None else {"ssl_check_hostname": checks_hostname}
    if ours := [name for name in OUR_TLS if name in kafka]:
        raise OptionError(f"{given[0]} and {ours[0]} say the same: take Kafka's names alone, or ours")
    stores = TlsStores(_truststore(kafka), _keystore(kafka), kafka.get(KEY_PASSWORD), checks_hostname is not False)
    try:
        return {"ssl_context": store_context(stores)}
    except BadStore as error:
        raise OptionError(str(error)) from error


def _truststore(kafka: Mapping[str, str]) -> Store | None:
    certificates = kafka.get(TRUSTSTORE + "certificates")
    return _store(kafka, TRUSTSTORE, certificates, TRUSTSTORE + "certificates")


def _keystore(kafka: Mapping[str, str]) -> Store | None:
    key, chain = kafka.get(KEYSTORE + "key"), kafka.get(KEYSTORE + "certificate.chain")
    if (key is None) != (chain is None):
        raise OptionError(f"{KEYSTORE}key and {KEYSTORE}certificate.chain: one needs the other")
    pem = None if key is None or chain is None else f"{key}\n{chain}\n"
    return _store(kafka, KEYSTORE, pem, KEYSTORE + "key")


def _store(kafka: Mapping[str, str], prefix: str, pem: str | None, pem_setting: str) -> Store | None:
    location, password = kafka.get(prefix + "location"), kafka.get(prefix + "password")
    kind = kafka.get(prefix + "type", "").upper()
    if kind and kind not in TYPES:
        raise OptionError(f"{prefix}type={kind!r}: must be one of {', '.join(TYPES)}: convert the store with keytool")
    if location is not None and pem is not None:
        raise OptionError(f"{prefix}location and {pem_setting} mean the same: use only one")
    if pem is not None:
        return Store(pem_setting, pem=pem)
    if location is not None:
        return Store(prefix + "location", location, password)
    if password is not None:
        raise OptionError(f"{prefix}password is set, and {prefix}location is missing")
    return None


def _login(kafka: Mapping[str, str]) -> dict[str, Any]:
    if JAAS not in kafka:
        if needless := [name for name in LOGIN_OPTIONS if name in kafka]:
            raise OptionError(f"{needless[0]} is for OAUTHBEARER with {JAAS}, which is missing")
        return {}
    if twice := [name for name in OUR_LOGIN if name in kafka]:
        raise OptionError(f"{JAAS} and {twice[0]} mean the same: use only one")
    try:
        module, options = jaas_module(kafka[JAAS]).rpartition(".")[2], jaas_options(kafka[JAAS])
    except ValueError as error:
        raise OptionError(f"{JAAS}: {error}") from error
    mechanism = kafka.get(MECHANISM, "")
    if module == KERBEROS or mechanism.upper() == "GSSAPI":
        raise OptionError(f"{JAAS}: Kerberos (GSSAPI) is not supported; supported are PLAIN, SCRAM and OAUTHBEARER")
    if module not in MODULES:
        raise OptionError(f"{JAAS}: the login module {module!r} is unknown; known: {', '.join(MODULES)}")
    if not MODULES[module](mechanism):
        told = f"{MECHANISM}={mechanism!r}" if mechanism else f"{MECHANISM} is missing, and"
        raise OptionError(f"{told} does not go with {module} in {JAAS}")
    if mechanism == OAUTHBEARER:
        return {"sasl_oauth_token_provider": _token_provider(kafka, options)}
    _check_jaas_options(module, options, ("username", "password"))
    for name in ("username", "password"):
        if not options.get(name):
            raise OptionError(f"{JAAS}: {module} needs {name}")
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _token_provider(kafka: Mapping[str, str], options: Mapping[str, str]) -> ClientCredentials | TokenFile:
    handler = kafka.get(CALLBACK, CALLBACK_HANDLER)
    if handler.rpartition(".")[2] != CALLBACK_HANDLER:
        raise OptionError(
            f"{CALLBACK}={handler!r}: classes of Java cannot be called; tokens come from {ENDPOINT} with clientId and"
            f" clientSecret of {JAAS}, or from a file (file:///path)"
        )
    endpoint = kafka.get(ENDPOINT)
    if endpoint is None:
        raise OptionError(f"{ENDPOINT} is missing: where tokens of OAUTHBEARER are asked for, or file:///path")
    url = urllib.parse.urlsplit(endpoint)
    if url.scheme == "file":
        return TokenFile(urllib.parse.unquote(url.path))
    if url.scheme not in ("http", "https") or not url.hostname:
        raise OptionError(f"{ENDPOINT}={endpoint!r}: must be https://host/path, http://host/path or file:///path")
    _check_jaas_options("OAuthBearerLoginModule", options, tuple(CREDENTIALS))
    given = {name: kafka.get(key, options.get(name)) for name, key in CREDENTIALS.items()}
    client_id, client_secret = given["clientId"], given["clientSecret"]
    if not client_id or not client_secret:
        name = "clientSecret" if client_id else "clientId"
        raise OptionError(
            f"{JAAS}: OAuthBearerLoginModule needs {name}, with which tokens are asked for; or set {CREDENTIALS[name]}"
        )
    timeouts = [number(name, kafka.get(name, DEFAULT_TIMEOUT_MS), 1) for name in (CONNECT_TIMEOUT, READ_TIMEOUT)]
    return ClientCredentials(endpoint, client_id, client_secret, given["scope"], max(timeouts) / 1000)


def _check_jaas_options(module: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise OptionError for an option that the login module does not have; the message contains no values, as they may
    be secrets.
    """
    if unknown := sorted(set(options) - set(known)):
        raise OptionError(f"{JAAS}: {module} has no option {unknown[0]!r} here; its options are {', '.join(known)}")


def _checks_hostname(kafka: Mapping[str, str]) -> bool | None:
    """Return whether clients check the host names of brokers; None if the option is not set."""
    value = kafka.get(HOSTNAMES)
    if value is not None and value.lower() not in ("https", ""):
        raise OptionError(f"{HOSTNAMES}={value!r}: must be https, or empty for no check of host names")
    return None if value is None else value != ""
