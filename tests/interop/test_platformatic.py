"""Tests @platformatic/kafka, a JavaScript client with its own protocol implementation, which uses the highest version
that a broker has.

The client sends AddPartitionsToTxn v5 for its own transaction, to three brokers that have a separate listener for one
another (S97).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import or_skip
from foreign_clients import eventually
from maven import BUILD, HERE, fetch, need
from raw_client import RawClient
from replicated_cluster import ReplicatedCluster

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

SOURCE = HERE / "platformatic"
RUN_SECONDS = 120
# No broker is killed here, and a busy machine must not cause elections.
SETTINGS = {"zookeeper.session.timeout.ms": "18000"}


@pytest.fixture(scope="module")
def library() -> Path:
    """Return the directory in which the library is installed, with the test programs."""
    or_skip(lambda: need("node", "npm"))
    directory = BUILD / "platformatic"
    directory.mkdir(parents=True, exist_ok=True)
    for path in SOURCE.iterdir():
        shutil.copy(path, directory)
    if not (directory / "node_modules" / "@platformatic").exists():
        command = ["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"]
        or_skip(lambda: fetch([*command, "--no-save"], "@platformatic/kafka"))
    return directory


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path, request.getfixturevalue("chroots")(), SETTINGS) as started:
        yield started
    started.check_logs()


def test_s97_e58_platformatic_transactions_work_with_an_inter_broker_listener(
    library: Path, cluster: ReplicatedCluster
) -> None:
    address = cluster.brokers[2].address  # the client's bootstrap broker, which need not be the controller
    done = subprocess.run(
        ["node", "transactions.mjs", address, "orders"],
        cwd=library,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == ["committed-1", "committed-2", "committed-3"]
    eventually(lambda: committed(cluster) == 6, "the offset of its last transaction is committed")


def committed(cluster: ReplicatedCluster) -> int:
    """Return the group's committed offset. After the third committed record the committed offset is 6: two records, a
    marker, an aborted
    record, its marker, and the third record.
    """
    group = "orders-readers"
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    )
    for broker in cluster.brokers.values():
        with RawClient(broker.port) as client:
            answer = client.call(request, ApiKey.OFFSET_FETCH, 5)
        if answer.error_code == 0:
            return int(answer.topics[0].partitions[0].committed_offset)
    return -1
