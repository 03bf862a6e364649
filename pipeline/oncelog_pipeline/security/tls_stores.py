"""Kafka's truststores and keystores as the TLS context of a client.

A store is a file in PEM, PKCS12 or JKS format, which is recognised by its content, or PEM text in the option itself.
The context can be pickled. Spark sends the options to its tasks, and each process reads the files again, so the files
must have the same path on all machines.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oncelog_pipeline.security.jks import MAGIC, BadStore, read_jks

PEM_BEGIN: Final = b"-----BEGIN "
DER_SEQUENCE: Final = 0x30
"""The first byte of a PKCS12 file."""


@dataclass(frozen=True, slots=True)
class Store:
    """A certificate store: a file with its password, or PEM text. `setting` is the name of the option that named the
    store.
    """

    setting: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    pem: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsStores:
    """The certificates that a client trusts, and the client's own certificate. If `trusted` is None, the client trusts
    the system's certificate authorities.
    """

    trusted: Store | None = None
    own: Store | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_hostname: bool = True


@dataclass(frozen=True, slots=True)
class _Contents:
    """PEM texts: trusted certificates, and a private key with its certificates."""

    trusted: str = ""
    own: str = field(default="", repr=False)


class StoreContext(ssl.SSLContext):
    """The TLS context of `stores`; two contexts are equal if their stores are equal, and printing or pickling a context
    uses only its stores.
    """

    stores: TlsStores

    def __reduce__(self) -> tuple[Any, ...]:
        return store_context, (self.stores,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreContext) and other.stores == self.stores

    def __hash__(self) -> int:
        return hash(self.stores)

    def __repr__(self) -> str:
        return f"StoreContext({self.stores})"


def store_context(stores: TlsStores) -> StoreContext:
    """Return the TLS context of these stores, whose files are read now. Raises BadStore with the names of the setting
    and the file.
    """
    context = StoreContext(ssl.PROTOCOL_TLS_CLIENT)
    context.stores = stores
    context.check_hostname = stores.checks_hostname
    if stores.trusted is None:
        context.load_default_certs()
    else:
        _trust(context, stores.trusted)
    if stores.own is not None:
        _show(context, stores.own, stores.key_password)
    return context


def _trust(context: ssl.SSLContext, store: Store) -> None:
    pem = _read(store, None).trusted
    if not pem:
        raise _bad(store, "it has no trusted certificate")
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise _bad(store, error) from error


def _show(context: ssl.SSLContext, store: Store, key_password: str | None) -> None:
    pem = _read(store, key_password).own
    if not pem:
        raise _bad(store, "it has no private key with a certificate, or its password is missing")
    password = key_password if key_password is not None else store.password or ""
    # OpenSSL reads a private key from a file only. Only this user can read the temporary file, which is deleted
    # immediately after loading.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem.encode())
        file.flush()
        try:
            context.load_cert_chain(file.name, password=lambda: password)
        except (ssl.SSLError, ValueError) as error:
            raise _bad(store, error) from error


def _read(store: Store, key_password: str | None) -> _Contents:
    """Return the certificates and keys of a store as PEM. Raises BadStore."""
    if store.pem is not None:
        return _Contents(store.pem, store.pem)
    assert store.location is not None
    try:
        content = Path(store.location).read_bytes()
        if content.startswith(MAGIC):
            return _of_jks(content, store.password, key_password)
        if content[:1] == bytes([DER_SEQUENCE]):
            return _of_pkcs12(content, store.password)
        if PEM_BEGIN in content:
            text = content.decode()
            return _Contents(text, text)
    except (OSError, BadStore, UnicodeDecodeError) as error:
        raise _bad(store, error) from error
    raise _bad(store, "it is neither PEM, PKCS12 nor JKS")


def _of_jks(content: bytes, password: str | None, key_password: str | None) -> _Contents:
    store = read_jks(content, password, key_password)
    own = store.keys[0] if store.keys else None
    return _Contents(
        "".join(_pem(each, "CERTIFICATE") for each in store.trusted),
        "" if own is None else _pem(own.key, "PRIVATE KEY") + "".join(_pem(each, "CERTIFICATE") for each in own.chain),
    )


def _of_pkcs12(content: bytes, password: str | None) -> _Contents:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise BadStore(
            "PKCS12 needs the package cryptography (pip install cryptography);"
            " or convert it: openssl pkcs12 -in FILE -out FILE.pem -nodes"
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise BadStore(f"the password is wrong, or the file is damaged: {error}") from error
    others = "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in store.additional_certs)
    if store.key is None or store.cert is None:
        first = "" if store.cert is None else store.cert.certificate.public_bytes(Encoding.PEM).decode()
        return _Contents(first + others)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return _Contents(others, key + store.cert.certificate.public_bytes(Encoding.PEM).decode() + others)


def _pem(der: bytes, kind: str) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind}-----\n{body}-----END {kind}-----\n"


def _bad(store: Store, why: object) -> BadStore:
    told = store.setting if store.location is None else f"{store.setting}={store.location!r}"
    return BadStore(f"{told}: {why}")
