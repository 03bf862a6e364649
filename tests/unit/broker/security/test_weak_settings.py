"""Every weak setting causes one warning at the start, and other settings cause none (E56)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.runtime.private_files import readable_by_others
from oncelog_broker.security.weak_settings import StoreFile, warn_of_weak_settings, weak_settings

EVERYWHERE = {"listeners": "SASL_PLAINTEXT://0.0.0.0:9092", "security.inter.broker.protocol": "SASL_PLAINTEXT"}
LOOPBACK = {**EVERYWHERE, "listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}
OVER_TLS = {"listeners": "SASL_SSL://0.0.0.0:9092", "security.inter.broker.protocol": "SASL_SSL"}
ZOOKEEPER = {"zookeeper.connect": "zoo1:2182"}
JWKS = {"sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys", "sasl.oauthbearer.expected.audience": "oncelog"}
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
IDENTITY = {"zookeeper.digest.user": "brokers", "zookeeper.digest.password": "secret"}

WEAK: list[tuple[Mapping[str, str], list[str]]] = [
    ({}, []),
    ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, []),
    ({**EVERYWHERE, "sasl.enabled.mechanisms": "PLAIN"}, ["read the passwords"]),
    ({**EVERYWHERE, "sasl.enabled.mechanisms": "PLAIN", "listeners": "SASL_PLAINTEXT://:9092"}, ["the passwords"]),
    ({**EVERYWHERE, "sasl.enabled.mechanisms": "OAUTHBEARER", **JWKS}, ["read the tokens"]),
    ({**EVERYWHERE, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}, []),
    ({**EVERYWHERE, "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN"}, ["PLAIN without TLS"]),
    ({**LOOPBACK, "sasl.enabled.mechanisms": "PLAIN"}, []),
    ({**OVER_TLS, "sasl.enabled.mechanisms": "PLAIN"}, []),
    ({**OVER_TLS, "sasl.enabled.mechanisms": "OAUTHBEARER", **JWKS}, []),
    (
        {**OVER_TLS, "sasl.enabled.mechanisms": "OAUTHBEARER", **JWKS, "sasl.oauthbearer.expected.audience": ""},
        ["for any other service"],
    ),
    (
        {
            **OVER_TLS,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.allow.unsecured.tokens": "true",
        },
        ["anybody may be anybody"],
    ),
    ({**ZOOKEEPER}, []),
    ({**ZOOKEEPER, **AUTHORIZER}, ["everyone who reaches ZooKeeper"]),
    ({**AUTHORIZER}, []),
    ({**ZOOKEEPER, **LOOPBACK, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, ["everyone who reaches ZooKeeper"]),
    ({**ZOOKEEPER, **LOOPBACK, "sasl.enabled.mechanisms": "PLAIN"}, []),
    ({**ZOOKEEPER, **AUTHORIZER, **IDENTITY, "zookeeper.set.acl": "true"}, []),
    (
        {**ZOOKEEPER, **OVER_TLS, "sasl.enabled.mechanisms": "PLAIN", "ssl.endpoint.identification.algorithm": ""},
        ["host names"],
    ),
    ({**OVER_TLS, "sasl.enabled.mechanisms": "PLAIN", "ssl.endpoint.identification.algorithm": ""}, []),
]


@pytest.mark.parametrize(("settings", "expected"), WEAK)
def test_e56_each_weak_setting_has_a_warning(settings: Mapping[str, str], expected: list[str]) -> None:
    found = list(weak_settings(BrokerConfig.of(dict(settings))))
    assert len(found) == len(expected), found
    for weakness, words in zip(found, expected, strict=True):
        assert words in weakness.reason


@pytest.mark.parametrize("is_readable", [False, True])
@pytest.mark.parametrize("has_users", [False, True])
def test_e56_a_world_readable_users_file_has_a_warning(
    is_readable: bool, has_users: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_weak_settings(BrokerConfig.of({}), StoreFile("/data/metadata.db", is_readable, has_users))
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == (is_readable and has_users)
    assert all("chmod 600 /data/metadata.db" in each for each in warned)


def test_a_file_is_readable_by_others_if_all_above_it_lets_them_pass(tmp_path: Path) -> None:
    for each in (tmp_path, *tmp_path.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o001)  # the directories that pytest created
    inner = tmp_path / "data"
    inner.mkdir()
    path = inner / "metadata.db"
    assert not readable_by_others(path)
    path.touch()
    for mode, directory_mode, expected in (
        (0o644, 0o755, True),
        (0o640, 0o755, False),
        (0o600, 0o755, False),
        (0o644, 0o750, False),
        (0o644, 0o700, False),
    ):
        path.chmod(mode)
        inner.chmod(directory_mode)
        assert readable_by_others(path) is expected
