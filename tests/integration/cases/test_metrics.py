"""Tests the metrics that a live broker serves over HTTP about its clients' requests, and that its readiness is
correct.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import RawClient, produce_request
from raw_transactions import RawTransactions
from sharing_member import sharing
from tests.support.storage import make_batch
from tests.support.zookeeper.cutting_proxy import CuttingProxy

from oncelog_broker.local_cluster.ports import own_ports
from oncelog_broker.metrics.families import FAMILIES
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.quotas import OF_CLIENTS

DEPLOY = Path(__file__).parents[3] / "deploy"
sys.path.append(str(DEPLOY))

from grafana_panels import grouping, missing, panels, told  # noqa: E402

NEEDS_FOLLOWERS = {"oncelog_follower_lag_records"}
NEEDS_SUBSCRIPTIONS = {"oncelog_client_metric", "oncelog_client_metric_total"}
"""tests/integration/cases/test_client_metrics.py tests that these metrics have samples"""
OUT_OF_ORDER, INVALID_EPOCH = 45, 47
SESSION_MS = "2000"


class Told:
    """The metrics of a broker at one point in time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]


SCRAPER_ACCEPTS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
"""The Accept header of Prometheus, and of an OpenTelemetry Collector, which uses Prometheus' code."""


def http_of(broker: BrokerProcess) -> str:
    match = re.search(r"http on (\S+?)\)", broker.start_line)
    assert match, broker.start_line
    return f"http://{match[1]}"


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics_of(broker: BrokerProcess) -> Told:
    status, text = read(f"{http_of(broker)}/metrics")
    assert status == 200
    return Told(text)


def until(broker: BrokerProcess, is_so: Callable[[Told], bool], what: str) -> Told:
    """Wait until the metrics are as expected, because metrics may be slightly old and may lack a new topic."""
    found: list[Told] = []

    def look() -> bool:
        found.append(metrics_of(broker))
        try:
            return is_so(found[-1])
        except KeyError:
            return False

    eventually(look, what)
    return found[-1]


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # metrics about the last seconds then keep their values for longer
    settings = {"http.listener": "0", "quota.window.num": "101"}
    broker = BrokerProcess(tmp_path_factory.mktemp("metrics") / "data", settings)
    broker.start()
    yield broker
    broker.stop()


def test_errors_of_producers_are_counted_by_topic(telling: BrokerProcess, topic: str) -> None:
    with RawClient(telling.port) as client:
        client.create_topic(topic)
        producer = RawTransactions(client, f"{topic}-id")
        producer.take_over()
        producer.write(topic)
        before = metrics_of(telling)("oncelog_producer_id_blocks_total")
        assert producer.produce(topic, sequence=0) == 0, "the same again"
        assert producer.produce(topic, sequence=7) == OUT_OF_ORDER
        fenced = producer.producer
        assert producer.end() == 0
        producer.take_over()
        producer.write(topic)
        assert producer.produce(topic, asking=fenced, sequence=0) != 0
        assert producer.end() == 0
    found = until(telling, lambda told: told("oncelog_producer_fenced_total", topic=topic) == 1, "all is counted")
    assert found("oncelog_producer_duplicates_total", topic=topic, outcome="answered") == 1
    assert found("oncelog_producer_gaps_total", topic=topic) == 1
    assert before == 1


def test_an_open_transaction_is_exported_with_the_records_it_holds_back(telling: BrokerProcess, topic: str) -> None:
    lag = "kafka_cluster_partition_laststableoffsetlag"
    with RawClient(telling.port) as client:
        client.create_topic(topic)
        producer = RawTransactions(client, f"{topic}-id")
        producer.take_over()
        producer.write(topic)
        producer.write(topic)
        found = until(telling, lambda told: told(lag, topic=topic, partition="0") == 2, "two records are held back")
        assert found("oncelog_transactions_open") == 1
        assert found("oncelog_transactions_oldest_open_seconds") > 0
        assert producer.end() == 0
    found = until(telling, lambda told: told(lag, topic=topic, partition="0") == 0, "nothing is held back")
    assert found("oncelog_transactions_open") == 0
    assert found("oncelog_transactions_oldest_open_seconds") == 0
    found = until(telling, lambda told: told("oncelog_transaction_markers_outstanding") == 0, "the marker is written")
    assert found("kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 3, "two records and a marker"


def test_traffic_is_counted_and_survives_a_deleted_topic(telling: BrokerProcess, topic: str) -> None:
    names = [f"kafka_server_brokertopicmetrics_{name}_total" for name in ("bytesin", "bytesout", "messagesin")]
    with RawClient(telling.port) as client:
        client.create_topic(topic)
        producer = RawTransactions(client, f"{topic}-id")
        producer.take_over()
        producer.write(topic)
        assert producer.end() == 0
        assert client.fetch(topic, 0, 0)
        found = until(telling, lambda told: told(names[1], topic=topic) > 0, "it was read")
        of_topic, of_all = [found(name, topic=topic) for name in names], [found(name) for name in names]
        assert of_topic[2] == 2
        assert found("kafka_log_log_logendoffset", topic=topic, partition="0") == 2
        assert found("kafka_log_log_size", topic=topic, partition="0") >= of_topic[0]
        delete(client, topic)
        is_gone = frozenset({("topic", topic)})
        after = until(telling, lambda told: (names[0], is_gone) not in told.samples, "the topic is gone")
    assert all(after(name) >= before for name, before in zip(names, of_all, strict=True))


def delete(client: RawClient, topic: str) -> None:
    answer = client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), ApiKey.DELETE_TOPICS, 5)
    assert answer.responses[0].error_code == 0


