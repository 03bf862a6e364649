"""A support bundle masks secrets and leaves everything else unchanged."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog.cli.redaction import HIDDEN, is_secret_name, redacted, redacted_document, secrets_of

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"ssl.keystore.password={SECRET}",
        f"ssl.key.password = {SECRET}\nnext=1",
        f'{{"sasl_plain_password": "{SECRET}"}}',
        f"zookeeper.digest.password: '{SECRET}'",
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";',
        f'PlainLoginModule required user_alice="{SECRET}" user_bob="{SECRET}";',
        f'user_alice="{SECRET}"',
        f"https://alice:{SECRET}@registry:8081/subjects",
        f"Authorization: Bearer {SECRET}",
        f"client.secret={SECRET}",
        f"schema.registry.basic.auth.user.info=robot:{SECRET}",
        f"api_key: {SECRET}",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{SECRET}",
        f"token eyJhbGciOiJFUzI1NiJ9.eyJzdWIi{SECRET}.c2ln{SECRET}",
        f'sasl.scram.first.users.password="a \\" {SECRET}"',
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    assert SECRET not in redacted(text)
    assert HIDDEN in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "log.retention.hours=72",
        'kafka_log_log_size{topic="orders",partition="0"} 12.0',
        "2026-01-01T00:00:00.000Z info this broker is the controller epoch=1",
        "http://127.0.0.1:9404/metrics",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("part", ["a.", "a+", "password", "user_.", "eyJaaaaaaaa-", "Bearer ", "a://b:"])
def test_a_long_text_is_searched_in_proportion_to_its_length(part: str) -> None:
    text = part * (100_000 // len(part))
    began = time.thread_time()
    redacted(text)
    is_secret_name(text)
    assert time.thread_time() - began < 5, "each place must not be searched to the end of the text"


@examples(100)
@given(st.text(min_size=4, max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_a_known_secret_stands_neither_in_text_nor_in_a_document(secret: str, before: str, after: str) -> None:
    if secret in HIDDEN:
        return
    assert secret not in redacted(before + secret + after, [secret]).replace(HIDDEN, "\0") or secret in before + after
    shown = redacted_document({"a": [before + secret + after]}, [secret])
    assert secret not in shown["a"][0].replace(HIDDEN, "\0") or secret in before + after


def test_a_document_stays_one_and_hides_the_values_of_secret_settings() -> None:
    document = {"ssl.key.password": "x", "note": f'password="{SECRET}"', "numbers": [1, None, True], "token": 5}
    shown = redacted_document(document)
    assert json.loads(json.dumps(shown)) == shown
    assert shown == {
        "ssl.key.password": HIDDEN,
        "note": f"password={HIDDEN}",
        "numbers": [1, None, True],
        "token": 5,
    }


def test_secrets_of_a_client_are_found_by_their_names() -> None:
    settings = {"sasl_plain_username": "alice", "sasl_plain_password": SECRET, "ssl_cafile": "ca.pem", "retries": 3}
    assert secrets_of(settings) == [SECRET]
    assert is_secret_name("listener.name.x.plain.sasl.jaas.config")
    assert not is_secret_name("log.dirs")
