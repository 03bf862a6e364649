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
metrics only if `Host` is localhost or an address (else 421): otherwise a web page in a browser on this machine could
read them under a foreign name (DNS rebinding). Without the listener none of this is imported, and no request is
timed.

- `/metrics`: the metrics below, in Prometheus's text format. Names that begin with `kafka_` are those that
  jmx_exporter gives Kafka's own metrics by its usual rules, so that dashboards for Kafka show them;
  `deploy/grafana/oncelog.json` is a dashboard of our own. [grafana-dashboards.md](grafana-dashboards.md) lists which
  panels of an existing one fill.
- `/health/live`: 200 while the broker's event loop runs; in JSON its id, its release and its wall clock (`time_ms`).
- `/health/ready`: 200 if the broker is ready for clients; else 503 and `reasons` in JSON: it is starting (with the
  present step), loading logs or coordinator partitions, unsure of its ZooKeeper session, or stopping. A broker that
  leads nothing, or whose replicas are out of sync, is ready.

Cost: a request increments a few integers (below one percent of a Produce with one record, `bench/metrics_cost.py`);
everything else is computed when scraped, in slices of some milliseconds between requests. A scrape soon after another
gets the same text, so scrapes take about {LARGEST_SHARE:.0%} of the time at most. At most {MAX_CONNECTIONS} HTTP
connections are open (a new one closes the longest idle one), a request's head has {MAX_HEAD_BYTES // 1024} KB at most
and no body, and an exchange lasts {EXCHANGE_SECONDS:.0f} s at most.

Unused topics have no series (Kafka creates them with a topic's first traffic), unless a partition is
under-replicated. Counters start with the process and never decrease: the counts of a deleted topic stay in the
totals, the samples without the label `topic`. Quantiles are of the latest {SAMPLES} timed requests of an API, one
request of {TIMED_MASK + 1}; Kafka's are of about as many. A stall is a timer of {PROBE_SECONDS * 1000:.0f} ms that
fired more than {STALL_SECONDS * 1000:.0f} ms late."""


def table_of(families: list[Family]) -> str:
    lines = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines)


def document() -> str:
    """The text of docs/metrics.md."""
    sections = [f"## {title}\n\n{table_of(families.declared)}\n" for title, families in SECTIONS]
    return "\n".join([INTRODUCTION, *sections])
