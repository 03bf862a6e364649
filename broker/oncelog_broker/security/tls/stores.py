"""Reads key stores and trust stores, PEM or PKCS12, from files or from inline settings, and returns PEM.

The `ssl` module reads private keys from files only, so `as_file` offers PEM as a file that is never on a disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncelog_broker.config import security_keys as keys
from oncelog_broker.config.declared import ConfigKey, InvalidConfig
from oncelog_protocol.light_classes import NamedTuple

if TYPE_CHECKING:
    from oncelog_broker.config.secret import Secret

T = TypeVar("T")


class TlsSettings(Protocol):
    """The TLS settings of a listener (`ListenerConfig`), or the same settings under other names."""

    listener: str
    """The name of the listener that has the settings, for messages."""

    def name_of(self, key: ConfigKey[Any]) -> str:
        """Return the configuration name of `key`, for messages."""

    def __getitem__(self, key: ConfigKey[T]) -> T: ...


class KeyStore(NamedTuple):
    """A private key with its certificate chain, as PEM, and the password of the key if it has one."""

    pem: bytes
    password: Secret | None

    def __repr__(self) -> str:
        return "KeyStore(...)"


def read_key_store(config: TlsSettings) -> KeyStore | None:
    """Return the key store; None if none is configured. Raises InvalidConfig."""
    location, key = config[keys.SSL_KEYSTORE_LOCATION], config[keys.SSL_KEYSTORE_KEY]
    chain = config[keys.SSL_KEYSTORE_CERTIFICATE_CHAIN]
    if location is None:
        if (key is None) != (chain is None):
            raise InvalidConfig(
                f"{config.name_of(keys.SSL_KEYSTORE_KEY)} and {config.name_of(keys.SSL_KEYSTORE_CERTIFICATE_CHAIN)} "
                f"must be set together: only one is set"
            )
        if key is None or chain is None:
            return None
        return KeyStore(f"{_lines(key)}\n{_lines(chain)}\n".encode(), config[keys.SSL_KEY_PASSWORD])
    content = _read(config, keys.SSL_KEYSTORE_LOCATION, location)
    if config[keys.SSL_KEYSTORE_TYPE] == "PEM":
        return KeyStore(content, config[keys.SSL_KEY_PASSWORD])
    return KeyStore(_from_pkcs12(config, content), None)


def read_trust_store(config: TlsSettings) -> str | None:
    """Return the trusted certificates as PEM; None if none are configured. Raises InvalidConfig."""
    inline, location = config[keys.SSL_TRUSTSTORE_CERTIFICATES], config[keys.SSL_TRUSTSTORE_LOCATION]
    if location is None:
        return None if inline is None else _lines(inline)
    content = _read(config, keys.SSL_TRUSTSTORE_LOCATION, location)
    if config[keys.SSL_TRUSTSTORE_TYPE] == "PEM":
        return content.decode(errors="replace")
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _opened(config, keys.SSL_TRUSTSTORE_LOCATION, content, config[keys.SSL_TRUSTSTORE_PASSWORD])
    certificates = [each.certificate for each in store.additional_certs]
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def files_of(config: TlsSettings) -> list[str]:
    """Return the paths of the files from which the stores are read."""
    locations = (config[keys.SSL_KEYSTORE_LOCATION], config[keys.SSL_TRUSTSTORE_LOCATION])
    return [location for location in locations if location is not None]


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield a path to `content`, valid while the context lasts; the file is in memory if the system supports that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("oncelog-key")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as named:  # mode 0600, so that only the owner can read this file
            named.write(content)
            named.flush()
            yield named.name


def _lines(secret: Secret) -> str:
    """Return PEM with its line breaks restored, if a properties file has it in one line."""
    return secret.reveal().replace("\\n", "\n")


def _read(config: TlsSettings, key: ConfigKey[str | None], location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{config.name_of(key)}={location}: {error.strerror or error}") from None


def _from_pkcs12(config: TlsSettings, content: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _opened(config, keys.SSL_KEYSTORE_LOCATION, content, config[keys.SSL_KEYSTORE_PASSWORD])
    if store.key is None or store.cert is None:
        raise InvalidConfig(f"{config.name_of(keys.SSL_KEYSTORE_LOCATION)}: has no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    pem: bytes = key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)
    return pem


def _opened(config: TlsSettings, key: ConfigKey[str | None], content: bytes, password: Secret | None):  # type: ignore[no-untyped-def]
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise InvalidConfig(f"{config.name_of(key)}: PKCS12 needs the package cryptography") from None
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.reveal().encode())
    except ValueError:
        raise InvalidConfig(
            f"{config.name_of(key)}: cannot be opened as PKCS12: another format, or another password"
        ) from None
