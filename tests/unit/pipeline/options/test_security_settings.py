"""Kafka's TLS and SASL options become settings of the oncelog clients: files are read, mistakes are reported, and
secrets are not shown.
"""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificate

from oncelog import Consumer, Producer
from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.options.sink_options import sink_options
from oncelog_pipeline.options.source_options import SourceOptions, source_options
from oncelog_pipeline.security.tls_stores import StoreContext
from oncelog_pipeline.security.tokens import ClientCredentials, TokenFile

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    ' clientId="me" clientSecret="s3cret" scope="kafka";'
)
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useTicketCache="true";'
ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
JAAS = "kafka.sasl.jaas.config"


def stream(**options: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "kafka.security.protocol": "SASL_SSL"}
    return source_options(given | options, is_stream=True)


def login(mechanism: str, jaas: str, **options: str) -> dict[str, str]:
    return {"kafka.sasl.mechanism": mechanism, JAAS: jaas, **options}


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        stream(**options)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def authority() -> Certificate:
    return Certificate.authority()


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-512", SCRAM)])
def test_a_user_of_jaas_is_ours(mechanism: str, jaas: str) -> None:
    settings = stream(**login(mechanism, jaas)).settings
    assert settings["sasl_mechanism"] == mechanism
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("alice", "s3cret")
    Consumer("a:1", **settings)
    given = {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SASL_SSL", **login(mechanism, jaas)}
    Producer("a:1", **sink_options(given).producer_settings)


def test_client_credentials_of_jaas_ask_the_endpoint_for_tokens() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    options = {
        ENDPOINT: "https://login.example/token",
        "kafka.sasl.login.callback.handler.class": handler,
        "kafka.sasl.login.read.timeout.ms": "20000",
    }
    made = stream(**login("OAUTHBEARER", OAUTH, **options))
    wanted = ClientCredentials("https://login.example/token", "me", "s3cret", "kafka", 20.0)
    assert made.settings["sasl_oauth_token_provider"] == wanted
    assert pickle.loads(pickle.dumps(made)) == made
    assert "s3cret" not in repr(made)


def test_client_credentials_may_have_options_of_their_own_which_win() -> None:
    options = {
        ENDPOINT: "https://login.example/token",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "another",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": "key",
        "kafka.sasl.oauthbearer.scope": "all",
    }
    wanted = ClientCredentials("https://login.example/token", "another", "key", "all")
    bare = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    for jaas in (bare, OAUTH):
        assert stream(**login("OAUTHBEARER", jaas, **options)).settings["sasl_oauth_token_provider"] == wanted


def test_a_token_may_be_in_a_file() -> None:
    bare = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;"
    settings = stream(**login("OAUTHBEARER", bare, **{ENDPOINT: "file:///run/my%20token"})).settings
    assert settings["sasl_oauth_token_provider"] == TokenFile("/run/my token")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (login("PLAIN", SCRAM), "kafka.sasl.mechanism='PLAIN' does not go with ScramLoginModule"),
        ({JAAS: PLAIN}, "kafka.sasl.mechanism is missing"),
        (login("GSSAPI", KERBEROS), "Kerberos (GSSAPI) is not supported"),
        (login("PLAIN", "x.Other required;"), "the login module 'Other' is unknown"),
        (login("PLAIN", "nothing of the kind s3cret"), "expected a login module"),
        (login("PLAIN", PLAIN.replace("password", "passwort")), "no option 'passwort' here"),
        (login("PLAIN", PLAIN.replace(' password="s3cret"', "")), "PlainLoginModule needs password"),
        (login("SCRAM-SHA-512", SCRAM.replace(";", ' tokenauth="true";')), "no option 'tokenauth' here"),
        (login("OAUTHBEARER", OAUTH), f"{ENDPOINT} is missing"),
        (login("OAUTHBEARER", OAUTH, **{ENDPOINT: "ftp://x"}), "must be https://host/path"),
        (
            login("OAUTHBEARER", OAUTH.replace("clientSecret", "secret"), **{ENDPOINT: "https://x/"}),
            "no option 'secret' here",
        ),
        (
            login("OAUTHBEARER", OAUTH, **{ENDPOINT: "https://x/", "kafka.sasl.login.callback.handler.class": "a.B"}),
            "classes of Java cannot be called",
        ),
        ({ENDPOINT: "https://x/"}, f"is for OAUTHBEARER with {JAAS}, which is missing"),
        (login("PLAIN", PLAIN, **{"kafka.sasl.plain.username": "bob"}), "use only one"),
        ({"kafka.ssl.truststore.password": "s3cret"}, "kafka.ssl.truststore.location is missing"),
        ({"kafka.ssl.truststore.location": "/no/such", "kafka.ssl.truststore.type": "BCFKS"}, "one of PEM, PKCS12"),
        ({"kafka.ssl.truststore.location": "/no/such"}, "kafka.ssl.truststore.location='/no/such': [Errno 2]"),
        ({"kafka.ssl.keystore.key": "x"}, "one needs the other"),
        (
            {"kafka.ssl.truststore.location": "/a", "kafka.ssl.truststore.certificates": "x"},
            "use only one",
        ),
        ({"kafka.ssl.truststore.location": "/a", "kafka.ssl.cafile": "/b"}, "take Kafka's names alone, or ours"),
        ({"kafka.ssl.endpoint.identification.algorithm": "ldaps"}, "must be https, or empty"),
    ],
)
def test_a_mistake_is_told_without_a_secret(options: dict[str, str], why: str) -> None:
    assert why in refusal(**options)


def test_stores_of_pem_are_a_context_that_spark_can_send(authority: Certificate, tmp_path: Path) -> None:
    trusted, own = tmp_path / "trusted.pem", tmp_path / "own.pem"
    trusted.write_text(authority.pem)
    authority.issue(("CN", "me")).store(own, "s3cret")
    made = stream(
        **login("PLAIN", PLAIN),
        **{
            "kafka.ssl.truststore.location": str(trusted),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.keystore.location": str(own),
            "kafka.ssl.key.password": "s3cret",
        },
    )
    context = made.settings["ssl_context"]
    assert isinstance(context, StoreContext)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1
    sent = pickle.loads(pickle.dumps(made))
    assert sent == made
    assert repr(sent) == repr(made)  # the representation is the key under which connections are kept
    assert "s3cret" not in repr(context)
    assert len(sent.settings["ssl_context"].get_ca_certs()) == 1
    Consumer("a:1", **sent.settings)


def test_pem_may_stand_in_the_options(authority: Certificate) -> None:
    mine = authority.issue(("CN", "me"))
    options = {
        "kafka.ssl.truststore.certificates": authority.pem,
        "kafka.ssl.keystore.key": mine.key_pem(),
        "kafka.ssl.keystore.certificate.chain": mine.pem,
    }
    context = stream(**login("PLAIN", PLAIN), **options).settings["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert "BEGIN" not in repr(context)


@pytest.mark.parametrize(("value", "checks"), [("", False), ("https", True), ("HTTPS", True)])
def test_host_names_are_checked_unless_that_is_switched_off(value: str, checks: bool, tmp_path: Path) -> None:
    option = {"kafka.ssl.endpoint.identification.algorithm": value}
    assert stream(**login("PLAIN", PLAIN), **option).settings["ssl_check_hostname"] is checks
    (tmp_path / "a.pem").write_text(Certificate.authority().pem)
    store: Any = {"kafka.ssl.truststore.location": str(tmp_path / "a.pem")}
    assert stream(**login("PLAIN", PLAIN), **option, **store).settings["ssl_context"].check_hostname is checks