def test_a_topic_has_no_series_until_it_is_used(telling: BrokerProcess, topic: str) -> None:
    idle = f"{topic}-idle"
    with RawClient(telling.port) as client:
        client.create_topic(topic)
        client.create_topic(idle)
        producer = RawTransactions(client, f"{topic}-id")
        producer.take_over()
        producer.write(topic)
        assert producer.end() == 0
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    found = until(telling, lambda told: told(name, topic=topic) > 0, "it is told of the used one")
    assert f'topic="{idle}"' not in found.text
    assert found("kafka_log_log_logendoffset", topic=topic, partition="0") == 2
    assert found("kafka_server_replicamanager_partitioncount") >= 2
    with RawClient(telling.port) as client:
        assert client.fetch(idle, 0, 0) is not None
    found = until(telling, lambda told: f'topic="{idle}"' in told.text, "to be read is to be used")
    assert found("kafka_log_log_logendoffset", topic=idle, partition="0") == 0


def test_each_metric_is_exported_as_declared(telling: BrokerProcess, topic: str, group: str) -> None:
    make_traffic(telling, topic)
    with sharing(telling.address, topic, group, 1):
        text = until(telling, lambda told: f'group="{group}"' in told.text, "the share partition is exported").text
    heads = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert heads == {family.name: family.kind for family in FAMILIES}
    samples = told(text)
    for family in FAMILIES:
        labels = [set(sample) for sample in samples.get(family.name, samples.get(f"{family.name}_sum", []))]
        assert labels or family.name in NEEDS_FOLLOWERS | NEEDS_SUBSCRIPTIONS, f"{family.name} has no sample"
        without_topic = set[str]() if "brokertopicmetrics" in family.name else set(family.labels)
        assert all(each in (set(family.labels), without_topic) for each in labels), (family.name, labels)


def set_quotas(client: RawClient, **quotas: float) -> None:
    """Set the quotas of each user."""
    entry = AlterClientQuotasRequest.EntryData
    whom = entry.EntityData(entity_type="user", entity_name=None)
    ops = [entry.OpData(key=key, value=value, remove=False) for key, value in quotas.items()]
    request = AlterClientQuotasRequest(entries=[entry(entity=[whom], ops=ops)], validate_only=False)
    assert client.call(request, ApiKey.ALTER_CLIENT_QUOTAS, 1).entries[0].error_code == 0


def make_traffic(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        set_quotas(client, **dict.fromkeys(OF_CLIENTS, 1e9))
        client.create_topic(topic)
        producer = RawTransactions(client, f"{topic}-id", is_v2=True)
        producer.take_over()
        producer.write(topic)
        assert producer.end() == 0
        client.fetch(topic, 0, 0)
    wanted = f'kafka_server_brokertopicmetrics_totalfetchrequests_total{{topic="{topic}"}} 1.0'
    until(broker, lambda told: wanted in told.text, "the traffic is told")


def test_quota_usage_and_waiting_are_exported(telling: BrokerProcess, topic: str) -> None:
    with RawClient(telling.port) as client:
        client.create_topic(topic)
        set_quotas(client, producer_byte_rate=10, controller_mutation_rate=1000)
        writer, batch = f"writer-of-{topic}", make_batch(b"v" * 50_000)
        client.send(produce_request(topic, 0, batch), ApiKey.PRODUCE, 9, writer)
        throttle_ms = client.receive().throttle_time_ms
    assert throttle_ms > 0
    with RawClient(telling.port) as client:
        set_quotas(client, producer_byte_rate=1e9)  # a higher quota lets the throttled requests end soon
    of_all = {"user": "ANONYMOUS", "client_id": ""}
    found = until(
        telling, lambda told: told("kafka_server_produce_throttle_time", **of_all) > 0, "somebody was told to wait"
    )
    assert found("kafka_server_produce_byte_rate", **of_all) > 0
    assert found("kafka_server_socket_server_metrics_connection_creation_total", listener="PLAINTEXT") >= 2
    assert writer not in found.text, "they share the quota of the user"


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "oncelog.json").read_text())
    return found


