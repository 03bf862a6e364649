"""Determines which panels of a Grafana dashboard can be filled from the metrics of a broker.

    python deploy/grafana_panels.py dashboard.json http://127.0.0.1:9404/metrics [--source "where it is from"]

The command above prints a table of the panels. A query can be filled if the broker exports each of its metrics with the
labels that the query selects. If the query selects one value of a label, a sample must have that value. Labels that
Prometheus adds when it scrapes are ignored.
"""

from __future__ import annotations

import argparse
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

ADDED = frozenset(
    {"job", "instance", "env", "cluster", "namespace", "pod", "container", "service", "strimzi_io_cluster",
     "strimzi_io_name", "kubernetes_pod_name", "kubernetes_namespace", "persistentvolumeclaim"}
)  # fmt: skip
"""Labels that Prometheus adds to say which target was scraped; the broker does not export them."""
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
METRIC = re.compile(r"(?<![\w\"$.])([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?(?!\s*\(|[\w\"])")
MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
DURATION = re.compile(r"\[[^\]]*\]")
KEYWORDS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool",
                      "offset", "inf", "nan"})  # fmt: skip

Labels = dict[str, str]


class Asked(NamedTuple):
    """One metric of a query."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    """The selected labels, as (label, operator, value)."""


class Panel(NamedTuple):
    title: str
    queries: tuple[str, ...]


def panels(dashboard: dict[str, Any]) -> Iterator[Panel]:
    """Yield the panels with queries, inside or outside of rows."""
    for panel in dashboard.get("panels", []):
        queries = tuple(target["expr"] for target in panel.get("targets") or () if target.get("expr"))
        if queries:
            yield Panel(panel.get("title", ""), queries)
        yield from panels(panel)


def asked(query: str) -> list[Asked]:
    """Return the metrics of a PromQL query, with the labels that the query selects."""
    plain = GROUPING.sub(" ", DURATION.sub(" ", query))
    return [
        Asked(name, tuple(MATCHER.findall(matchers)))
        for name, matchers in METRIC.findall(plain)
        if name.lower() not in KEYWORDS
    ]


def grouping(query: str) -> set[str]:
    """Return the labels by which a PromQL query groups its results."""
    return {label.strip() for labels in GROUPING.findall(query) for label in labels.split(",") if label.strip()}


def told(metrics: str) -> dict[str, list[Labels]]:
    """Parse the text of /metrics; return for each metric the labels of each sample."""
    found: dict[str, list[Labels]] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def missing(query: str, metrics: dict[str, list[Labels]]) -> list[str]:
    """Return the metrics and labels that a query needs and that are not exported; empty if the query can be filled."""
    reasons = []
    for name, matchers in asked(query):
        samples = metrics.get(name)
        if samples is None:
            reasons.append(name)
            continue
        own = [matcher for matcher in matchers if matcher[0] not in ADDED]
        if not any(all(_matches(sample, *matcher) for matcher in own) for sample in samples):
            reasons.append(name + "{" + ",".join(label + operator + value for label, operator, value in own) + "}")
    return reasons


def _matches(sample: Labels, label: str, operator: str, value: str) -> bool:
    if "$" in value:  # the value is a dashboard variable, which may be any exported value
        return label in sample
    is_equal = bool(re.fullmatch(value, sample.get(label, ""))) if "~" in operator else sample.get(label, "") == value
    return is_equal != operator.startswith("!")


def table(dashboard: dict[str, Any], metrics: dict[str, list[Labels]]) -> str:
    lines = ["| Panel | Fills | Not told |", "|---|---|---|"]
    for panel in panels(dashboard):
        lacking = list(dict.fromkeys(reason for query in panel.queries for reason in missing(query, metrics)))
        filling = sum(not missing(query, metrics) for query in panel.queries)
        fills = "yes" if not lacking else "in part" if filling else "no"
        lines.append(f"| {panel.title} | {fills} | {', '.join(f'`{reason}`' for reason in lacking)} |")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("dashboard", type=Path)
    arguments.add_argument("metrics", help="the URL")
    arguments.add_argument("--source", default="", help="where the dashboard is from")
    options = arguments.parse_args()
    dashboard = json.loads(options.dashboard.read_text())
    with urllib.request.urlopen(options.metrics) as answer:
        metrics = told(answer.read().decode())
    shown = list(panels(dashboard))
    full = sum(not any(missing(query, metrics) for query in panel.queries) for panel in shown)
    print(f"## {dashboard.get('title') or options.dashboard.stem}\n")
    print(f"{options.source}\n\n{full} of {len(shown)} panels fill.\n\n{table(dashboard, metrics)}")


if __name__ == "__main__":
    main()
