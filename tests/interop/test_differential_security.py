"""Compares oncelog's broker with Apache Kafka when clients must log in and do not have all rights."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from conftest import or_skip
from tests.interop.differential.known import KNOWN
from tests.interop.differential.logged_in import SETTINGS, LoggedIn, prepare
from tests.interop.differential.register import stale, unexplained
from tests.interop.differential.scenario import Scenario, play
from tests.interop.differential.scenarios import SECURED
from tests.interop.differential.side import NODE_ID, RELEASE

KAFKA = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OURS = {
    "node.id": str(NODE_ID),
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": "StandardAuthorizer",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    data: Path = tmp_path_factory.mktemp("apache-secured") / "data"
    with or_skip(lambda: ApacheKafka(RELEASE, data, {**SETTINGS, **KAFKA}, has_logins=True)) as kafka:
        LoggedIn.plain_ports[kafka.sasl_port] = kafka.port
        prepare(kafka.port)
        yield kafka


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port on which clients must log in."""
    with BrokerProcess(tmp_path_factory.mktemp("secured") / "data", {**SETTINGS, **OURS}) as broker:
        plain, sasl = (int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", broker.start_line))
        LoggedIn.plain_ports[sasl] = plain
        prepare(plain)
        yield sasl
        assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize("scenario", SECURED, ids=lambda scenario: scenario.name)
def test_both_brokers_answer_alike(scenario: Scenario, kafka: ApacheKafka, ours: int) -> None:
    outcome = play(scenario, kafka.sasl_port, ours, uuid.uuid4().hex[:6], LoggedIn)
    new = [f"a difference that no row of docs/differences.md explains: {one}" for one in unexplained(outcome, KNOWN)]
    gone = [f"a known difference that is gone: {entry}" for entry in stale(scenario.name, outcome, KNOWN)]
    assert not new + gone, "\n".join(new + gone)
    assert outcome.answers, "nothing was compared"
