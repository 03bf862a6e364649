"""Java key stores (JKS), the default format of Java's keytool before Java 9: certificates and private keys. Pure.

The file contains a list of entries. It ends with a SHA-1 hash over the password, a constant and that list. A private
key is encrypted by XOR with a key stream; the stream consists of SHA-1 hashes derived from a salt and the password.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_WHITENER: Final = b"Mighty Aphrodite"
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_SHA1_BYTES: Final = 20
_SEQUENCE, _OCTET_STRING = 0x30, 0x04


class BadStore(ValueError):
    """The key store cannot be read, or the password is wrong."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key (PKCS8, DER) and its certificate chain (DER); the key's own certificate comes first."""

    key: bytes = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JavaStore:
    """The entries of a key store; certificates are DER."""

    trusted: tuple[bytes, ...]
    keys: tuple[KeyEntry, ...]


def read_jks(content: bytes, password: str | None, key_password: str | None = None) -> JavaStore:
    """Parse a key store. Without `password` the SHA-1 is not verified, and private keys are skipped. Raises
    BadStore.
    """
    if not content.startswith(MAGIC):
        raise BadStore("this is not a JKS file")
    entries, digest = content[:-_SHA1_BYTES], content[-_SHA1_BYTES:]
    if password is not None and _sha1(_utf16(password) + _WHITENER + entries) != digest:
        raise BadStore("the password is wrong, or the file is damaged")
    secret = key_password if key_password is not None else password
    try:
        return _entries(_Reader(entries, len(MAGIC)), secret)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadStore(f"the file is damaged: {error}") from error


def _entries(reader: _Reader, password: str | None) -> JavaStore:
    version, count = reader.number(4), reader.number(4)
    if version not in (1, 2):
        raise BadStore(f"JKS version {version} is unknown")
    trusted: list[bytes] = []
    keys: list[KeyEntry] = []
    for _ in range(count):
        kind, alias, _created = reader.number(4), reader.text(), reader.number(8)
        if kind == _TRUSTED_CERTIFICATE:
            trusted.append(reader.certificate(version))
        elif kind == _PRIVATE_KEY:
            protected = reader.take(reader.number(4))
            chain = tuple(reader.certificate(version) for _ in range(reader.number(4)))
            if password is not None:
                keys.append(KeyEntry(_private_key(protected, password, alias), chain))
        else:
            raise BadStore(f"entry {alias!r} is neither a certificate nor a private key")
    return JavaStore(tuple(trusted), tuple(keys))


def _private_key(protected: bytes, password: str, alias: str) -> bytes:
    """Decrypt and return the PKCS8 key in an EncryptedPrivateKeyInfo that uses Java's own algorithm."""
    info = _Reader(protected)
    info.tagged(_SEQUENCE)
    info.take(info.tagged(_SEQUENCE))  # skip the name of the encryption algorithm, because JKS files use only one
    encrypted = info.take(info.tagged(_OCTET_STRING))
    link, cipher = encrypted[:_SHA1_BYTES], encrypted[_SHA1_BYTES:-_SHA1_BYTES]
    secret, stream = _utf16(password), bytearray()
    while len(stream) < len(cipher):
        link = _sha1(secret + link)
        stream += link
    key = bytes(each ^ mask for each, mask in zip(cipher, stream, strict=False))
    if _sha1(secret + key) != encrypted[-_SHA1_BYTES:]:
        raise BadStore(f"the password of the private key {alias!r} is wrong")
    return key


def _sha1(content: bytes) -> bytes:
    return hashlib.sha1(content).digest()  # noqa: S324 (the format has no other)


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Reader:
    """Reads the encoding of Java's DataInput, and lengths of DER."""

    def __init__(self, content: bytes, position: int = 0) -> None:
        self._content = content
        self._position = position

    def take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._content):
            raise IndexError(f"{count} bytes at {self._position} of {len(self._content)}")
        found, self._position = self._content[self._position : end], end
        return found

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def certificate(self, version: int) -> bytes:
        """Read and return a certificate, which follows the name of its type (X.509); version 1 of the format has no
        such name.
        """
        if version == 2:
            self.text()
        return self.take(self.number(4))

    def tagged(self, tag: int) -> int:
        """Return the length of the DER value that begins at the present position. Raises BadStore if the value has
        another tag than the expected one.
        """
        if self.number(1) != tag:
            raise BadStore("a private key is not encrypted as JKS does")
        length = self.number(1)
        return self.number(length & 0x7F) if length & 0x80 else length
