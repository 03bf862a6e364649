"""Key stores and trust stores are read in every form that Kafka's keys allow, and errors in them are reported."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.support.certificates import Certificate

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.security.tls.contexts import TlsContext, client_context, openssl_name, server_context

AUTHORITY = Certificate.authority()
SERVER = AUTHORITY.issue(("CN", "broker"))


def configured(**settings: str) -> BrokerConfig:
    return BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()})


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Do a TLS handshake in memory; return the server's side of the connection. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ours.version() is not None
    return ours


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.pem)


def test_a_pem_file_is_loaded(tmp_path: Path) -> None:
    config = configured(ssl_keystore_location=SERVER.store(tmp_path / "store.pem"))
    assert shake(server_context(ListenerConfig(config, "SSL")), trusting()).version() == "TLSv1.3"


def test_an_encrypted_key_is_loaded_with_its_password(tmp_path: Path) -> None:
    location = SERVER.store(tmp_path / "store.pem", "secret")
    shake(
        server_context(ListenerConfig(configured(ssl_keystore_location=location, ssl_key_password="secret"), "A")),
        trusting(),
    )
    with pytest.raises(InvalidConfig, match=r"is ssl\.key\.password right"):
        server_context(ListenerConfig(configured(ssl_keystore_location=location, ssl_key_password="other"), "A"))
    with pytest.raises(InvalidConfig, match=r"is ssl\.key\.password right"):
        server_context(ListenerConfig(configured(ssl_keystore_location=location), "A"))


def test_a_pkcs12_store_is_loaded(tmp_path: Path) -> None:
    location = SERVER.pkcs12(tmp_path / "store.p12", "secret")
    settings = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": location, "ssl.keystore.password": "secret"}
    shake(server_context(ListenerConfig(BrokerConfig.of(settings), "A")), trusting())
    with pytest.raises(InvalidConfig, match="another password") as raised:
        server_context(ListenerConfig(BrokerConfig.of({**settings, "ssl.keystore.password": "hunter2"}), "A"))
    assert "hunter2" not in str(raised.value)


def test_key_and_certificates_are_read_from_the_settings() -> None:
    one_line = SERVER.pem.replace("\n", "\\n")
    config = configured(ssl_keystore_key=SERVER.key_pem(), ssl_keystore_certificate_chain=one_line)
    shake(server_context(ListenerConfig(config, "A")), trusting())
    with pytest.raises(InvalidConfig, match="must be set together"):
        server_context(ListenerConfig(configured(ssl_keystore_key=SERVER.key_pem()), "A"))


def test_a_listener_has_its_own_store_before_the_common_one(tmp_path: Path) -> None:
    other = AUTHORITY.issue(("CN", "other"))
    config = BrokerConfig.of(
        {
            "ssl.keystore.location": SERVER.store(tmp_path / "all.pem"),
            "listener.name.outside.ssl.keystore.location": other.store(tmp_path / "outside.pem"),
            "ssl.truststore.certificates": AUTHORITY.pem,
        }
    )
    for name, common_name in (("OUTSIDE", "other"), ("INSIDE", "broker")):
        context = server_context(ListenerConfig(config, name))
        client = trusting()
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = context.wrap_bio(to_server, to_client, server_side=True)
        theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
        for side in (theirs, ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        certificate = theirs.getpeercert()
        assert certificate is not None
        assert certificate["subject"] == ((("commonName", common_name),),)


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_client_certificates_are_requested_as_configured(auth: str, tmp_path: Path) -> None:
    config = configured(
        ssl_keystore_location=SERVER.store(tmp_path / "store.pem"),
        ssl_truststore_certificates=AUTHORITY.pem,
        ssl_client_auth=auth,
    )
    context = server_context(ListenerConfig(config, "A"))
    if auth == "required":
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake(context, trusting())
    else:
        assert not shake(context, trusting()).getpeercert()
    client = trusting()
    client.load_cert_chain(AUTHORITY.issue(("CN", "alice")).store(tmp_path / "alice.pem"))
    assert bool(shake(context, client).getpeercert()) is (auth != "none")
    stranger = trusting()
    stranger.load_cert_chain(Certificate.authority("foreign").issue(("CN", "eve")).store(tmp_path / "eve.pem"))
    if auth != "none":
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(context, stranger)


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_e56_client_certificates_need_an_explicit_authority(auth: str, tmp_path: Path) -> None:
    """Without an explicit authority, the certificate authorities of the system would admit every owner of a domain."""
    config = configured(ssl_keystore_location=SERVER.store(tmp_path / "store.pem"), ssl_client_auth=auth)
    with pytest.raises(InvalidConfig, match=rf"ssl.client.auth={auth} needs .* set ssl.truststore.location"):
        server_context(ListenerConfig(config, "A"))
    client_context(ListenerConfig(config, "A"))


def test_brokers_check_the_names_of_others_unless_they_are_told_not_to(tmp_path: Path) -> None:
    settings = {"ssl.truststore.certificates": AUTHORITY.pem}
    assert client_context(ListenerConfig(BrokerConfig.of(settings), "A")).check_hostname
    settings["ssl.endpoint.identification.algorithm"] = ""
    assert not client_context(ListenerConfig(BrokerConfig.of(settings), "A")).check_hostname


def test_only_enabled_tls_protocols_are_accepted(tmp_path: Path) -> None:
    config = configured(ssl_keystore_location=SERVER.store(tmp_path / "a.pem"), ssl_enabled_protocols="TLSv1.2")
    assert shake(server_context(ListenerConfig(config, "A")), trusting()).version() == "TLSv1.2"


def test_cipher_suites_are_given_by_javas_names(tmp_path: Path) -> None:
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") == "ECDHE-RSA-AES128-GCM-SHA256"
    assert openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA256") == "AES256-SHA256"
    location = SERVER.store(tmp_path / "a.pem")
    wanted = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    config = configured(ssl_keystore_location=location, ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites=wanted)
    shaken = shake(server_context(ListenerConfig(config, "A")), trusting())
    assert (shaken.cipher() or ("",))[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    with pytest.raises(InvalidConfig, match="none of these cipher suites"):
        server_context(ListenerConfig(configured(ssl_keystore_location=location, ssl_cipher_suites="NONSENSE"), "A"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "listener A has TLS and no key: set ssl.keystore.location"),
        ({"ssl.keystore.location": "/nonexistent"}, "ssl.keystore.location=/nonexistent: No such file"),
        ({"listener.name.a.ssl.keystore.location": "/nonexistent"}, "listener.name.a.ssl.keystore.location=/none"),
    ],
)
def test_a_bad_key_store_is_refused_with_the_reason(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        server_context(ListenerConfig(BrokerConfig.of(settings), "A"))


def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.pem"
    context = TlsContext(ListenerConfig(configured(ssl_keystore_location=SERVER.store(path)), "A"))
    first = context.server
    assert not context.check()
    path.write_text("nonsense")
    assert not context.check()
    assert context.server is first
    assert "changed TLS files are invalid" in caplog.text
    caplog.clear()
    assert not context.check()
    assert not caplog.text, "said once"
    AUTHORITY.issue(("CN", "renewed")).store(path)
    assert context.check()
    assert context.server is not first
    shake(context.server, trusting())
