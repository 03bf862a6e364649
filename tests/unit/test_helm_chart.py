"""The chart in deploy/helm renders the content of deploy/kubernetes.yaml, and what its values request.

The tests are skipped if helm is not installed; `make helm` builds it.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.helm import needed
from tests.support.prometheus import RULES

from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.load import load_broker_config

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "oncelog"
KUBERNETES = "1.31.0"
ONLY_OF_THE_CHART = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
"""Labels that users of helm expect, and that manifests without releases do not have."""


def helm(*arguments: str) -> str:
    done = subprocess.run([needed(), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(release: str = "oncelog", **values: str) -> list[dict[str, Any]]:
    """Render the chart; return the manifests. `config__retention` sets the value config.retention."""
    options = [f"--set={key.replace('__', '.')}={value}" for key, value in values.items()]
    text = helm("template", release, str(CHART), "--kube-version", KUBERNETES, "--namespace", "streams", *options)
    return [each for each in yaml.safe_load_all(text) if each is not None]


def without_chart_labels(value: Any) -> Any:
    """Return the manifest without the chart's own labels and without settings that equal the defaults."""
    if isinstance(value, Mapping):
        return {
            key: without_chart_labels(each)
            for key, each in value.items()
            if key not in ONLY_OF_THE_CHART and key != "imagePullPolicy"
        }
    return [without_chart_labels(each) for each in value] if isinstance(value, list) else value


def by_name(manifests: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(each["kind"], each["metadata"]["name"]): without_chart_labels(each) for each in manifests}


def test_helm_finds_no_fault_with_the_chart() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_the_chart_renders_the_manifests_of_kubernetes_yaml() -> None:
    plain = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
    assert by_name(rendered()) == by_name(plain)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"networkPolicy": "false", "storage__className": "fast", "monitoring__annotations": "false"},
        {"nodeSelector__disk": "ssd", "image__pullSecrets[0]__name": "registry", "envFrom[0]__secretRef__name": "keys"},
    ],
    ids=["defaults", "less", "more"],
)
def test_kubernetes_accepts_what_the_chart_renders(values: dict[str, str], tmp_path: Path) -> None:
    import kubernetes_validate

    for manifest in rendered(**values):
        kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_the_operator_of_prometheus_gets_the_monitor_and_the_alerts() -> None:
    manifests = rendered(monitoring__podMonitor="true", monitoring__alerts="true", monitoring__labels__release="prom")
    found = {each["kind"]: each for each in manifests}
    assert found["PrometheusRule"]["spec"] == yaml.safe_load(RULES.read_text())
    plain = yaml.safe_load(RULES.with_name("podmonitor.yaml").read_text())
    assert without_chart_labels(found["PodMonitor"]["spec"]) == plain["spec"]
    assert all(found[kind]["metadata"]["labels"]["release"] == "prom" for kind in ("PodMonitor", "PrometheusRule"))
    ours = found["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert found["PodMonitor"]["spec"]["selector"]["matchLabels"] == ours


def test_settings_of_the_values_reach_the_brokers() -> None:
    manifests = rendered(**{"config__num\\.partitions": "7", "brokers": "5"})
    stateful = next(each for each in manifests if each["kind"] == "StatefulSet")
    assert stateful["spec"]["replicas"] == 5
    variables = {
        each["name"]: each.get("value") for each in stateful["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    environment = {"ONCELOG_NUM_PARTITIONS": variables["ONCELOG_NUM_PARTITIONS"] or ""}
    config = load_broker_config(ROOT / "deploy" / "broker.properties", environment)
    assert config[BROKER_KEYS["num.partitions"]] == 7


def test_two_releases_in_a_namespace_have_nothing_in_common() -> None:
    first, second = rendered("orders"), rendered("billing")
    assert not by_name(first).keys() & by_name(second).keys()
    selectors = [
        next(each for each in manifests if each["kind"] == "StatefulSet")["spec"]["selector"]["matchLabels"]
        for manifests in (first, second)
    ]
    assert selectors[0] != selectors[1]
    advertised = yaml.safe_dump(next(each for each in first if each["kind"] == "StatefulSet"))
    assert re.search(r"\$\(POD_NAME\)\.orders-oncelog-brokers\.\$\(POD_NAMESPACE\)\.svc", advertised)


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
