"""Certificate stores in each format of Kafka's clients, created by the rules of Java and OpenSSL."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from tests.support.certificates import Certificate

from oncelog_pipeline.security.jks import BadStore, read_jks
from oncelog_pipeline.security.tls_stores import Store, TlsStores, store_context

PASSWORD = "chängeit"


@pytest.fixture
def authority() -> Certificate:
    return Certificate.authority()


def der(certificate: Certificate) -> bytes:
    return certificate.certificate.public_bytes(Encoding.DER)


def jks(trusted: list[bytes], keys: list[tuple[bytes, list[bytes]]], password: str, key_password: str) -> bytes:
    """Return a key store in the format that Java's KeyStore writes."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value.encode())) + value.encode()

    def certificate(content: bytes) -> bytes:
        return text("X.509") + struct.pack(">I", len(content)) + content

    body = b"\xfe\xed\xfe\xed" + struct.pack(">II", 2, len(trusted) + len(keys))
    for content in trusted:
        body += struct.pack(">I", 2) + text("trusted") + struct.pack(">q", 0) + certificate(content)
    for key, chain in keys:
        protected = protect(key, key_password)
        body += struct.pack(">I", 1) + text("mine") + struct.pack(">q", 0)
        body += struct.pack(">I", len(protected)) + protected + struct.pack(">I", len(chain))
        body += b"".join(map(certificate, chain))
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def protect(key: bytes, password: str) -> bytes:
    secret, link, stream = password.encode("utf-16-be"), b"s" * 20, b""
    while len(stream) < len(key):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    cipher = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    encrypted = b"s" * 20 + cipher + hashlib.sha1(secret + key).digest()
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    return sequence(0x30, algorithm + sequence(0x04, encrypted))


def sequence(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    width = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | width]) + length.to_bytes(width) + content


def key_of(certificate: Certificate) -> bytes:
    return certificate.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def truststore(path: Path, password: str | None = None) -> Store:
    return Store("kafka.ssl.truststore.location", str(path), password)


def test_a_truststore_and_a_keystore_of_jks_are_read(authority: Certificate, tmp_path: Path) -> None:
    mine = authority.issue(("CN", "me"))
    path = tmp_path / "store.jks"
    path.write_bytes(jks([der(authority)], [(key_of(mine), [der(mine), der(authority)])], PASSWORD, PASSWORD))
    store = truststore(path, PASSWORD)
    context = store_context(TlsStores(store, store))
    assert len(context.get_ca_certs()) == 1


def test_a_key_of_jks_may_have_a_password_of_its_own(authority: Certificate, tmp_path: Path) -> None:
    mine = authority.issue(("CN", "me"))
    path = tmp_path / "store.jks"
    path.write_bytes(jks([], [(key_of(mine), [der(mine)])], PASSWORD, "of the key"))
    store = truststore(path, PASSWORD)
    store_context(TlsStores(None, store, "of the key"))
    with pytest.raises(BadStore, match="the password of the private key 'mine' is wrong"):
        store_context(TlsStores(None, store))


def test_a_truststore_of_jks_needs_no_password(authority: Certificate) -> None:
    assert read_jks(jks([der(authority)], [], PASSWORD, ""), None).trusted == (der(authority),)


@pytest.fixture
def keytool() -> str:
    found = shutil.which("keytool")
    if found is None:
        pytest.skip("keytool is not installed: it is of a JDK")
    return found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_made_by_keytool_are_read(authority: Certificate, tmp_path: Path, keytool: str, kind: str) -> None:
    """keytool creates a truststore, and a keystore whose key the authority signs; the name is not ASCII."""
    store = tmp_path / "store"

    def run(*arguments: str) -> None:
        secret = ["-storetype", kind, "-keystore", str(store), "-storepass", "changeit"]
        subprocess.run([keytool, *arguments, *secret, "-noprompt"], check=True, capture_output=True)

    (tmp_path / "authority.pem").write_text(authority.pem)
    run("-importcert", "-alias", "bürgt", "-file", str(tmp_path / "authority.pem"))
    run("-genkeypair", "-alias", "mine", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=me", "-validity", "30")
    keystore = truststore(store, "changeit")
    context = store_context(TlsStores(keystore, keystore))
    assert [dict(each[0] for each in found["subject"]) for found in context.get_ca_certs()] == [
        {"commonName": authority.certificate.subject.rfc4514_string().removeprefix("CN=")}
    ]
    with pytest.raises(BadStore, match="password is wrong"):
        store_context(TlsStores(keystore, truststore(store, "changedit")))
    if kind == "JKS":
        run("-keypasswd", "-alias", "mine", "-keypass", "changeit", "-new", "of the key")
        store_context(TlsStores(None, keystore, "of the key"))
        with pytest.raises(BadStore, match="the password of the private key 'mine' is wrong"):
            store_context(TlsStores(None, keystore))


@pytest.mark.parametrize("cut", [10, 30, 60, -25, -1])
def test_a_damaged_jks_file_is_told(authority: Certificate, cut: int) -> None:
    content = jks([der(authority)], [], PASSWORD, "")[:cut]
    with pytest.raises(BadStore, match="damaged"):
        read_jks(content, PASSWORD)


def test_stores_of_pkcs12_are_read(authority: Certificate, tmp_path: Path) -> None:
    mine = authority.issue(("CN", "me"))
    mine.pkcs12(tmp_path / "own.p12", PASSWORD, authority)
    trusted = pkcs12.serialize_key_and_certificates(None, None, None, [authority.certificate], NoEncryption())
    (tmp_path / "trusted.p12").write_bytes(trusted)
    context = store_context(TlsStores(truststore(tmp_path / "trusted.p12"), truststore(tmp_path / "own.p12", PASSWORD)))
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(BadStore, match=r"kafka\.ssl\.truststore\.location=.*the password is wrong"):
        store_context(TlsStores(None, truststore(tmp_path / "own.p12", "wrong")))


def test_another_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    with pytest.raises(BadStore, match="neither PEM, PKCS12 nor JKS"):
        store_context(TlsStores(truststore(tmp_path / "a")))


def test_a_keystore_without_a_key_is_told(authority: Certificate, tmp_path: Path) -> None:
    (tmp_path / "a.jks").write_bytes(jks([der(authority)], [], PASSWORD, ""))
    with pytest.raises(BadStore, match="no private key with a certificate"):
        store_context(TlsStores(None, truststore(tmp_path / "a.jks", PASSWORD)))
