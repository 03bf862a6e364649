"""Fixtures for tests that need ZooKeeper. Starting a Java virtual machine is expensive, so most tests share a server.

- `zookeeper` is a connect string with the test's own chroot on the shared server, which no test may stop.
- `new_chroot` is a function that creates such connect strings.
- `zookeeper_proxy` is a `CuttingProxy` in front of the shared server; clients use `zookeeper_proxy.connect_string`.
- `secured_zookeeper` is a `SecuredZooKeeper`: the test's own chroot on a shared server with TLS.
- `ensemble` has three servers that the test may kill and pause; all three serve when the test starts.
- `zookeeper_factory` creates servers for one test alone: `zookeeper_factory(size=1)` returns a running `Ensemble`.

A test that uses one of these fixtures gets the mark `zookeeper` (tests/conftest.py). A test that requests a fixture
only at run time, by `getfixturevalue`, must have the mark itself.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import kazoo.protocol.connection
import kazoo.retry
import pytest
from tests.support.zookeeper.cutting_proxy import CuttingProxy
from tests.support.zookeeper.shared_server import AUTHORITY, KEY_STORE, OTHER_KEY_STORE, SHORT, shared_address

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

# Kazoo gets its own random number generator, because its threads draw numbers at any time, and Hypothesis detects
# changes of the global random state.
kazoo.protocol.connection.random = kazoo.retry.random = random.Random()

ZooKeeperFactory = Callable[..., Ensemble]

SERVERS: Final = frozenset({"shared_zookeeper", "secured_chroots", "shared_ensemble", "zookeeper_factory"})
"""The fixtures that start servers; all other fixtures depend on one of these."""

__all__ = [
    "chroots",
    "ensemble",
    "new_chroot",
    "secured_chroots",
    "secured_zookeeper",
    "shared_ensemble",
    "shared_zookeeper",
    "zookeeper",
    "zookeeper_factory",
    "zookeeper_proxy",
]


@pytest.fixture(scope="session")
def shared_zookeeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> str:
    """Return `host:port` of the server that all tests of this run share."""
    _must_be_wanted(request)
    directory, run = _of_run(tmp_path_factory, worker_id)
    return shared_address(directory / "zookeeper", run)


def _must_be_wanted(request: pytest.FixtureRequest) -> None:
    """Fail the test if the run excludes ZooKeeper, because then the test that needs a server lacks the mark."""
    if "not zookeeper" in request.config.getoption("markexpr"):
        pytest.fail("a test asks for a ZooKeeper and is not marked: @pytest.mark.zookeeper")


def _of_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, int]:
    """Return the directory and the process id that all workers of the run share."""
    directory = tmp_path_factory.getbasetemp()
    if worker_id == "master":  # the run has no workers
        return directory, os.getpid()
    return directory.parent, os.getppid()


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


class SecuredZooKeeper(NamedTuple):
    """A server with TLS, and a chroot of the test's own that the first broker creates."""

    connect: str
    """The connect string for the TLS port."""
    connect_plainly: str
    """The connect string of the same chroot through the port without TLS, for clients without credentials."""
    authority: Path
    """The certificate authority that signed the server's certificate."""
    key_store: Path
    """A client certificate that the server maps to the identity `x509` `CN=broker`; `settings` does not include it."""
    other_key_store: Path
    """A client certificate of another identity, `CN=other`."""

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a broker that uses TLS and the digest login."""
        return {
            "zookeeper.connect": self.connect,
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.authority),
            "zookeeper.digest.user": "brokers",
            "zookeeper.digest.password": ZOOKEEPER_PASSWORD,
            "zookeeper.set.acl": "true",
        }


ZOOKEEPER_PASSWORD = "brokers to: ZooKeeper"


@pytest.fixture(scope="session")
def secured_chroots(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Callable[[], SecuredZooKeeper]:
    _must_be_wanted(request)
    directory, run = _of_run(tmp_path_factory, worker_id)
    plain, secure = shared_address(directory / "zookeeper-tls", run, has_tls=True).split()

    def make() -> SecuredZooKeeper:
        chroot = f"/test-{uuid.uuid4().hex[:12]}"
        files = (directory / "zookeeper-tls" / name for name in (AUTHORITY, KEY_STORE, OTHER_KEY_STORE))
        return SecuredZooKeeper(secure + chroot, plain + chroot, *files)

    return make


@pytest.fixture
def secured_zookeeper(secured_chroots: Callable[[], SecuredZooKeeper]) -> SecuredZooKeeper:
    return secured_chroots()


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
def shared_ensemble(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    _must_be_wanted(request)
    ensemble = _started(tmp_path_factory.mktemp("ensemble"), size=3)
    yield ensemble
    ensemble.kill()


@pytest.fixture
def ensemble(shared_ensemble: Ensemble) -> Ensemble:
    return shared_ensemble.start()


@pytest.fixture
def zookeeper_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperFactory]:
    _must_be_wanted(request)
    started: list[Ensemble] = []

    def make(size: int = 1) -> Ensemble:
        started.append(_started(tmp_path_factory.mktemp("zookeeper"), size))
        return started[-1]

    yield make
    for ensemble in started:
        ensemble.kill()
