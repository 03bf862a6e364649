from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncelog_broker.local_cluster.broker_process import settings_of
from oncelog_broker.local_cluster.cluster import (
    ClusterError,
    LocalCluster,
    Wanted,
    changed_settings,
    find_member,
    planned,
    state_of,
)
from oncelog_broker.local_cluster.state import ClusterState, Member, StateFileError, load_state


def cluster_of(brokers: int) -> ClusterState:
    return planned(None, Wanted(brokers=brokers, port=9000))


def test_a_new_cluster_has_three_brokers_and_one_zookeeper() -> None:
    state = planned(None, Wanted())
    assert [(broker.number, broker.port) for broker in state.brokers] == [(1, 9092), (2, 9093), (3, 9094)]
    assert state.zookeeper_count == 1


def test_an_existing_cluster_keeps_its_layout() -> None:
    assert planned(cluster_of(2), Wanted()) == cluster_of(2)


def test_a_setting_that_no_broker_would_start_with_is_not_kept() -> None:
    with pytest.raises(ClusterError, match="nosuch"):
        planned(cluster_of(2), Wanted(settings={"nosuch.key": "1"}))


def test_a_setting_is_taken_back_by_an_empty_value() -> None:
    state = planned(cluster_of(2), Wanted(settings={"num.partitions": "3"}))
    assert planned(state, Wanted(settings={"num.partitions": ""})).settings == {}


def test_a_cluster_may_grow() -> None:
    assert planned(cluster_of(2), Wanted(brokers=4)) == cluster_of(4)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(brokers=1), "has 2 brokers, and cannot shrink"),
        (Wanted(port=9001), "first port of this cluster is 9000"),
        (Wanted(zookeepers=3), "has 1 ZooKeeper servers, and their number cannot be changed"),
    ],
)
def test_other_changes_of_an_existing_cluster_are_refused(wanted: Wanted, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        planned(cluster_of(2), wanted)


def test_settings_are_kept_and_the_last_one_counts() -> None:
    state = planned(cluster_of(1), Wanted(settings={"num.partitions": "1", "log.retention.ms": "1"}))
    again = planned(state, Wanted(settings={"log.retention.ms": "2"}))
    assert again.settings == {"num.partitions": "1", "log.retention.ms": "2"}


def test_three_brokers_replicate_all_and_fewer_as_far_as_they_go() -> None:
    def replication(brokers: int) -> tuple[str, str]:
        settings = settings_of(Path("/data"), Member(1, 9092), brokers, "zk:1", {})
        assert settings["transaction.state.log.min.isr"] == settings["min.insync.replicas"]
        return settings["default.replication.factor"], settings["min.insync.replicas"]

    assert [replication(brokers) for brokers in (1, 2, 3, 5)] == [("1", "1"), ("2", "1"), ("3", "2"), ("3", "2")]


def test_an_explicit_setting_takes_precedence_over_derived_ones() -> None:
    asked = {"min.insync.replicas": "1", "num.partitions": "7"}
    settings = settings_of(Path("/data"), Member(2, 9093), 3, "zk:1", asked)
    assert asked.items() <= settings.items()
    assert (settings["node.id"], settings["listeners"]) == ("2", "PLAINTEXT://127.0.0.1:9093")


@pytest.mark.parametrize("name", ["2", "broker-2"])
def test_brokers_have_short_names(name: str) -> None:
    assert find_member(cluster_of(3), name).port == 9001


def test_zookeeper_servers_are_found_and_a_missing_one_is_named() -> None:
    state = cluster_of(1)
    state.zookeepers = [Member(1, 2181)]
    assert find_member(state, "zookeeper-1").port == 2181
    with pytest.raises(ClusterError, match="unknown name '7'; known: broker-1, zookeeper-1"):
        find_member(state, "7")


def test_the_state_comes_back_from_its_file(tmp_path: Path) -> None:
    state = planned(None, Wanted(brokers=2, zookeepers=3, settings={"num.partitions": "3"}))
    state.zookeepers = [Member(1, 2181, 77, "then")]
    state.save(tmp_path)
    assert load_state(tmp_path) == state
    assert load_state(tmp_path / "elsewhere") is None


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "brokers": [{"id": 1}]}'])
def test_a_foreign_state_file_is_named_in_the_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(StateFileError, match=r"cluster\.json is not a state of a local cluster"):
        load_state(tmp_path)


def test_a_member_that_another_process_has_replaced_is_stopped() -> None:
    assert state_of(Member(1, 9092, pid=1, started="before the flood")) == "stopped"
    assert state_of(Member(1, 9092)) == "stopped"


def test_a_missing_cluster_is_named_in_the_error(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, lambda _: None)
    for command in (cluster.down, cluster.status, lambda: cluster.kill("1")):
        with pytest.raises(ClusterError, match="no cluster in"):
            command()
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"the port {port}, for broker 1, is used by another process"):
            LocalCluster(tmp_path, lambda _: None).up(Wanted(brokers=1, port=port))
    assert not (tmp_path / "cluster.json").exists()


def test_the_state_is_readable_json(tmp_path: Path) -> None:
    cluster_of(1).save(tmp_path)
    assert json.loads((tmp_path / "cluster.json").read_text())["brokers"][0]["port"] == 9000


def test_settings_unknown_to_a_running_broker_are_named(tmp_path: Path) -> None:
    (alone,) = cluster_of(1).brokers
    before = settings_of(tmp_path, alone, 1, "zookeeper", {})
    after = settings_of(tmp_path, alone, 3, "zookeeper", {})
    changed = changed_settings(before, after)
    assert {"default.replication.factor", "min.insync.replicas"} <= set(changed)
    assert changed_settings(before, before) == []
    assert changed_settings(None, after) == [], "one that was started by an earlier version"


def test_only_running_brokers_are_restarted(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, lambda _: None)
    cluster_of(2).save(tmp_path)
    with pytest.raises(ClusterError, match="no broker is running"):
        cluster.restart()
    with pytest.raises(ClusterError, match="broker-2 is not running"):
        cluster.restart(["2"])


@pytest.mark.parametrize(("with_data", "started"), [((), "1 2 3 wait"), ((2,), "2 wait 1 3 wait")])
def test_brokers_with_data_are_up_before_a_new_one_could_found_the_cluster(
    with_data: tuple[int, ...], started: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in with_data:
        (tmp_path / f"broker-{number}").mkdir()
        (tmp_path / f"broker-{number}" / "meta.properties").touch()
    said: list[str] = []

    def start(_: LocalCluster, state: ClusterState, broker: Member) -> None:
        if str(broker.number) not in said:
            said.append(str(broker.number))

    monkeypatch.setattr(LocalCluster, "_start_broker", start)
    monkeypatch.setattr(LocalCluster, "_start_zookeeper", lambda *_: None)
    monkeypatch.setattr(LocalCluster, "_wait_for", lambda *_: said.append("wait"))
    LocalCluster(tmp_path, said.append).up(Wanted(3))
    assert " ".join(said) == started


@pytest.mark.parametrize(
    ("asked", "told"),
    [("9404", "127.0.0.1:9406"), ("0.0.0.0:9404", "0.0.0.0:9406"), ("[::1]:9404", "[::1]:9406"), ("0", "127.0.0.1:0")],
)
def test_each_broker_has_an_http_port_of_its_own(asked: str, told: str) -> None:
    settings = settings_of(Path("/data"), Member(3, 9094), 3, "zk:1", {"http.listener": asked})
    assert settings["http.listener"] == told
