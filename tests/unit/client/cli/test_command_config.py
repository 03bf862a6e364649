"""--command-config reads Kafka's client.properties as settings of the oncelog client."""

from __future__ import annotations

import pytest

from oncelog.cli.command_config import read_properties, settings_of


def test_a_command_config_of_kafkas_documentation_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "pass=word")
    text = """
# comment
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
   username="alice" \\
   password="${env:SECRET}";
ssl.truststore.location=/ca.pem
ssl.truststore.type=PEM
ssl.endpoint.identification.algorithm=
request.timeout.ms=5000
compression.type=lz4
"""
    assert settings_of(read_properties(text)) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "pass=word",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
        "request_timeout_ms": 5000,
    }


def test_a_command_config_with_a_token_is_read() -> None:
    text = 'sasl.mechanism=OAUTHBEARER\nsasl.jaas.config=OAuthBearerLoginModule required token="a.b.c";\n'
    assert settings_of(read_properties(text))["sasl_oauth_token_provider"]() == "a.b.c"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ssl.truststore.type=JKS", "PEM is read here"),
        ("ssl.truststore.password=hunter2", "has no effect here"),
        ("sasl.jaas.config=username=hunter2", "sasl.jaas.config: expected a login module"),
        ("security.protocol=${env:NOT_SET_ANYWHERE}", "unknown environment variable"),
    ],
)
def test_a_setting_without_effect_is_refused_without_showing_its_value(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        settings_of(read_properties(line))
    assert "hunter2" not in str(raised.value)
