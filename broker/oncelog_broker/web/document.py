"""Generates docs/metrics.md from the declared metrics; `make reference` writes it."""

from __future__ import annotations

from typing import Final

from oncelog.http_bounds import MAX_HEAD_BYTES
from oncelog_broker.metrics.families import SECTIONS
from oncelog_broker.metrics.family import Family
from oncelog_broker.metrics.scraping import LARGEST_SHARE
from oncelog_broker.observability.loop_watch import PROBE_SECONDS, STALL_SECONDS
from oncelog_broker.observability.request_times import SAMPLES
from oncelog_broker.server.dispatch.routes import TIMED_MASK
from oncelog_broker.web.bounded import EXCHANGE_SECONDS, MAX_CONNECTIONS

INTRODUCTION: Final = f"""\
# Metrics and health

The metrics and health checks of a broker. Generated from the declarations in `broker/oncelog_broker/metrics/` by
`make reference`; tests compare this page with them, and them with a live broker.

```
oncelog serve --http 9404                # 127.0.0.1:9404; or --http 0.0.0.0:9404, or http.listener=... in a file
curl http://127.0.0.1:9404/metrics
curl http://127.0.0.1:9404/health/ready
```

The HTTP listener has no authentication and no encryption, so by default it listens on loopback. On loopback it serves
metrics only if `Host` is localhost or an address, and responds with 421 to any other host name. Otherwise a web page in
a browser on this machine could read the metrics under a foreign name (DNS rebinding). Without the listener, the broker
imports no code for metrics and measures no request times.

- `/metrics` has the metrics below, in Prometheus's text format. Names that begin with `kafka_` are the names that
  jmx_exporter usually gives to Kafka's metrics, so that dashboards for Kafka work with this broker.
  `deploy/grafana/oncelog.json` is a dashboard for this broker. [grafana-dashboards.md](grafana-dashboards.md) lists
  which panels of dashboards for Kafka show data.
- `/health/live` responds with 200 while the broker's event loop runs. The JSON has the broker's id, its release and its
  wall clock (`time_ms`).
- `/health/ready` responds with 200 if the broker is ready for clients. Otherwise the status is 503, and the JSON has
  `reasons`: the broker is starting (with the present step), loading logs or coordinator partitions, unsure of its
  ZooKeeper session, or stopping. A broker that leads no partition, or whose replicas are out of sync, is ready.

Each request increments a few integers, which costs below one percent of a Produce with one record
(`bench/metrics_cost.py`). All other values are computed at a scrape, in slices of some milliseconds between requests. A
scrape soon after another scrape gets the same text, so scrapes take at most about {LARGEST_SHARE:.0%} of the time. At
most {MAX_CONNECTIONS} HTTP connections are open; a new connection closes the longest idle connection. The head of a
request has at most {MAX_HEAD_BYTES // 1024} KB, a request has no body, and an exchange lasts at most
{EXCHANGE_SECONDS:.0f} s.

Unused topics have no series unless a partition is under-replicated; Kafka, too, creates the series of a topic at the
first traffic. Counters start at zero with the process and never decrease: the counts of a deleted topic stay in the
totals, which are the samples without the label `topic`. Quantiles are computed from the latest {SAMPLES} timed requests
of an API, where one of {TIMED_MASK + 1} requests is timed; Kafka uses a similar number. A stall is a timer of
{PROBE_SECONDS * 1000:.0f} ms that fired more than {STALL_SECONDS * 1000:.0f} ms late."""


def table_of(families: list[Family]) -> str:
    lines = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines)


def document() -> str:
    """Return the text of docs/metrics.md."""
    sections = [f"## {title}\n\n{table_of(families.declared)}\n" for title, families in SECTIONS]
    return "\n".join([INTRODUCTION, *sections])
