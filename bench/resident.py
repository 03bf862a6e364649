"""Measures whether the broker's memory stays flat under load, and its CPU without load: `bench/run.py --only resident`.

The broker gets the loads of `apache_loads.py` ROUNDS times: single records over 1, 50 and 500 connections, large
batches, fetches and transactions. Its resident memory is read after each round, and its CPU over IDLE_SECONDS at the
end, while the connections of the loads are still open. Pages of files (libraries, and the mapped chunks of logs, which
the kernel may drop at any time) are a part of the resident memory.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Final

import broker_cost as cost
import psutil
from apache_loads import Side, loads
from broker_process import BrokerProcess
from raw import RawClient
from table import Add

ROUNDS: Final = 6
IDLE_SECONDS: Final = 10.0
CALM_SECONDS: Final = 2.0
SETTINGS: Final = {"log.retention.check.interval.ms": "200"}


def measure(add: Add, scale: int) -> None:
    """Measure memory and idle CPU; the amount of work is divided by `scale`."""
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data", SETTINGS) as broker,
        contextlib.closing(RawClient(broker.port)) as client,
    ):
        side = Side("oncelog", broker.port, broker.pid, client)
        add("resident memory before all loads", cost.resident_megabytes(broker.pid), "MB")
        kinds = loads(scale)
        for load in kinds:
            load.prepare(side)
        resident, without_files = [], []
        for _ in range(ROUNDS):
            for load in kinds:
                load.run(side)
            time.sleep(CALM_SECONDS)
            memory = psutil.Process(broker.pid).memory_info()
            resident.append(memory.rss / 1e6)
            without_files.append((memory.rss - memory.shared) / 1e6)
        for number in (1, 2, ROUNDS):
            add(f"resident memory after all loads, round {number}", resident[number - 1], "MB", at_most=60)
        for number in (1, 2, ROUNDS):
            what = f"resident memory after all loads without pages of files, round {number}"
            add(what, without_files[number - 1], "MB")
        cpu, began = cost.cpu_seconds(broker.pid), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        share = (cost.cpu_seconds(broker.pid) - cpu) / (time.perf_counter() - began)
        add("CPU without requests, 650 connections open", share * 100, "% of a core", at_most=1)
