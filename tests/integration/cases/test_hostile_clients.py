"""Runs a small version of each hostile client at the same time as an honest client, which must not be affected. `make
hostile` runs the full version.

The tests also check that even a short measurement notices an effect.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker_memory import NEEDS_PROC
from honest_prober import Percentiles, Sample, Waits, percentiles
from hostile.client import HostileClient
from hostile.clients import CLIENTS
from hostile.run import BRIEF, THOROUGH, Measured, run
from hostile.scene import Scene
from hostile.table import row
from hostile.verdict import MIN_SAMPLES, is_doubtful, problems

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest

PACES = (BRIEF, THOROUGH, THOROUGH)
"""The lengths of the first measurement and of up to two repeated measurements; it is repeated only while a measured
number is too high.
"""
SMALL = [client for client in CLIENTS if client.small is not None]


@NEEDS_PROC
@pytest.mark.measured
@pytest.mark.parametrize("client", SMALL, ids=lambda client: client.name.replace(" ", "-"))
def test_an_honest_client_does_not_notice(client: HostileClient, undisturbed_directory: Path) -> None:
    assert client.small is not None
    for number, pace in enumerate(PACES):
        directory = undisturbed_directory / str(number)
        directory.mkdir()
        measured = run(client, directory, client.small, pace=pace)
        if not is_doubtful(measured):
            break
    assert not problems(measured), row(measured)


A_SLOW_HANDLER = """
import time
from oncelog_broker.server.cluster import describe_cluster
def handle(request, context, real=describe_cluster.handle):
    began = time.thread_time()
    while time.thread_time() - began < {}: pass
    return real(request, context)
describe_cluster.handle = handle
"""


def ask_again_and_again(scene: Scene, _: None, times: int) -> str:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    for _number in range(times):
        scene.ask(request, ApiKey.DESCRIBE_CLUSTER, 0)
    return f"{times} DescribeCluster"


@NEEDS_PROC
@pytest.mark.parametrize(("seconds", "times", "found"), [(0.04, 10, "p99"), (0.25, 1, "worst")])
def test_a_blocking_handler_is_found_in_a_brief_measurement(
    undisturbed_directory: Path, sabotage: Callable[[str], None], seconds: float, times: int, found: str
) -> None:
    sabotage(A_SLOW_HANDLER.format(seconds))
    measured = run(HostileClient("seeded", ask_again_and_again, times), undisturbed_directory, times, pace=BRIEF)
    assert any(problem.startswith(found) for problem in problems(measured)), row(measured)


@pytest.mark.parametrize("idle", [None, percentiles([])])
def test_no_allowance_is_made_without_an_earlier_measurement(idle: Percentiles | None) -> None:
    slow = Waits((Sample("fetch", 0, 10**9, 10**9),) * MIN_SAMPLES, ())
    client = HostileClient("seeded", ask_again_and_again, 1)
    measured = Measured(client, "", "", percentiles([]), slow, idle, (0, 0, 0), is_running=True, has_traceback=False)
    assert [problem.split()[0] for problem in problems(measured)] == ["p99", "worst"]


def test_each_client_has_a_name_of_its_own() -> None:
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)
