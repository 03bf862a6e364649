"""OpenSSL contexts for the listeners, and for connections to other brokers and to ZooKeeper.

`TlsContext` and `ClientContext` have the current context, and replace it for new connections when its files have
changed. If a new file is invalid, the error is logged, and the old context stays in use.
"""

from __future__ import annotations

import logging
import os
import ssl
from abc import ABC, abstractmethod
from typing import Final

from oncelog.connection.weak_keys import weakness
from oncelog_broker.config import security_keys as keys
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.security.tls.stores import (
    KeyStore,
    TlsSettings,
    as_file,
    files_of,
    read_key_store,
    read_trust_store,
)

logger = logging.getLogger(__name__)

FILES_CHECK_SECONDS: Final = 5.0
"""Seconds between two checks for changed files."""

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(config: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener. Raises InvalidConfig."""
    store = read_key_store(config)
    if store is None:
        raise InvalidConfig(
            f"listener {config.listener} has TLS and no key: set {keys.SSL_KEYSTORE_LOCATION.name}, or "
            f"{keys.SSL_KEYSTORE_KEY.name} and {keys.SSL_KEYSTORE_CERTIFICATE_CHAIN.name}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _take_key(context, store, config)
    context.verify_mode = _CLIENT_AUTH[config[keys.SSL_CLIENT_AUTH]]
    if context.verify_mode != ssl.CERT_NONE:
        _trust(context, config, ssl.Purpose.CLIENT_AUTH)
    _restrict(context, config)
    return context


def client_context(config: TlsSettings) -> ssl.SSLContext:
    """Return the context for this broker's outgoing connections: to the inter-broker listeners of other brokers, or to
    ZooKeeper. Raises InvalidConfig.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config[keys.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] == "https"
    store = read_key_store(config)
    if store is not None:
        _take_key(context, store, config)
    _trust(context, config, ssl.Purpose.SERVER_AUTH)
    _restrict(context, config)
    return context


class _Followed(ABC):
    """A context that is created again when its files have changed."""

    def __init__(self, config: TlsSettings) -> None:
        self._config = config
        self._signature = self._look()
        self._make()

    @abstractmethod
    def _make(self) -> None:
        """Create the OpenSSL context. Raises InvalidConfig, and then changes nothing."""

    def check(self) -> bool:
        """Reload key stores and trust stores whose files have changed. Returns whether a new context is in use. This
        method reads files.
        """
        signature = self._look()
        if signature == self._signature:
            return False
        self._signature = signature  # remember the file even if it is invalid, so that an invalid file is logged once
        try:
            self._make()
        except InvalidConfig as error:
            logger.error(
                "changed TLS files are invalid, the broker keeps the old content",
                extra={"listener": self._config.listener, "reason": str(error)},
            )
            return False
        logger.warning("changed TLS files are loaded", extra={"listener": self._config.listener})
        return True

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in files_of(self._config)]


class TlsContext(_Followed):
    """The contexts of one listener: `server` for its clients and, on the inter-broker listener, `client` for this
    broker's connections to other brokers. Raises InvalidConfig.
    """

    def __init__(self, config: TlsSettings, *, is_inter_broker: bool = False) -> None:
        self._is_inter_broker = is_inter_broker
        super().__init__(config)

    def _make(self) -> None:
        made = server_context(self._config), client_context(self._config) if self._is_inter_broker else None
        self.server, self.client = made


class ClientContext(_Followed):
    """The context of a process that is only a client. Raises InvalidConfig."""

    def _make(self) -> None:
        self._context = client_context(self._config)

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection, after reading the files again if they have changed."""
        self.check()
        return self._context


def openssl_name(suite: str) -> str:
    """Return the OpenSSL name of a TLSv1.2 cipher suite that has a Java name; other names are returned unchanged."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = (
        cipher.replace("AES_", "AES").replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    )
    parts = [cipher] if exchange == "RSA" else [exchange, cipher]
    return "-".join(parts).replace("_", "-")


def _take_key(context: ssl.SSLContext, store: KeyStore, config: TlsSettings) -> None:
    password = "" if store.password is None else store.password.reveal()
    where = config.name_of(keys.SSL_KEYSTORE_LOCATION if files_of(config) else keys.SSL_KEYSTORE_KEY)
    try:
        with as_file(store.pem) as path:
            # If no password were passed, OpenSSL would prompt on the terminal.
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, OSError) as error:
        weak = weakness(error)
        if weak is not None:
            raise InvalidConfig(f"{where}: {weak}") from None
        reason = getattr(error, "reason", None) or "neither key nor certificate"
        raise InvalidConfig(
            f"{where}: no key and certificate that belong together can be read ({reason}); is ssl.key.password right?"
        ) from None


def _trust(context: ssl.SSLContext, config: TlsSettings, purpose: ssl.Purpose) -> None:
    trusted = read_trust_store(config)
    if trusted is None and purpose is ssl.Purpose.CLIENT_AUTH:
        # Refuse to trust the system's certificate authorities for client certificates: they issue a certificate to
        # every owner of a web domain, and ssl.principal.mapping.rules would accept any name in it.
        raise InvalidConfig(
            f"listener {config.listener}: {config.name_of(keys.SSL_CLIENT_AUTH)}={config[keys.SSL_CLIENT_AUTH]} needs "
            f"the trusted authorities are unknown: set {keys.SSL_TRUSTSTORE_LOCATION.name} or "
            f"{keys.SSL_TRUSTSTORE_CERTIFICATES.name} to the authority of your clients"
        )
    if trusted is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError):
        raise InvalidConfig(f"{config.name_of(keys.SSL_TRUSTSTORE_LOCATION)}: no certificates can be read") from None


def _restrict(context: ssl.SSLContext, config: TlsSettings) -> None:
    versions = sorted(_VERSIONS[name] for name in config[keys.SSL_ENABLED_PROTOCOLS])
    if not versions:
        raise InvalidConfig(f"{config.name_of(keys.SSL_ENABLED_PROTOCOLS)}: must not be empty")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    suites = config[keys.SSL_CIPHER_SUITES]
    of_tls12 = [openssl_name(suite) for suite in suites if suite.startswith("TLS_") is False or "_WITH_" in suite]
    if not of_tls12:
        return
    try:
        context.set_ciphers(":".join(of_tls12))
    except ssl.SSLError:
        name = config.name_of(keys.SSL_CIPHER_SUITES)
        raise InvalidConfig(f"{name}={','.join(suites)}: this OpenSSL has none of these cipher suites") from None


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
