"""Creates certificates for tests on demand, with small elliptic-curve keys. Certificates are valid for an hour,
certificate authorities for a week.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

HOUR = timedelta(hours=1)
WEEK = timedelta(weeks=1)


class Certificate:
    """A certificate with its private key; a certificate authority issues further certificates with `issue`."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, chain: str = "") -> None:
        self.key = key
        self.certificate = certificate
        self.pem = certificate.public_bytes(Encoding.PEM).decode() + chain

    @classmethod
    def authority(cls, name: str = "test authority") -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _signed(_name(name), _name(name), key, key, is_authority=True, valid=WEEK))

    def issue(self, *names: tuple[str, str], age: timedelta = timedelta(), valid: timedelta = HOUR) -> Certificate:
        """Issue a certificate for localhost.

        `names` are the attributes of the subject, such as ("CN", "alice"), the most general first; `age` is the time
        since the certificate became valid.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(_OIDS[kind], value) for kind, value in names])
        certificate = _signed(
            subject, self.certificate.subject, key, self.key, is_authority=False, age=age, valid=valid
        )
        return Certificate(key, certificate)

    def key_pem(self, password: str | None = None) -> str:
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def store(self, path: Path, password: str | None = None) -> str:
        """Write the key and the certificate to one PEM file; return the file's path."""
        path.write_text(self.key_pem(password) + self.pem)
        return str(path)

    def pkcs12(self, path: Path, password: str, authority: Certificate | None = None) -> str:
        content = pkcs12.serialize_key_and_certificates(
            b"oncelog",
            self.key,
            self.certificate,
            None if authority is None else [authority.certificate],
            BestAvailableEncryption(password.encode()),
        )
        path.write_bytes(content)
        return str(path)


_OIDS = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "C": NameOID.COUNTRY_NAME,
}


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
    age: timedelta = timedelta(),
    valid: timedelta,
) -> x509.Certificate:
    begin = datetime.now(UTC) - timedelta(minutes=5) - age
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + valid)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if is_authority:
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
