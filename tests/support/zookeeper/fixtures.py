"""Fixtures of tests that need ZooKeeper. Virtual machines are dear, so that most tests share a server.

zookeeper          a connect string with a chroot of the test's own on the server that all share; nobody may stop it
new_chroot         makes such connect strings
zookeeper_proxy    a `CuttingProxy` before it: `zookeeper_proxy.connect_string`
ensemble           three servers that the test may kill and pause: the test finds all of them serving
zookeeper_factory  makes servers of the test's own: `zookeeper_factory(size=1)` is an `Ensemble` that serves
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import kazoo.protocol.connection
import kazoo.retry
import pytest
from tests.support.zookeeper.cutting_proxy import CuttingProxy
from tests.support.zookeeper.shared_server import SHORT, shared_address

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

# A client's thread draws numbers at any time, also while Hypothesis, which takes note of that, has a test in hand.
kazoo.protocol.connection.random = kazoo.retry.random = random.Random()

ZooKeeperFactory = Callable[..., Ensemble]

__all__ = [
    "chroots",
    "ensemble",
    "new_chroot",
    "shared_ensemble",
    "shared_zookeeper",
    "zookeeper",
    "zookeeper_factory",
    "zookeeper_proxy",
]


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> str:
    """`host:port` of the server that all tests of this run share."""
    directory = tmp_path_factory.getbasetemp()
    if worker_id == "master":  # there are no workers
        return shared_address(directory / "zookeeper", os.getpid())
    return shared_address(directory.parent / "zookeeper", os.getppid())


@pytest.fixture(scope="session")
def chroots(shared_zookeeper: str) -> Iterator[Callable[[], str]]:
    from kazoo.client import KazooClient

    client = KazooClient(shared_zookeeper, timeout=60)
    client.start(60)
    yield lambda: shared_zookeeper + client.create(f"/test-{uuid.uuid4().hex[:12]}")
    client.stop()
    client.close()


@pytest.fixture
def new_chroot(chroots: Callable[[], str]) -> Callable[[], str]:
    return chroots


@pytest.fixture
def zookeeper(new_chroot: Callable[[], str]) -> str:
    return new_chroot()


@pytest.fixture
def zookeeper_proxy(zookeeper: str) -> Iterator[CuttingProxy]:
    with CuttingProxy(zookeeper) as proxy:
        yield proxy


def _started(directory: Path, size: int) -> Ensemble:
    ensemble = Ensemble(
        directory, find_java(), provide_jars(print), size=size, timing=SHORT, is_synced=False, dies_with_us=True
    )
    return ensemble.start()


@pytest.fixture(scope="session")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = _started(tmp_path_factory.mktemp("ensemble"), size=3)
    yield ensemble
    ensemble.kill()


@pytest.fixture
def ensemble(shared_ensemble: Ensemble) -> Ensemble:
    return shared_ensemble.start()


@pytest.fixture
def zookeeper_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperFactory]:
    started: list[Ensemble] = []

    def make(size: int = 1) -> Ensemble:
        started.append(_started(tmp_path_factory.mktemp("zookeeper"), size))
        return started[-1]

    yield make
    for ensemble in started:
        ensemble.kill()
