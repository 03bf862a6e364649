"""Tests `oncelog support bundle` with a broker that has secrets of every kind: the bundle contains the state, and no
secret.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerFactory
from raw_client import RawClient
from secured_broker import ADMIN, ADMIN_PASSWORD, PASSWORD, SecuredBroker
from warm_commands import run_oncelog_text

from oncelog_broker.local_cluster.ports import own_ports

STORE_PASSWORD = "store-secret-7261"
INLINE_PASSWORD = "inline-secret-9912"


def members(archive: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            yield member.name.partition("/")[2], file.read().decode()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    (port,) = own_ports(1)
    settings = {
        "http.listener": f"127.0.0.1:{port.number}",
        "ssl.truststore.password": STORE_PASSWORD,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="x" password="{INLINE_PASSWORD}";'
        ),
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        yield broker


def test_a_bundle_has_the_state_and_no_secret_of_a_configured_cluster(secured: SecuredBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{ADMIN_PASSWORD}";\n'
    )
    log = tmp_path / "broker.log"
    key = secured.store_file.read_text()
    log.write_text(
        secured.logged + f"\nlogged by mistake: password={PASSWORD!r} token={secured.token()}\n{key}\nthe end\n"
    )
    archive = tmp_path / "bundle.tar.gz"
    address = secured.address("SASL_PLAINTEXT")
    done = run_oncelog_text(
        "support", "bundle", str(archive), "-b", address, "--command-config", str(config), "--log", str(log)
    )
    assert done.returncode == 0, done.stderr
    assert "could not be read" not in done.stderr
    found = dict(members(archive))
    private = next(line for line in key.splitlines() if len(line) > 50 and "BEGIN" not in line)
    secrets = (ADMIN_PASSWORD, PASSWORD, STORE_PASSWORD, INLINE_PASSWORD, secured.token().split(".")[2], private)
    for name, text in found.items():
        assert not any(secret in text for secret in secrets), name
    assert {"README.txt", "doctor.json", "cluster.json", "groups.json", "transactions.json"} <= found.keys()
    settings = json.loads(found["configs-brokers.json"])
    (of_broker,) = settings.values()
    assert of_broker["sasl.enabled.mechanisms"]["value"].startswith("PLAIN")
    assert of_broker["ssl.truststore.password"]["value"] == "[hidden]"
    assert "kafka_server_kafkaserver_brokerstate 3.0" in next(
        text for name, text in found.items() if "metrics/" in name
    )
    (logged,) = [text for name, text in found.items() if name.startswith("logs/")]
    assert logged.endswith("the end\n")
    assert archive.stat().st_mode & 0o077 == 0, "for its owner only"


def test_a_bundle_of_a_cluster_that_is_away_says_why_and_has_the_logs(tmp_path: Path) -> None:
    (nobody,) = own_ports(1)
    log = tmp_path / "broker.log"
    log.write_text("".join(f"line {number}\n" for number in range(50)))
    archive = tmp_path / "bundle.tar.gz"
    done = run_oncelog_text(
        "support", "bundle", str(archive), "-b", f"127.0.0.1:{nobody.number}", "--log", str(log), "--lines", "3"
    )
    assert done.returncode == 0, done.stderr
    assert "could not be read: the cluster" in done.stderr
    found = dict(members(archive))
    assert "cannot reach" in json.loads(found["cluster.json"])["error"]
    assert next(text for name, text in found.items() if name.startswith("logs/")) == "line 47\nline 48\nline 49\n"


def test_a_broker_without_an_http_listener_is_named(broker_factory: BrokerFactory, topic: str, tmp_path: Path) -> None:
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    archive = tmp_path / "bundle.tar.gz"
    done = run_oncelog_text("support", "bundle", str(archive), "-b", broker.address)
    assert done.returncode == 0, done.stderr
    found = dict(members(archive))
    (text,) = [text for name, text in found.items() if name.startswith("metrics/")]
    assert "http.listener is not set" in text
    assert f"{topic}-0" in json.loads(found["cluster.json"])["partitions"]


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    done = run_oncelog_text("support", "bundle", str(tmp_path / "bundle.zip"))
    assert done.returncode == 2
    assert "the archive is a .tar.gz" in done.stderr
