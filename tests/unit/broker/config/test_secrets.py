"""Passwords come only from the permitted sources, and no output shows them. These two rules also apply to passwords in
the settings of single listeners.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.config import security_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import ConfigType, InvalidConfig
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.config.load import environment_settings, load_broker_config
from oncelog_broker.config.overrides import override_key
from oncelog_broker.config.resolve import describe_broker
from oncelog_broker.config.secret import HIDDEN, Secret

PASSWORD = "open sesame"


def test_a_secret_shows_nothing_but_when_it_is_asked():
    secret = Secret(PASSWORD)
    assert (str(secret), repr(secret), f"{secret}", f"{[secret]}") == (HIDDEN, HIDDEN, HIDDEN, f"[{HIDDEN}]")
    assert secret.reveal() == PASSWORD
    assert secret == Secret(PASSWORD)
    assert secret != Secret("other")
    assert secret != PASSWORD


def test_every_password_is_a_secret_and_described_without_a_value():
    passwords = [key for key in vars(keys).values() if getattr(key, "type", None) is ConfigType.PASSWORD]
    assert {"ssl.key.password", "sasl.jaas.config", "ssl.keystore.key"} <= {key.name for key in passwords}
    config = BrokerConfig.of(
        {key.name: PASSWORD for key in passwords} | {f"listener.name.a.{keys.SASL_JAAS_CONFIG.name}": PASSWORD}
    )
    assert all(isinstance(config[key], Secret) for key in passwords)
    described = describe_broker(config)
    assert PASSWORD not in str(described)
    assert {line.name for line in described if line.key.is_sensitive} >= {key.name for key in passwords}


def test_values_from_files_and_the_environment(tmp_path: Path):
    (tmp_path / "whole").write_text(PASSWORD + "\n")
    (tmp_path / "keys.properties").write_text(f"a=1\nb={PASSWORD}\n")
    for reference in (f"${{file:{tmp_path}/whole}}", f"${{file:{tmp_path}/keys.properties:b}}", "${env:SECRET}"):
        config = load_broker_config(None, {"SECRET": PASSWORD}, [f"ssl.key.password={reference}"])
        password = config[keys.SSL_KEY_PASSWORD]
        assert password is not None
        assert password.reveal() == PASSWORD
    config = load_broker_config(None, {"A": "b", "C": "d"}, ["ssl.key.password=x${env:A}y${env:C}z"])
    assert config[keys.SSL_KEY_PASSWORD] == Secret("xbydz")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("${env:NOT_SET}", "there is no environment variable NOT_SET"),
        ("${file:/nonexistent}", "the file cannot be read: No such file"),
        ("${vault:x}", "expected \\${env:NAME}"),
    ],
)
def test_a_reference_to_a_missing_secret_is_refused(reference: str, words: str):
    with pytest.raises(InvalidConfig, match=words):
        load_broker_config(None, {}, [f"ssl.key.password={reference}"])


def test_a_key_missing_from_a_secrets_file_is_refused(tmp_path: Path):
    (tmp_path / "keys.properties").write_text(f"b={PASSWORD}\n")
    with pytest.raises(InvalidConfig, match="the file has no key a") as raised:
        load_broker_config(None, {}, [f"ssl.key.password=${{file:{tmp_path}/keys.properties:a}}"])
    assert PASSWORD not in str(raised.value)


def test_the_listeners_own_value_goes_first_and_the_mechanisms_before_that():
    config = BrokerConfig.of(
        {
            "connections.max.reauth.ms": "1",
            "listener.name.outside.connections.max.reauth.ms": "2",
            "listener.name.outside.plain.connections.max.reauth.ms": "3",
        }
    )
    key = keys.CONNECTIONS_MAX_REAUTH_MS
    assert ListenerConfig(config, "INSIDE", "PLAIN")[key] == 1
    assert ListenerConfig(config, "OUTSIDE")[key] == 2
    assert ListenerConfig(config, "OUTSIDE", "SCRAM-SHA-256")[key] == 2
    assert ListenerConfig(config, "OUTSIDE", "PLAIN")[key] == 3
    assert (
        ListenerConfig(config, "OUTSIDE", "PLAIN").name_of(key)
        == "listener.name.outside.plain.connections.max.reauth.ms"
    )


@pytest.mark.parametrize(
    "name",
    ["listener.name.a.num.partitions", "listener.name.A.ssl.client.auth", "listener.name.a",
     "listener.name.a.gssapi.sasl.jaas.config", "listener.name.a.plain.ssl.client.auth",
     "listener.name..ssl.client.auth"],
)  # fmt: skip
def test_a_setting_that_no_listener_may_override_is_refused(name: str):
    assert override_key(name) is None
    with pytest.raises(InvalidConfig, match="Unknown configuration"):
        BrokerConfig.of({name: "1"})


def test_bad_values_of_listeners_are_told_with_their_whole_name():
    with pytest.raises(InvalidConfig, match=r"listener\.name\.a\.ssl\.client\.auth: expected .* none, requested"):
        BrokerConfig.of({"listener.name.a.ssl.client.auth": "maybe"})


def test_environment_variables_of_listeners():
    environment = {
        "KAFKA_LISTENER_NAME_OUT__SIDE_SCRAM___SHA___256_SASL_JAAS_CONFIG": "x",
        "ONCELOG_LISTENER_NAME_A_SSL_CLIENT_AUTH": "none",
        "ONCELOG_COMMAND_CONFIG": "/client.properties",
    }
    assert [setting.name for setting in environment_settings(environment)] == [
        "listener.name.out_side.scram-sha-256.sasl.jaas.config",
        "listener.name.a.ssl.client.auth",
    ]
