"""Measures the cost of metrics for single-record Produce: `python bench/metrics_cost.py [--before path/to/oncelog]`.

Two brokers get the same load in turns (see compare.py): one that serves metrics and was scraped, and one without the
HTTP listener. With --before the second broker is of a build that counts nothing. With --silent neither broker has the
listener, so only the cost of counting is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import tempfile
import urllib.request
from pathlib import Path
from typing import Final

# Import this module first, because it sets sys.path.
from compare import SETTINGS, TOPIC, TURNS, Build, RawClient, produce

import broker_cost as cost  # isort: skip
from broker_process import BrokerProcess  # isort: skip

PAIRS: Final = 4
"""The number of pairs of brokers. Several pairs are measured, because two processes of the same build may differ by
five percent during their whole life.
"""
REQUESTS: Final = 1500
LIMIT: Final = 1.01
"""The highest allowed ratio, with metrics to without: the docs promise at most one percent more."""


def opened(stack: contextlib.ExitStack, *, tells: bool, before: str | None, silent: bool) -> Build:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
    settings = {**SETTINGS, "http.listener": "0"} if tells and not silent else SETTINGS
    broker = stack.enter_context(BrokerProcess(directory, settings, command=None if tells else before))
    client = stack.enter_context(contextlib.closing(RawClient(broker.port)))
    cost.recycled_topic(client, TOPIC)
    return Build(broker, client)


def scrape(build: Build) -> None:
    """Scrape once, because Prometheus scrapes so rarely that the effect of a scrape on caches does not matter."""
    where = re.search(r"http on (\S+?)\)", build.broker.start_line)
    if where:
        urllib.request.urlopen(f"http://{where[1]}/metrics").read()


def ratios(stack: contextlib.ExitStack, *, tells_first: bool, before: str | None, silent: bool) -> list[float]:
    """Return for each turn the ratio of the CPU of the broker with metrics to the CPU of the other broker."""
    builds = {
        tells: opened(stack, tells=tells, before=before, silent=silent) for tells in (tells_first, not tells_first)
    }
    load = produce(100, 100, REQUESTS, 1)
    for turn in range(TURNS + 1):
        for build in list(builds.values())[:: 1 if turn % 2 else -1]:
            with cost.pinned(build.broker.pid, together=True):
                spent = load(build).cpu_us_per_request
            if not turn:  # the first turn is a warm-up
                scrape(build)
            else:
                build.spent.setdefault("produce", []).append(spent)
    silent, telling = builds[False].spent["produce"], builds[True].spent["produce"]
    print(f"{statistics.median(silent):8.2f} -> {statistics.median(telling):8.2f} us of CPU per request")
    return [after / before for before, after in zip(silent, telling, strict=True)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--before", help="the `oncelog` command of a build to compare with")
    arguments.add_argument("--pairs", type=int, default=PAIRS)
    arguments.add_argument("--silent", action="store_true", help="nobody is told anything")
    options = arguments.parse_args()
    found: list[float] = []
    for pair in range(options.pairs):
        with contextlib.ExitStack() as stack:
            found += ratios(stack, tells_first=bool(pair % 2), before=options.before, silent=options.silent)
    what = "counted" if options.silent else "told"
    print(f"single-record Produce, metrics {what}: ratio {statistics.median(found):.3f} (at most {LIMIT})")


if __name__ == "__main__":
    main()
