"""The pytest plugin `oncelog`: `def test(oncelog_broker, oncelog_topic)`. docs/testing.md describes it.

This module imports only pytest, because every run of pytest in an environment with this distribution imports this
module.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncelog_testing.application import ApplicationHistory
    from oncelog_testing.broker import Broker
    from oncelog_testing.cluster import Cluster
    from oncelog_testing.in_process import InProcessCluster
    from oncelog_testing.registry import Registry

    Server = Broker | Cluster | InProcessCluster

__tracebackhide__ = True  # hides this module in the traceback of a failed test

CLUSTER_REQUIRED = "oncelog_cluster_required"
MARK = "oncelog_topic"

_servers: list[Server] = []
"""The brokers and registries that the fixtures of this test session have started."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        CLUSTER_REQUIRED,
        "fail, instead of skipping, tests with oncelog_cluster where no ZooKeeper can be had",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(partitions=1, configs=None): how the topic of the fixture oncelog_topic is made"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Undo a test's changes to a broker, even if the teardown of a fixture fails, so that the next test finds the
    broker running without faults.
    """
    try:
        yield
    finally:
        for server in _servers:
            server.mend()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log lines of the brokers that a failed test used to the test's report."""
    report = yield
    if report.failed:
        for server in _servers:
            report.sections += server.logged()
    return report


@pytest.fixture(scope="session")
def oncelog_settings() -> dict[str, str]:
    """Settings of the brokers, by Kafka's keys; a project overrides this fixture in its conftest.py."""
    return {}


@pytest.fixture(scope="session")
def oncelog_workers() -> int | None:
    """The number of broker processes of `oncelog_broker`; None means one, without workers. A project overrides this
    fixture in its conftest.py.
    """
    return None


@pytest.fixture(scope="session")
def oncelog_broker(
    tmp_path_factory: pytest.TempPathFactory, oncelog_settings: dict[str, str], oncelog_workers: int | None
) -> Iterator[Broker]:
    """The broker of this test session, in a separate process on a free port."""
    from oncelog_testing.broker import Broker

    with Broker(tmp_path_factory.mktemp("oncelog"), oncelog_settings, workers=oncelog_workers) as broker:
        _servers.append(broker)
        yield broker
        _servers.remove(broker)


@pytest.fixture(scope="session")
def oncelog_bootstrap_servers(oncelog_broker: Broker) -> str:
    """The broker's address as `host:port`, for any client."""
    return oncelog_broker.bootstrap_servers


@pytest.fixture(scope="session")
def oncelog_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, oncelog_settings: dict[str, str]
) -> Iterator[Cluster]:
    """Three brokers of this test session, with three replicas of every partition; tests are skipped without a
    ZooKeeper.
    """
    from oncelog_testing.cluster import Cluster, NoZooKeeper

    try:
        cluster = Cluster(tmp_path_factory.mktemp("oncelog-cluster"), oncelog_settings).start()
    except NoZooKeeper as error:
        if request.config.getini(CLUSTER_REQUIRED):
            pytest.fail(f"oncelog_cluster: {error}", pytrace=False)
        pytest.skip(f"oncelog_cluster: {error} ({CLUSTER_REQUIRED} = true makes this a failure)")
    with cluster:
        _servers.append(cluster)
        yield cluster
        _servers.remove(cluster)


@pytest.fixture(scope="session")
def oncelog_in_process_cluster(
    tmp_path_factory: pytest.TempPathFactory, oncelog_settings: dict[str, str]
) -> Iterator[InProcessCluster]:
    """Three brokers of this test session, with three replicas of every partition, in a thread of this process: without
    ZooKeeper and Java.
    """
    from oncelog_testing.in_process import InProcessCluster

    with InProcessCluster(tmp_path_factory.mktemp("oncelog-in-process"), oncelog_settings) as cluster:
        _servers.append(cluster)
        yield cluster
        _servers.remove(cluster)


@pytest.fixture(scope="session")
def oncelog_registry(oncelog_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A schema registry of this test session, on `oncelog_broker`; `oncelog_registry.url` is for clients of the
    Confluent registry.
    """
    from oncelog_testing.registry import Registry

    log = tmp_path_factory.mktemp("oncelog-registry") / "registry.log"
    with Registry(oncelog_broker.bootstrap_servers, log) as registry:
        yield registry


@pytest.fixture
def oncelog_topic(request: pytest.FixtureRequest) -> str:
    """The name of a new topic for this test, on the test's broker or, if the test uses no single broker, on its
    cluster.
    """
    from oncelog_testing.topics import topic_name, wanted_topic

    marker = request.node.get_closest_marker(MARK)
    name = topic_name(request.node.name)
    try:
        partitions, configs = wanted_topic(*marker.args, **marker.kwargs) if marker else wanted_topic()
    except TypeError as error:
        pytest.fail(f"@pytest.mark.{MARK}: {error}", pytrace=False)
    _server_of(request).create_topic(name, partitions, configs)
    return name


@pytest.fixture
def oncelog_history(request: pytest.FixtureRequest) -> ApplicationHistory:
    """The recorder of a test's writes and reads, which checks exactly once."""
    from oncelog_testing.application import ApplicationHistory

    return ApplicationHistory(lambda: _server_of(request).bootstrap_servers)


def _server_of(request: pytest.FixtureRequest) -> Server:
    kinds = ("oncelog_broker", "oncelog_cluster", "oncelog_in_process_cluster")
    had = next((kind for kind in kinds if kind in request.fixturenames), "oncelog_broker")
    server: Server = request.getfixturevalue(had)
    return server
