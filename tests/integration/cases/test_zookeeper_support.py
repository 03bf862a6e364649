"""Tests the ZooKeeper that other tests use, and its proxy: both must behave as the other tests assume."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, SessionExpiredError
from tests.support.zookeeper.cutting_proxy import CuttingProxy, Moment
from tests.support.zookeeper.fixtures import ZooKeeperFactory
from tests.support.zookeeper.frames import Direction, Frame, Op
from tests.support.zookeeper.shared_server import ROOT

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.ports import is_free
from oncelog_broker.local_cluster.process import LocalProcess, started_at


@contextmanager
def client_of(connect_string: str, timeout: float = 10.0) -> Iterator[KazooClient]:
    client = KazooClient(connect_string, timeout=timeout)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def is_set_data(frame: Frame) -> bool:
    return frame.op == Op.SET_DATA


def test_each_test_has_a_tree_of_its_own(zookeeper: str, new_chroot: Callable[[], str]) -> None:
    with client_of(zookeeper) as client, client_of(new_chroot()) as other:
        client.create("/here")
        assert client.get_children("/") == ["here"]
        assert other.get_children("/") == []


def test_a_write_that_is_cut_before_it_is_forwarded_is_not_done(zookeeper: str, zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper) as witness, client_of(zookeeper_proxy.connect_string) as client:
        client.create("/node", b"old")
        cut = zookeeper_proxy.cut_when(is_set_data, Moment.BEFORE)
        with pytest.raises(ConnectionLoss):
            client.set("/node", b"new")
        assert cut.count == 1
        assert witness.get("/node")[0] == b"old"


def test_a_write_cut_after_it_was_forwarded_is_done(zookeeper: str, zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper) as witness, client_of(zookeeper_proxy.connect_string) as client:
        client.create("/node", b"old")
        zookeeper_proxy.cut_when(is_set_data, Moment.AFTER)
        with pytest.raises(ConnectionLoss):
            client.set("/node", b"new")
        witness.sync("/")
        assert eventually(lambda: witness.get("/node")[0] == b"new")


def test_a_write_whose_answer_is_cut_is_done(zookeeper: str, zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper) as witness, client_of(zookeeper_proxy.connect_string) as client:
        client.create("/node", b"old")
        zookeeper_proxy.cut_when(is_set_data, Moment.BEFORE, direction=Direction.ANSWERS)
        with pytest.raises(ConnectionLoss):
            client.set("/node", b"new")
        assert witness.get("/node")[0] == b"new"


def test_an_answer_that_is_cut_after_it_was_forwarded_arrives(zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper_proxy.connect_string) as client:
        client.create("/node", b"old")
        zookeeper_proxy.cut_when(is_set_data, Moment.AFTER, direction=Direction.ANSWERS)
        assert client.set("/node", b"new").version == 1
        zookeeper_proxy.wait_until(lambda proxy: proxy.connections == 2)
        assert client.retry(client.get, "/node")[0] == b"new"


def test_the_nth_frame_of_each_connection_is_cut(zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper_proxy.connect_string) as client:
        cut = zookeeper_proxy.cut_at(1, Moment.BEFORE)
        zookeeper_proxy.cut()
        zookeeper_proxy.wait_until(lambda _: cut.count >= 3)
        zookeeper_proxy.forget_cuts()
        assert client.retry(client.exists, "/") is not None


def test_cuts_by_chance_spare_the_beginning_of_a_session(zookeeper: str, zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper_proxy.connect_string) as client:
        client.create("/node", b"")
        cut = zookeeper_proxy.cut_by_chance(0.5, moments=[Moment.BEFORE])
        for _ in range(20):
            client.retry(client.set, "/node", b"in spite of all")
        zookeeper_proxy.forget_cuts()
        assert cut.count == zookeeper_proxy.cuts > 0
        assert client.retry(client.get, "/node")[1].version == 20


def test_held_frames_arrive_late(zookeeper: str, zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper) as witness, client_of(zookeeper_proxy.connect_string, timeout=60) as client:
        zookeeper_proxy.hold(Direction.ANSWERS)
        answer = client.create_async("/node")
        zookeeper_proxy.wait_until(lambda proxy: proxy.held[Direction.ANSWERS] == 1)
        assert witness.exists("/node") is not None
        assert not answer.ready()
        zookeeper_proxy.resume()
        assert answer.get(timeout=30) == "/node"
        assert zookeeper_proxy.connections == 1


def test_a_session_ends_unnoticed_in_a_black_hole(zookeeper: str, zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper) as witness, client_of(zookeeper_proxy.connect_string, timeout=1) as client:
        client.create("/here", ephemeral=True)
        first = client.client_id
        zookeeper_proxy.lose()
        assert eventually(lambda: witness.exists("/here") is None)
        assert zookeeper_proxy.cuts == 0
        zookeeper_proxy.heal()
        assert eventually(lambda: client.connected and client.client_id != first)


def test_a_refusing_proxy_accepts_no_connection(zookeeper_proxy: CuttingProxy) -> None:
    with client_of(zookeeper_proxy.connect_string) as client:
        zookeeper_proxy.refuse()
        zookeeper_proxy.cut()
        zookeeper_proxy.wait_until(lambda proxy: proxy.refused >= 2)
        assert zookeeper_proxy.connections == 1
        zookeeper_proxy.accept()
        assert client.retry(client.exists, "/") is not None


def test_sessions_may_last_half_a_second(zookeeper: str) -> None:
    with client_of(zookeeper, timeout=0.5) as client:
        assert client.exists("/") is not None


def test_an_ensemble_goes_on_without_its_leader(ensemble: Ensemble) -> None:
    leader = ensemble.leader
    assert leader is not None
    with CuttingProxy(ensemble.connect_string) as proxy, client_of(proxy.connect_string) as client:
        client.create("/written", b"before")
        ensemble.server(leader).kill()
        assert eventually(lambda: wrote(client, "/written", b"without"))
        ensemble.restart(leader)
        assert ensemble.leader not in (None, leader)


def test_a_paused_leader_is_replaced(ensemble: Ensemble) -> None:
    leader = ensemble.leader
    assert leader is not None
    ensemble.server(leader).pause()
    with client_of(ensemble.connect_string) as client:
        assert eventually(lambda: wrote(client, "/paused", b"without", create=True))
    ensemble.server(leader).resume()


def test_a_server_keeps_its_tree_and_its_port_over_a_kill(zookeeper_factory: ZooKeeperFactory) -> None:
    alone = zookeeper_factory()
    address = alone.connect_string
    with client_of(address) as client:
        client.create("/kept", b"value")
    alone.server(1).kill()
    assert not alone.server(1).is_serving
    alone.restart(1)
    with client_of(address) as client:
        assert client.get("/kept")[0] == b"value"


KILLED = """
import sys, time
from pathlib import Path
from oncelog_broker.local_cluster.process import LocalProcess
process = LocalProcess.start(["sleep", "1000"], Path(sys.argv[1]), dies_with_us=True)
print(process.pid, process.started, sep="|", flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a process with its parent")
def test_a_process_that_dies_with_its_parent_survives_no_kill_of_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as it:
        assert it.stdout is not None
        pid, _, started = it.stdout.readline().strip().partition("|")
        child = LocalProcess(int(pid), started)
        assert child.is_running
        it.kill()
        assert child.wait(30)


def test_the_shared_server_ends_with_the_run(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as run:
        code = (
            "import sys; from pathlib import Path; from tests.support.zookeeper.shared_server import shared_address; "
            f"print(shared_address(Path({str(tmp_path / 'zookeeper')!r}), {run.pid}))"
        )
        addresses = {
            subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        }
        assert len(addresses) == 1, "the second asks for the one of the first"
        with client_of(addresses.pop().strip()) as client:
            assert client.exists("/") is not None
        run.kill()
        run.wait()
    address = (tmp_path / "zookeeper" / "address").read_text()
    assert eventually(lambda: is_free(int(address.rpartition(":")[2])))


def wrote(client: KazooClient, path: str, value: bytes, create: bool = False) -> bool:
    try:
        if create:
            client.ensure_path(path)
        client.set(path, value)
    except (KazooException, SessionExpiredError):
        return False
    return True


def eventually(is_so: Callable[[], object], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.05)
    return bool(is_so())


def test_started_at_is_none_for_a_missing_process() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert started_at(ended.pid) is None
