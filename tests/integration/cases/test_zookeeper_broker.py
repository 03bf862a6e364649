"""Tests a live broker with metadata in ZooKeeper: sessions end, the ensemble becomes unreachable, processes replace
each other.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import eventually
from kazoo.client import KazooClient
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from tests.support.zookeeper.cutting_proxy import CuttingProxy, Moment
from tests.support.zookeeper.frames import Frame

from oncelog_broker.metadata import paths
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record, read_records

LONG_SESSION = "60000"
SHORT_SESSION = "2000"
ATTEMPTS = 10


@pytest.fixture
def look(zookeeper: str) -> Iterator[KazooClient]:
    """Yield another client of the ensemble, with which the test reads ZooKeeper's contents."""
    client = KazooClient(zookeeper, timeout=30)
    client.start(60)
    yield client
    client.stop()
    client.close()


def record(text: str) -> bytes:
    return bytes(build_batch([Record(0, 1, None, text.encode(), [])]))


def produced(client: RawClient, topic: str, text: str) -> tuple[ErrorCode, int]:
    """Produce one record, and return the error code and the offset from the response."""
    answer = client.call(produce_request(topic, 0, record(text)), ApiKey.PRODUCE, PRODUCE_VERSION)
    (partition,) = answer.responses[0].partition_responses
    return ErrorCode(partition.error_code), partition.base_offset


def texts(client: RawClient, topic: str) -> list[bytes]:
    found: list[bytes] = []
    while more := [each for batch in client.fetch(topic, 0, len(found)) for each in read_records(batch)]:
        found += [bytes(each.value or b"") for each in more]
    return found


def leader_epoch(client: RawClient, topic: str) -> int:
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    return int(client.call(asked, ApiKey.METADATA, 9).topics[0].partitions[0].leader_epoch)


