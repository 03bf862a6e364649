"""The alerts of deploy/prometheus: each uses metrics that brokers export, fires in the state that it describes, and
names the remedy.

oncelog's own metrics code renders a state, and Prometheus' own promtool evaluates the alerts on it.
tests/integration/cases/test_alerts_live.py and tests/cluster/test_metrics_of_a_cluster.py test the alerts that a live
broker or cluster can be made to raise cheaply.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.support.prometheus import ROOT, RULES, alerts, firing, needed

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metrics import cluster_families, own_families, process_families
from oncelog_broker.metrics.families import FAMILIES
from oncelog_broker.metrics.scraping import text_of
from oncelog_broker.metrics.source import Source
from oncelog_broker.observability.loop_watch import LoopWatch
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.steps import run_steps

sys.path.append(str(ROOT / "deploy"))

from grafana_panels import asked, grouping

LIVE = {
    "tests/integration/cases/test_alerts_live.py": {
        "OncelogBrokerDown",
        "OncelogTransactionHangs",
        "OncelogPreparedTransactionWaits",
    },
    "tests/cluster/test_metrics_of_a_cluster.py": {
        "OncelogNoController",
        "OncelogPartitionsOffline",
        "OncelogUnderMinIsr",
        "OncelogUnderReplicated",
    },
}
"""Test file -> the alerts that fire in this test on metrics of live brokers."""
OF_PROMETHEUS = {"up"}
ADDED = {"job", "instance"}
"""Metrics and labels that Prometheus adds to those of brokers."""
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class State:
    """The part of a broker's state that the metrics in this test show; the state is healthy by default."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.busy_seconds = 0.0
        self.loop = LoopWatch(self.clock.monotonic, lambda: self.busy_seconds)
        self.machine = SimpleNamespace(open_transactions=0, open_without_timeout=0, oldest_seconds=lambda: 0.0)
        self.machine.transactions = {}
        self.replicas = SimpleNamespace(offline=0, is_leaving=False, may_lead=lambda: True)
        self.services = SimpleNamespace(
            config=BrokerConfig({}),
            clock=self.clock,
            replicas=self.replicas,
            transactions=SimpleNamespace(
                runtime=SimpleNamespace(machines=lambda: [self.machine]), markers_outstanding=0
            ),
            key_ages=lambda: [("PLAINTEXT", self.keys_age)],
            producer_ids=SimpleNamespace(blocks_taken=1),
        )
        self.keys_age = 0.0
        self.free_bytes = 50_000
        self.open_files = 100

    def scrape(self) -> str:
        """Return the text of the metric families that the tested alerts use."""
        limits = SimpleNamespace(requests=SimpleNamespace(used=0), answers=SimpleNamespace(used=0))
        connections = SimpleNamespace(limits=limits)
        source = Source(SimpleNamespace(services=self.services, loop=self.loop, connections=connections))  # type: ignore[arg-type]
        source.open_files = self.open_files
        source.rooms = {"/data": (100_000, self.free_bytes)}
        source.cluster.is_controller = True
        pieces = [
            b"".join(run_steps(text_of(family, family.read(source))))
            for families in (own_families, cluster_families, process_families)
            for family in families.families.declared
        ]
        return b"".join(pieces).decode()


def transaction_open_for(state: State) -> None:
    state.machine.open_transactions = 1
    state.machine.oldest_seconds = lambda: 2000.0


def session_in_doubt(state: State) -> None:
    state.replicas.may_lead = lambda: False


def logs_offline(state: State) -> None:
    state.replicas.offline = 3


def almost_full(state: State) -> None:
    state.free_bytes = 9_000


def few_descriptors(state: State) -> None:
    state.open_files = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 0.9)


def fills_up(state: State) -> None:
    state.free_bytes -= 500


def stalls(state: State) -> None:
    state.loop.note(20.0)


def busy(state: State) -> None:
    state.clock.advance_ms(60_000)
    state.busy_seconds += 58.0


def old_keys(state: State) -> None:
    state.keys_age = 10_000.0


STATES: dict[str, Callable[[State], None]] = {
    "OncelogSessionInDoubt": session_in_doubt,
    "OncelogReplicasOffline": logs_offline,
    "OncelogTransactionOpenForLong": transaction_open_for,
    "OncelogDiskAlmostFull": almost_full,
    "OncelogDiskFillsUp": fills_up,
    "OncelogFewDescriptorsLeft": few_descriptors,
    "OncelogLoopStalls": stalls,
    "OncelogBrokerBusy": busy,
    "OncelogLoginKeysOld": old_keys,
}
"""Alert -> the function that changes the state before each scrape."""
GROWING = {"OncelogDiskFillsUp", "OncelogLoopStalls"}
"""Alerts that fire when a value changes between scrapes; for these, each scrape must have another value."""


def scrapes_of(change: Callable[[State], None], count: int) -> Iterator[str]:
    state = State()
    for _ in range(count):
        change(state)
        yield state.scrape()


@pytest.mark.parametrize("alert", STATES)
def test_an_alert_fires_in_its_state_alone(alert: str, tmp_path: Path) -> None:
    count = 60 if alert in GROWING else 2
    assert firing({"a:9404": list(scrapes_of(STATES[alert], count))}, [alert], tmp_path) == ""


def test_no_alert_fires_for_a_healthy_broker(tmp_path: Path) -> None:
    assert firing({"a:9404": [State().scrape()]}, [], tmp_path) == ""


def test_a_transaction_without_timeout_alone_is_not_called_long(tmp_path: Path) -> None:
    def prepared(state: State) -> None:
        transaction_open_for(state)
        state.machine.open_without_timeout = 1

    assert firing({"a:9404": list(scrapes_of(prepared, 2))}, ["OncelogPreparedTransactionWaits"], tmp_path) == ""


def test_each_alert_is_made_to_fire_by_a_test() -> None:
    live = set().union(*LIVE.values())
    assert STATES.keys() | live == alerts().keys()
    for file, names in LIVE.items():
        assert all(name in (ROOT / file).read_text() for name in names)


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_asks_for_metrics_and_labels_that_brokers_export(alert: str) -> None:
    declared = {family.name: set(family.labels) for family in FAMILIES}
    declared |= {f"{family.name}_sum": set(family.labels) for family in FAMILIES if family.kind == "histogram"}
    expression = alerts()[alert]["expr"]
    names = {metric.name for metric in asked(expression)}
    assert names and names <= declared.keys() | OF_PROMETHEUS
    labels = ADDED.union(*(declared.get(name, set()) for name in names))
    assert grouping(expression) <= labels
    shown = re.findall(r"\$labels\.(\w+)", str(alerts()[alert]["annotations"]))
    assert set(shown) <= labels


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_says_how_bad_it_is_what_happened_and_where_the_remedy_stands(alert: str) -> None:
    rule = alerts()[alert]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description", "runbook"} == rule["annotations"].keys()
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = HEADING.findall((ROOT / "docs" / "guides" / page).read_text())
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_prometheus_accepts_the_rules_and_the_configuration() -> None:
    config = RULES.with_name("prometheus.yaml")
    done = subprocess.run([needed("promtool"), "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checked: Any = re.search(r"(\d+) rules found", done.stdout)
    assert int(checked[1]) == len(alerts())


def test_the_example_configuration_reads_what_the_compose_file_publishes() -> None:
    config = yaml.safe_load(RULES.with_name("prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    (targets,) = [each["targets"] for each in job["static_configs"]]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    published = [port.rpartition(":")[0] for service in services for port in service.get("ports", [])]
    assert job["job_name"] == "oncelog"
    assert set(targets) <= set(published)
