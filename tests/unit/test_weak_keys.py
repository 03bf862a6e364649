"""If OpenSSL considers a key too weak, broker and client report the key and say what to do."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from oncelog.config import AdminConfig, load
from oncelog.connection.security import security_of
from oncelog.connection.weak_keys import weakness
from oncelog.errors import ConfigError
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.security.tls.contexts import server_context

TELLS = r"OpenSSL refuses it, as the key is too short \(EE_KEY_TOO_SMALL\)\. Make a key of at least 2048 bits"


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key of 1024 bits with its certificate, as old key stores have."""
    key = rsa.generate_private_key(65537, 1024)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "old")]), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = dated.sign(key, hashes.SHA256())
    path = tmp_path_factory.mktemp("weak") / "store.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_a_broker_says_that_its_key_is_too_weak(weak: Path) -> None:
    config = ListenerConfig(BrokerConfig.of({"ssl.keystore.location": str(weak)}), "SSL")
    with pytest.raises(InvalidConfig, match=TELLS) as raised:
        server_context(config)
    assert "ssl.keystore.location" in str(raised.value)
    assert "password" not in str(raised.value)


def test_a_client_says_that_its_key_is_too_weak(weak: Path) -> None:
    config = load(AdminConfig, "localhost:9092", {"security_protocol": "SSL", "ssl_certfile": str(weak)})
    with pytest.raises(ConfigError, match=TELLS):
        security_of(config)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("CA_MD_TOO_WEAK", "SHA-1 or MD5"),
        ("CA_KEY_TOO_SMALL", "the key of an authority"),
        ("EE_SOMETHING_TOO_WEAK", "are too weak"),
        ("KEY_VALUES_MISMATCH", None),
        (None, None),
    ],
)
def test_other_weaknesses_are_reported(reason: str | None, words: str | None) -> None:
    error = ssl.SSLError(1, "x")
    error.reason = reason  # type: ignore[assignment]
    told = weakness(error)
    assert (told is None) is (words is None)
    assert told is None or (words is not None and words in told and str(reason) in told)
