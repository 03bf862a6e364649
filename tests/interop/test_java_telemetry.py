"""Tests Java clients that push their metrics to the broker (KIP-714): the pushed series appear at /metrics."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from conftest import HERE, JAVA_HEAP, or_skip
from foreign_clients import eventually
from librdkafka_client import Librdkafka
from maven import jars, need
from test_metrics import Told, metrics_of

from oncelog.errors import ErrorCode

RELEASES = ("4.1.0", "4.3.1")
RECORDS = 37
SENT = "org.apache.kafka.producer.record.send.total"
READ = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"


@contextmanager
def program(libraries: Path, address: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """Run `Telemetry.java`; kill it at the end if it still runs."""
    source = str(HERE / "java" / "Telemetry.java")
    command = ["java", JAVA_HEAP, "-cp", f"{libraries}/*", source, address, topic, str(RECORDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def pushed(told: Told, name: str, client_instance_id: str) -> float:
    """Return the total of a counter that this client has pushed; a counter for each topic is not more than that."""
    wanted = {("metric", name), ("client_instance_id", client_instance_id)}
    values = [
        value
        for (sample, labels), value in told.samples.items()
        if sample == "oncelog_client_metric_total" and wanted <= labels
    ]
    return max(values, default=0)


def pushes(told: Told, error: ErrorCode) -> float:
    """Return how often a push got this response."""
    labels = frozenset({("error", error.name)})
    return told.samples.get(("oncelog_client_metrics_pushes_total", labels), 0)


@pytest.mark.parametrize("release", RELEASES)
def test_the_metrics_of_producers_and_consumers_are_shown(release: str, topic: str, tmp_path: Path) -> None:
    or_skip(lambda: need("java", "javac", "mvn"))
    libraries = or_skip(lambda: jars(HERE / "java" / "pom.xml", release, "java"))
    with BrokerProcess(tmp_path / "data", {"http.listener": "0"}) as broker:
        with closing(Librdkafka(broker.address)) as client:
            client.create_topic(topic, 1)
        with program(libraries, broker.address, topic) as java:
            assert java.stdout is not None
            producer, consumer = (java.stdout.readline().strip() for _ in range(2))

            def is_shown() -> bool:
                told = metrics_of(broker)
                return (pushed(told, SENT, producer), pushed(told, READ, consumer)) == (RECORDS, RECORDS)

            eventually(is_shown, "the counters have what was sent and read")
            assert metrics_of(broker)("kafka_server_client_metrics_instance_count") == 2
            assert java.stdin is not None
            java.stdin.write("\n")
            java.stdin.flush()
            assert java.stdout.readline() == "closed\n"
            told = metrics_of(broker)
            assert pushed(told, SENT, producer) == RECORDS, "the last push adds nothing twice"
            assert told("oncelog_client_metrics_pushes_total", error="NONE") >= 4
            assert {error for error in ErrorCode if pushes(told, error)} == {ErrorCode.NONE}