def test_each_panel_of_our_dashboard_fills(telling: BrokerProcess, topic: str, group: str) -> None:
    make_traffic(telling, topic)
    with sharing(telling.address, topic, group, 1):
        found = until(telling, lambda told: f'group="{group}"' in told.text, "the share partition is exported")
    metrics = told(found.text)
    shown = list(panels(dashboard()))
    assert len(shown) > 30
    lacking = {reason for panel in shown for query in panel.queries for reason in missing(query, metrics)}
    assert lacking <= NEEDS_FOLLOWERS


def test_a_collector_of_opentelemetry_finds_what_it_is_told_to_ask_for(telling: BrokerProcess, topic: str) -> None:
    """With deploy/otel-collector.yaml, the Collector scrapes the broker successfully in a format that it reads, and
    gets each sample once.
    """
    text = (DEPLOY / "otel-collector.yaml").read_text()
    config = yaml.safe_load(text.replace("${env:ONCELOG_HTTP}", http_of(telling).removeprefix("http://")))
    (job,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    asked = urllib.request.Request(f"http://{target}{job['metrics_path']}", headers={"Accept": SCRAPER_ACCEPTS})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) > 50
    assert len(set(series)) == len(series)
    for pipeline in config["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= config[part].keys()


def test_our_dashboard_groups_by_labels_that_are_there() -> None:
    declared = {label for family in FAMILIES for label in family.labels} | {"instance", "le"}
    assert {label for panel in panels(dashboard()) for query in panel.queries for label in grouping(query)} <= declared


@pytest.mark.parametrize(
    ("query", "lacks"),
    [
        ("sum by (topic) (rate(bytes_total{job=~\"$job\",topic=~\"a.*\"}[5m])) > 0", []),
        ("bytes_total{topic!=\"\"} / gone", ["gone"]),
        ("max(bytes_total{topic=\"b\"})", ["bytes_total{topic=b}"]),
        ("bytes_total{elsewhere=\"$x\"}", ["bytes_total{elsewhere=$x}"]),
    ],
)  # fmt: skip
def test_a_query_that_does_not_fill_is_found(query: str, lacks: list[str]) -> None:
    assert missing(query, {"bytes_total": [{}, {"topic": "abc"}]}) == lacks


# --- clients that misbehave


def test_misbehaving_http_clients_block_no_other(telling: BrokerProcess, topic: str) -> None:
    port = int(http_of(telling).rpartition(":")[2])
    held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(50)]
    try:
        for number, each in enumerate(held):
            try:
                each.sendall(
                    (b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" * 50)[number % 2]
                )
            except ConnectionError:
                pass  # the server closed this connection to accept another one
        assert read(f"{http_of(telling)}/health/live")[0] == 200
        make_traffic(telling, topic)
    finally:
        for each in held:
            each.close()


# --- the broker's readiness, as reported over HTTP


def test_a_broker_that_waits_for_its_metadata_lives_and_is_not_ready(tmp_path: Path) -> None:
    own = own_ports(2)
    port, nobody = [each.number for each in own]
    command = [str(Path(sys.executable).parent / "oncelog"), "serve", "--data", str(tmp_path / "data")]
    command += ["--http", str(port), "--set", f"zookeeper.connect=127.0.0.1:{nobody}"]
    command += ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "zookeeper.connection.timeout.ms=120000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            eventually(lambda: is_listening(port), "the listener is there")
            assert read(f"http://127.0.0.1:{port}/health/live")[0] == 200
            status, said = read(f"http://127.0.0.1:{port}/health/ready")
            assert (status, json.loads(said)["reasons"]) == (503, ["the metadata store is opened"])
            assert read(f"http://127.0.0.1:{port}/metrics")[0] == 503
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_broker_whose_session_is_in_doubt_is_not_ready_until_it_is_settled(
    zookeeper_proxy: CuttingProxy, broker_factory: Callable[..., BrokerProcess]
) -> None:
    settings = {"http.listener": "0", "zookeeper.session.timeout.ms": SESSION_MS}
    broker = broker_factory({**settings, "zookeeper.connect": zookeeper_proxy.connect_string}).start()
    ready = f"{http_of(broker)}/health/ready"
    eventually(lambda: read(ready)[0] == 200, "the broker is ready")
    zookeeper_proxy.hold()
    eventually(lambda: "may have expired" in read(ready)[1], "the session may have expired")
    assert read(ready)[0] == 503
    assert read(f"{http_of(broker)}/health/live")[0] == 200
    zookeeper_proxy.resume()
    eventually(lambda: read(ready)[0] == 200, "the broker is ready again")


def test_the_metrics_modules_are_not_loaded_without_the_setting(broker_factory: Callable[..., BrokerProcess]) -> None:
    broker = broker_factory().start()
    assert "http" not in broker.start_line
    code = (
        "import sys, oncelog_broker.broker; print([n for n in sys.modules if n.startswith(('uvicorn', 'prometheus'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
