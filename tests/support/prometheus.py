"""Finds `promtool` and `prometheus` for tests, and evaluates the alerting rules of deploy/prometheus on scrapes.

The programs are searched on PATH and then among earlier downloads in the user's cache. `python -m
tests.support.prometheus` (`make prometheus`) fetches Debian's package and unpacks it into the cache without installing
it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelog" / "prometheus"
PACKAGE: Final = "prometheus"
FETCH_SECONDS: Final = 300
MINUTES: Final = 60
"""How many minutes of Prometheus' time the scrapes of a test cover."""
OF_THE_MACHINE: Final = ("OncelogDiskAlmostFull", "OncelogDiskFillsUp", "OncelogLoopStalls", "OncelogBrokerBusy")
"""Alerts that a live broker may raise only because the machine that runs the tests is full or busy."""

Labels = Mapping[str, str]
Series = dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]


def program(name: str) -> str | None:
    """Return the path of `promtool` or `prometheus` on this machine; None if it is not installed."""
    cached = CACHE / "usr" / "bin" / name
    return shutil.which(name) or (str(cached) if cached.exists() else None)


def needed(name: str) -> str:
    """Return the path of a program; skip the test if the program is not installed."""
    found = program(name)
    if found is None:
        pytest.skip(f"{name} is not here: `make prometheus` fetches Debian's package")
    return found


def alerts() -> dict[str, dict[str, Any]]:
    """Return the declared alerts by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def series_of(scrapes: Sequence[str], labels: Labels) -> Series:
    """Return the samples of the successive scrapes of one broker, with the labels that Prometheus adds."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Series = {}
    for number, text in enumerate(scrapes):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, tuple(sorted({**sample.labels, **labels}.items())))
                values = found.setdefault(key, [float("nan")] * number)
                values.append(sample.value)
    return found


def firing(
    brokers: Mapping[str, Sequence[str]], expected: Iterable[str], directory: Path, *, apart_from: Sequence[str] = ()
) -> str:
    """Check that exactly the expected alerts fire at the end; return promtool's output if other alerts fire, and ""
    otherwise.

    `brokers` maps each instance to its scrapes, one per minute; the last scrape is repeated until the end. An instance
    without a scrape is down. Alerts in `apart_from` may fire or not.
    """
    inputs = []
    for instance, scrapes in brokers.items():
        labels = {"job": "oncelog", "instance": instance}
        inputs.append(_input("up", labels, [1.0 if scrapes else 0.0]))
        for (name, all_labels), values in series_of(scrapes, labels).items():
            inputs.append(_input(name, dict(all_labels), values))
    others = f',alertname!~"{"|".join(apart_from)}"' if apart_from else ""
    fired = f'group by (alertname) (ALERTS{{alertstate="firing"{others}}})'
    names = sorted(set(expected))
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]
    case = {
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [{"expr": fired, "eval_time": f"{MINUTES}m", "exp_samples": samples}],
    }
    file = directory / f"rules-{len(list(directory.iterdir()))}.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run(
        [needed("promtool"), "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _input(name: str, labels: Labels, values: Sequence[float]) -> dict[str, str]:
    told = ",".join(f"{key}={_quoted(value)}" for key, value in labels.items())
    shown = " ".join("_" if value != value else f"{value!r}" for value in values)
    last = f"{values[-1]!r}+0x{MINUTES}"
    return {"series": f"{name}{{{told}}}", "values": f"{shown} {last}"}


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def fetch() -> str | None:
    """Unpack Debian's package into the cache. Returns None after success, or the reason why the package could not be
    unpacked.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "there is no apt-get; install Prometheus, with promtool, by your package manager"
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="prometheus-", dir=CACHE.parent) as directory:
        done = _run(["apt-get", "--quiet", "download", PACKAGE], directory)
        if done.returncode and os.geteuid() == 0:
            _run(["apt-get", "--quiet", "update"], directory)
            done = _run(["apt-get", "--quiet", "download", PACKAGE], directory)
        archives = list(Path(directory).glob("*.deb"))
        if done.returncode or not archives:
            return f"apt-get download {PACKAGE}: {done.stderr[-300:].strip()}"
        unpacked = Path(directory) / "unpacked"
        done = _run(["dpkg-deb", "--extract", str(archives[0]), str(unpacked)], directory)
        if done.returncode:
            return f"dpkg-deb: {done.stderr[-300:].strip()}"
        if not CACHE.exists():
            unpacked.rename(CACHE)
    return None


def _run(command: Sequence[str], directory: str) -> subprocess.CompletedProcess[str]:
    """Run the command and return its outcome; the exit code is 1 if the command does not end within FETCH_SECONDS."""
    try:
        return subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False, env=os.environ
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no end within {FETCH_SECONDS} s")


def main() -> int:
    """Print the path of promtool, and fetch promtool first if it is missing. The exit code is always 0, because the
    tests are skipped if promtool is missing.
    """
    problem = None if program("promtool") else fetch()
    found = program("promtool")
    print(found or f"no promtool, so the alerts are not evaluated: {problem}", file=sys.stdout if found else sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
