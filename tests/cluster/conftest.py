"""Fixtures for the tests of entire clusters: broker processes on a real ZooKeeper.

The helper modules of `tests/integration` can be imported here, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import permutations
from pathlib import Path

import pytest
from tests.support.zookeeper.fixtures import SecuredZooKeeper

from oncelog_testing.history.recorder import History

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
sys.path.append(str(Path(__file__).parents[1] / "interop"))

import integration_folders  # noqa: F401  where helpers of tests/integration are
from broker_cluster import BrokerCluster
from broker_process import BrokerProcess
from peer_network import PeerNetwork
from recording_clients import PRODUCERS
from replicated_cluster import BROKERS, ReplicatedCluster
from secured_cluster import IS_ASKED_FOR, known

HERE = Path(__file__).parent
LOG_CHARACTERS = 6000
SCENARIO = re.compile(r"test_c(\d+)_")
TIMES = 5
"""In a soak (a long run of the tests), each scenario is repeated this many times, unless it runs longer in a soak
anyway; the first run is not counted.
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the log lines of its brokers."""
    report = yield
    if report.failed:
        for broker in BrokerProcess.started:
            if broker.log.exists() and (logged := broker.log.read_text()):
                report.sections.append((f"log of the broker with {broker.data}", logged[-LOG_CHARACTERS:]))
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In a soak, run each scenario several times; each repetition uses the cluster in the state in which the previous
    repetition has left it.
    """
    if not SCENARIO.match(metafunc.function.__name__) or _has_longer_form(metafunc):
        return
    again = [pytest.param(number, id=f"again-{number}", marks=pytest.mark.soak) for number in range(1, TIMES + 1)]
    metafunc.fixturenames.append("nth_time")
    metafunc.parametrize("nth_time", [pytest.param(0, id=pytest.HIDDEN_PARAM), *again], indirect=True)


def _has_longer_form(metafunc: pytest.Metafunc) -> bool:
    own = list(metafunc.definition.iter_markers())
    params = [param for mark in own if mark.name == "parametrize" for param in mark.args[1]]
    return any(mark.name == "soak" for mark in (*own, *(m for param in params for m in getattr(param, "marks", ()))))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """If a scenario exists for two libraries, `make test` runs it with only one of them, alternately, because each run
    takes three brokers several seconds; a soak runs both.
    """
    for item in items:
        if not isinstance(item, pytest.Function) or item.path.parent != HERE or not hasattr(item, "callspec"):
            continue
        library, number = item.callspec.params.get("library"), SCENARIO.match(item.originalname)
        if number and library in PRODUCERS and library != sorted(PRODUCERS)[int(number[1]) % len(PRODUCERS)]:
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def nth_time(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


if IS_ASKED_FOR:

    @pytest.fixture(scope="session")
    def chroots(secured_chroots: Callable[[], SecuredZooKeeper]) -> Callable[[], str]:
        return lambda: known(secured_chroots())


@pytest.fixture(scope="module")
def cluster_of_module(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path_factory.mktemp("replicated"), chroots()) as cluster:
        yield cluster
    cluster.check_logs()


@pytest.fixture
def cluster(cluster_of_module: ReplicatedCluster) -> ReplicatedCluster:
    """Three running brokers with three replicas of each partition; the test may leave them in any state."""
    cluster_of_module.mend()
    return cluster_of_module


@pytest.fixture(scope="module")
def peer_network(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ReplicatedCluster, PeerNetwork]]:
    # These tests check the effects of the network step by step, so sessions are long enough not to end when the machine
    # is busy.
    settings = {"replica.lag.time.max.ms": "2000", "zookeeper.session.timeout.ms": "6000"}
    cluster = ReplicatedCluster(tmp_path_factory.mktemp("partitioned"), chroots(), settings)
    with PeerNetwork(cluster.peer_ports) as network:
        cluster.advertise_to_peers(network.ports)
        with cluster:
            yield cluster, network
    cluster.check_logs()


@pytest.fixture
def network(peer_network: tuple[ReplicatedCluster, PeerNetwork]) -> PeerNetwork:
    """The proxy between the brokers of `partitioned`, which is reset for each test."""
    network = peer_network[1]
    network.let_pass(*permutations(BROKERS, 2))
    return network


@pytest.fixture
def partitioned(peer_network: tuple[ReplicatedCluster, PeerNetwork], network: PeerNetwork) -> ReplicatedCluster:
    """A cluster like `cluster`, but tests can interrupt its network, and its replica lag time (after which the ISR
    shrinks) is two seconds.
    """
    cluster = peer_network[0]
    cluster.mend()
    return cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture(scope="module")
def three_brokers(new_cluster_root: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """Three brokers for all tests of a module, with one replica of each partition; each test uses its own topics."""
    cluster = BrokerCluster(tmp_path_factory.mktemp("cluster"), new_cluster_root, size=3)
    with cluster:
        yield cluster
    cluster.check_logs()


@pytest.fixture(scope="module")
def new_cluster_root(request: pytest.FixtureRequest) -> str:
    """Return a chroot in ZooKeeper for one cluster."""
    chroot: str = request.getfixturevalue("chroots")()
    return chroot
