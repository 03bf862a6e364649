"""docs/metrics.md, of the declarations; `make reference` writes it."""

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

How a broker tells how it is, and what each metric means. Made of the declarations in `broker/oncelog_broker/metrics/`
by `make reference`; a test holds this page to them, and them to what a live broker tells.

```
oncelog serve --http 9404                # 127.0.0.1:9404; or --http 0.0.0.0:9404, or http.listener=... in a file
curl http://127.0.0.1:9404/metrics
curl http://127.0.0.1:9404/health/ready
```

Nobody logs in at the HTTP listener and nothing is encrypted there, so it listens on loopback unless it is told
otherwise. On loopback it tells metrics only where `Host` is localhost or an address (else 421): a page in a browser on
this machine could otherwise read them under a name of its own (DNS rebinding). Without the listener nothing of this is
loaded, and no request is timed.

- `/metrics`: what is below, in Prometheus' text format. Names that begin with `kafka_` are those that jmx_exporter
  gives Kafka's own metrics by its usual rules, so that dashboards for Kafka show them; `deploy/grafana/oncelog.json` is
  a dashboard of our own. [grafana-dashboards.md](grafana-dashboards.md) lists which panels of an existing one fill.
- `/health/live`: 200 as long as the broker's event loop answers.
- `/health/ready`: 200 when clients may be sent here; else 503 and `reasons` in JSON: the broker starts (and what it
  does just now), its logs or the partitions that it coordinates by are loaded, its session with ZooKeeper is in doubt,
  or it stops. A broker that leads nothing, or whose replicas are not in sync, is ready.

What it costs: a request adds to a few integers (below one percent of a Produce with one record,
`bench/metrics_cost.py`); everything else is read when somebody asks, in slices of some milliseconds between requests,
and who asks again at once gets the same text: scrapes take some {LARGEST_SHARE:.0%} of the time at most. No more than
{MAX_CONNECTIONS} HTTP connections are open (who rests longest makes room), a request's head has
{MAX_HEAD_BYTES // 1024} KB at most and no body, and from request to answer a client has {EXCHANGE_SECONDS:.0f} s.

Topics that were never used have no series (Kafka makes those of a topic at its first traffic), unless a partition is
under-replicated. Counters begin with the process, and never go back while it runs: what a deleted topic has counted
stays in the totals, which are the samples without the label `topic`. Quantiles are of the latest {SAMPLES} requests of
an API that were timed, which is one of {TIMED_MASK + 1}; Kafka's are of about as many. A stall is a timer of
{PROBE_SECONDS * 1000:.0f} ms that came more than {STALL_SECONDS * 1000:.0f} ms late.
"""


def table_of(families: list[Family]) -> str:
    lines = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines)


def document() -> str:
    """The page."""
    sections = [f"## {title}\n\n{table_of(families.declared)}\n" for title, families in SECTIONS]
    return "\n".join([INTRODUCTION, *sections])