def on_zookeeper(connect: str, session: str, **settings: str) -> dict[str, str]:
    return {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": session, **settings}


def registration(look: KazooClient) -> dict[str, Any]:
    return dict(json.loads(look.get("/brokers/ids/1")[0]))


def test_a_broker_registers_and_leaves_a_trace_for_its_successor(
    broker_factory: BrokerFactory, zookeeper: str, look: KazooClient
) -> None:
    broker = broker_factory(on_zookeeper(zookeeper, LONG_SESSION)).start()
    assert f"metadata in ZooKeeper at {zookeeper}" in broker.start_line
    first = registration(look)
    assert (first["port"], first["log_tail"]) == (broker.port, "unsure"), "a data directory without a past"
    session_file = broker.data / ".oncelog-session"
    assert stat.S_IMODE(session_file.stat().st_mode) == 0o600
    assert int(json.loads(session_file.read_text())["session"], 16) == look.get("/brokers/ids/1")[1].ephemeralOwner
    epoch = look.get("/brokers/ids/1")[1].czxid
    broker.stop()
    assert look.exists("/brokers/ids/1") is None
    broker.start()
    second = registration(look)
    assert (second["log_tail"], second["previous_broker_epoch"]) == ("kept", epoch)
    assert second["boot"] == first["boot"] != ""
    assert look.get("/oncelog/incarnations/1")[1].version == 1
    assert not (broker.data / "metadata.db").exists()


def test_after_kill_9_the_next_process_takes_over_at_once(
    broker_factory: BrokerFactory, zookeeper: str, look: KazooClient, topic: str
) -> None:
    """Without a takeover by the new process, the old session would have lasted for a minute."""
    broker = broker_factory(on_zookeeper(zookeeper, LONG_SESSION)).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        assert produced(client, topic, "a") == (ErrorCode.NONE, 0)
    before = look.get("/brokers/ids/1")[1]
    broker.kill()
    assert look.exists("/brokers/ids/1") is not None
    started = time.monotonic()
    broker.start()
    assert time.monotonic() - started < int(LONG_SESSION) / 1000
    after = look.get("/brokers/ids/1")[1]
    assert after.ephemeralOwner != before.ephemeralOwner
    assert after.czxid > before.czxid
    assert registration(look)["log_tail"] == "kept", "what a process has written outlives it"
    with RawClient(broker.port) as client:
        assert produced(client, topic, "b") == (ErrorCode.NONE, 1)
        assert texts(client, topic) == [b"a", b"b"]


def test_a_broker_id_that_is_taken_is_refused(broker_factory: BrokerFactory, zookeeper: str, tmp_path: Path) -> None:
    broker_factory(on_zookeeper(zookeeper, LONG_SESSION)).start()
    second = broker_factory(on_zookeeper(zookeeper, SHORT_SESSION), tmp_path / "another")
    assert "broker id 1 is in use by another live broker" in refusal_of(second)


def test_a_start_without_zookeeper_says_what_is_missing(broker_factory: BrokerFactory) -> None:
    """By default the broker waits for ZooKeeper as long as a session lasts."""
    broker = broker_factory(on_zookeeper("127.0.0.1:1", "500"))
    del broker.settings["zookeeper.connection.timeout.ms"]
    assert "no answer of ZooKeeper at 127.0.0.1:1 in 0.5 s" in refusal_of(broker)


def test_a_member_of_a_cluster_does_not_start_alone(
    broker_factory: BrokerFactory, zookeeper: str, tmp_path: Path
) -> None:
    """Without this refusal, the records of a broker with another cluster's data would diverge from those of the
    cluster, and no client would notice.
    """
    data = tmp_path / "member"
    with broker_factory(on_zookeeper(zookeeper, SHORT_SESSION), data):
        pass
    alone = BrokerProcess(data)
    alone.settings.pop("zookeeper.connect", None)
    refusal = refusal_of(alone)
    assert f"a cluster with metadata in ZooKeeper at {zookeeper}, but zookeeper.connect is not set" in refusal
    assert not (data / "metadata.db").exists()
    alone.settings["start.accept"] = accepted_by(refusal)
    with alone:
        assert "embedded metadata" in alone.start_line


def accepted_by(refusal: str) -> str:
    """Return the last value of start.accept that the message names."""
    return re.findall(r"start\.accept=(\S+)", refusal)[-1]


def refusal_of(broker: BrokerProcess) -> str:
    with pytest.raises(AssertionError, match="the broker ended") as refused:
        broker.start()
    broker.kill()  # the process has ended, but its pipe can still be read
    return str(refused.value)


@pytest.mark.usefixtures("in_a_file")
def test_a_broker_alone_does_not_import_kazoo(broker_factory: BrokerFactory, sabotage: Callable[[str], None]) -> None:
    """Importing kazoo would slow down every start of a single broker, so a single broker must not import it."""
    sabotage("import sys; sys.modules['kazoo'] = None")
    assert "embedded metadata" in broker_factory().start().start_line


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_a_session_that_ends_is_followed_by_another_registration(
    broker_factory: BrokerFactory, zookeeper: str, look: KazooClient, topic: str, times: int
) -> None:
    broker = broker_factory(on_zookeeper(zookeeper, LONG_SESSION)).start()
    sent: list[bytes] = []
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        for number in range(times):
            before, epoch = look.get("/brokers/ids/1")[1], leader_epoch(client, topic)
            end_session(broker, zookeeper)

            def is_back(before: Any = before) -> bool:
                found = look.exists("/brokers/ids/1")
                return found is not None and found.czxid > before.czxid

            eventually(is_back, "another registration")
            text = f"record {number}"
            until_produced(client, topic, text)
            sent.append(text.encode())
            assert leader_epoch(client, topic) > epoch, "as after a restart: others may have led meanwhile"
        assert texts(client, topic) == sent
    assert look.get("/oncelog/incarnations/1")[1].version == times
    assert sorted(look.get_children("/brokers/ids")) == ["1"]
    assert "Traceback" not in broker.log.read_text()


def test_s74_a_running_broker_does_not_re_found_an_emptied_zookeeper(
    broker_factory: BrokerFactory, zookeeper: str, look: KazooClient, topic: str
) -> None:
    """When the cluster's nodes in ZooKeeper are deleted, the broker stops serving and logs the reason: its records
    would diverge from those of its cluster.
    """
    broker = broker_factory(on_zookeeper(zookeeper, LONG_SESSION)).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        assert produced(client, topic, "a") == (ErrorCode.NONE, 0)
        # the broker is disconnected during the deletion, and finds no nodes when it reconnects
        os.kill(broker.pid, signal.SIGSTOP)
        for name in look.get_children("/"):
            look.delete(f"/{name}", recursive=True)
        end_session(broker, zookeeper)
        said = "this broker serves no requests until its metadata store is back: the store is empty"
        eventually(lambda: said in broker.log.read_text(), said)
        assert produced(client, topic, "b")[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert look.exists("/cluster") is None
    broker.kill()
    assert (broker.data / f"{topic}-0").exists()
    assert broker.log.read_text().count(said) == 1


def end_session(broker: BrokerProcess, connect: str) -> None:
    """End the broker's ZooKeeper session without its knowledge, using the session key that the broker stores for its
    successor. The broker is paused while its session is ended, because it would otherwise resume the session
    repeatedly.
    """
    left = json.loads((broker.data / ".oncelog-session").read_text())
    key = (int(left["session"], 16), bytes.fromhex(left["password"]))
    client = KazooClient(connect, timeout=30, client_id=key)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        client.start(60)
        client.stop()
        client.close()
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def until_produced(client: RawClient, topic: str, text: str) -> int:
    """Produce a record, repeat the request while it is refused, and return the record's offset."""
    refusals = set()

    def offset() -> tuple[int] | None:
        code, base_offset = produced(client, topic, text)
        if code is ErrorCode.NONE:
            return (base_offset,)
        refusals.add(code)
        return None

    found = eventually(offset, "a record is taken")
    assert refusals <= {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    return found[0]


def test_an_ensemble_that_is_gone_shuts_the_gate_and_its_return_opens_it(
    broker_factory: BrokerFactory, zookeeper_factory: Callable[..., Any], topic: str
) -> None:
    """The session remains the same: no leader is replaced, nothing is closed, and the epoch does not change."""
    ensemble = zookeeper_factory()
    alone = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    broker = broker_factory({**on_zookeeper(ensemble.connect_string + "/oncelog", SHORT_SESSION), **alone})
    broker.log_level = "info"
    broker.start()
    asked = InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=60_000)
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        for _ in range(ATTEMPTS):
            until_produced(client, topic, "a")
            until_coordinated(client, topic)
            before, end = logged(broker), len(texts(client, topic))
            epoch = leader_epoch(client, topic)
            ensemble.kill()
            eventually(lambda: produced(client, topic, "b")[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER, "the gate is shut")
            assert client.call(asked, ApiKey.INIT_PRODUCER_ID, 4).error_code == ErrorCode.NOT_COORDINATOR
            ensemble.start()
            until_produced(client, topic, "c")
            until_coordinated(client, topic)
            since = logged(broker)[len(before) :]
            if "the ZooKeeper session has expired" not in since:
                break  # the session survived; on a busy machine the ensemble may end it
        else:
            pytest.fail(f"the session was lost {ATTEMPTS} times: {since}")
        assert leader_epoch(client, topic) == epoch
        found = texts(client, topic)[end - 1 :]
    assert found[0] == b"a"
    assert found[-1] == b"c"
    assert set(found[1:-1]) <= {b"b"}, "those that were taken while the lease held"
    assert "coordinator loaded" not in since
    assert broker.stop() == 0


def logged(broker: BrokerProcess) -> str:
    """Return all log lines of the broker until now; it writes them in a separate thread, with a delay."""
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        last = f"client=127.0.0.1:{connection.getsockname()[1]}"
        connection.sendall(b"\xff" * 4)
        return eventually(lambda: text if last in (text := broker.log.read_text()) else "", "the log is written")


def until_coordinated(client: RawClient, transactional_id: str) -> None:
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

    def is_ready() -> bool:
        found = client.call(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), ApiKey.FIND_COORDINATOR, 4
        )
        if found.coordinators[0].error_code:
            return False
        return bool(client.call(asked, ApiKey.INIT_PRODUCER_ID, 4).error_code == ErrorCode.NONE)

    eventually(is_ready, "a coordinator")


def test_a_broker_stops_in_order_where_zookeeper_is_gone(
    broker_factory: BrokerFactory, zookeeper_factory: Callable[..., Any]
) -> None:
    ensemble = zookeeper_factory()
    broker = broker_factory(on_zookeeper(ensemble.connect_string, SHORT_SESSION)).start()
    ensemble.server(1).pause()
    assert broker.stop() == 0
    ensemble.server(1).resume()


@pytest.mark.parametrize("moment", Moment, ids=["never done", "done unheard"])
def test_a_broker_starts_although_its_connection_breaks(
    tmp_path: Path, zookeeper_proxy: CuttingProxy, look: KazooClient, moment: Moment
) -> None:
    """The connection breaks when the broker reads or writes in two phases of its start: while it checks the cluster id,
    and while it creates the first users.
    """
    settings = {
        "zookeeper.connect": zookeeper_proxy.connect_string,
        "zookeeper.session.timeout.ms": LONG_SESSION,
        "sasl.scram.first.users": "anna=secret",
    }
    cuts = [
        zookeeper_proxy.cut_when(partial(Frame.mentions, path=path), moment, times=2)
        for path in (paths.PROPOSED_CLUSTER_ID, paths.user_config("anna"))
    ]
    with BrokerProcess(tmp_path / "data", settings):
        assert [cut.count for cut in cuts] == [2, 2]
    (data, _) = look.get(paths.user_config("anna"))
    assert b"SCRAM" in data
