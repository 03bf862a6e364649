"""Tests transactions of Java's client: 3.x uses transactions V1, and 4.x uses V2, since oncelog's features advertise it
(T6).
"""

from __future__ import annotations

import subprocess
from contextlib import closing
from typing import Any

import pytest
from conftest import HERE, JAVA_HEAP, RELEASES, or_skip
from librdkafka_client import Librdkafka
from maven import jars, need
from raw_client import RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest

RUN_SECONDS = 90
RECORDS = 20


def describe(address: str, transactional_id: str) -> Any:
    """Return the transaction coordinator's description of a transaction."""
    find = FindCoordinatorRequest(key=transactional_id, key_type=CoordinatorType.TRANSACTION)
    with RawClient(int(address.rpartition(":")[2])) as client:
        coordinator = client.call(find, ApiKey.FIND_COORDINATOR, 2)
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with RawClient(coordinator.port) as client:
        (state,) = client.call(asked, ApiKey.DESCRIBE_TRANSACTIONS, 0).transaction_states
    return state


@pytest.mark.parametrize("release", RELEASES)
def test_s60_t7_a_java_application_consumes_processes_produces_and_is_fenced(
    release: str, address: str, topic: str
) -> None:
    or_skip(lambda: need("java", "javac", "mvn"))
    libraries = or_skip(lambda: jars(HERE / "java" / "pom.xml", release, "java"))
    source, target = f"{topic}-in", f"{topic}-out"
    with closing(Librdkafka(address)) as client:
        client.create_topic(source, 1)
        client.create_topic(target, 2)
    program = str(HERE / "java" / "Transactions.java")
    run = subprocess.run(
        ["java", JAVA_HEAP, "-cp", f"{libraries}/*", program, address, source, target],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    values = sorted(str(number) for number in range(RECORDS))
    assert run.stdout.splitlines() == [f"offset {RECORDS}", "fenced", "values " + " ".join([*values, "new"])]
    state = describe(address, target)
    is_v2 = release.startswith("4")
    assert (state.producer_epoch > 0) is is_v2, "under V2, and there alone, each transaction bumps the epoch"
