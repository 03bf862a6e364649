"""Tests jumps of the wall clock of one broker, which leads, coordinates and is controller: nothing expires, and no
client is fenced.

Only the function that reads the wall clock is changed (`runtime/clock.py`); the broker's monotonic clock continues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from final_state import settle_and_check
from raw_transactions import RawTransactions
from recording_clients import PRODUCERS, RecordingProducer
from recording_members import MEMBERS
from replicated_cluster import ReplicatedCluster

from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

JUMPS = """
from pathlib import Path
from oncelog_broker.runtime.clock import SystemClock

command = Path("/proc/self/cmdline").read_bytes().decode().split("\\0")
jump = Path(command[command.index("--data") + 1] + ".jump") if "--data" in command else None
now_ms = SystemClock.now_ms

def now_where_it_jumps(self):
    try:
        return now_ms(self) + int(jump.read_text())
    except FileNotFoundError:
        return now_ms(self)

if jump is not None:
    SystemClock.now_ms = now_where_it_jumps
"""
"""A module that lets a broker read the offset of its clock, in ms, from a file beside its data directory."""
HOUR_MS = 3_600_000
SETTINGS = {
    "zookeeper.session.timeout.ms": "18000",  # no broker is killed here, and a busy machine must not cause elections
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # By default, records with client timestamps would be refused, because they would be two hours in the future for a
    # broker whose clock went back.
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
}
SHORT_MS = 1000
"""The timeout in ms of a transaction that must time out; its end shows that other transactions could have timed out by
then.
"""


@pytest.fixture(scope="module")
def jumping(chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    directory = tmp_path_factory.mktemp("jumping")
    (directory / "sitecustomize.py").write_text(JUMPS)
    with pytest.MonkeyPatch.context() as environment:
        path = [str(directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        with ReplicatedCluster(directory, chroots(), SETTINGS) as cluster:
            yield cluster
    cluster.check_logs()


@pytest.mark.parametrize("hours", [-2, 1])
def test_c25_a_clock_jumps(jumping: ReplicatedCluster, history: History, topic: str, hours: int) -> None:
    """The clock jumps forward and back, while a transaction is open and a group is working."""
    cluster = jumping
    cluster.mend()
    whose = cluster.controller()
    others = [node_id for node_id in (1, 2, 3) if node_id != whose]
    cluster.create_topic(topic, (whose, *others))
    cluster.create_topic(f"{topic}-short", (whose, *others))
    place, clock = Place(topic), Path(f"{cluster.brokers[whose].data}.jump")
    transactional_id = coordinated_by(cluster, whose, topic, CoordinatorType.TRANSACTION)
    short_id = coordinated_by(cluster, whose, f"{topic}-short", CoordinatorType.TRANSACTION)
    group = coordinated_by(cluster, whose, topic, CoordinatorType.GROUP)
    with ExitStack() as stack:
        stack.callback(clock.unlink, missing_ok=True)
        producer = stack.enter_context(PRODUCERS["oncelog"](cluster.addresses, history, "anna", transactional_id))
        stack.enter_context(MEMBERS["oncelog"](cluster.addresses, history, "paul", group, topic, None))
        commit_some(producer, place)
        for jump in (hours * HOUR_MS, 0):
            producer.begin()
            producer.send(place)
            producer.flush()
            clock.with_suffix(".new").write_text(str(jump))
            clock.with_suffix(".new").rename(clock)
            until_others_time_out(cluster, short_id, f"{topic}-short")
            producer.send(place)
            producer.send_offset(group + "-2", place, 1)
            producer.commit()  # this call raises Abortable if the transaction has timed out or the producer was fenced
            commit_some(producer, place)
        sent = {send.value for send in history.sends}
        cluster.until(
            lambda: {value for reading in history.readings for _, value in reading.records} == sent,
            "the member has read everything",
        )
    settle_and_check(cluster, history, topic)


def coordinated_by(cluster: ReplicatedCluster, node_id: int, prefix: str, kind: CoordinatorType) -> str:
    """Return a name whose coordinator is that broker at present."""
    names = (f"{prefix}-{number}" for number in range(100))
    return next(name for name in names if cluster.coordinator(name, kind) == node_id)


def commit_some(producer: RecordingProducer, place: Place) -> None:
    producer.begin()
    for _ in range(3):
        producer.send(place)
    producer.commit()


def until_others_time_out(cluster: ReplicatedCluster, transactional_id: str, topic: str) -> None:
    """Wait until the coordinator has searched for expired transactions after the jump of its clock."""
    with cluster.client(cluster.coordinator(transactional_id)) as client:
        short = RawTransactions(client, transactional_id)
        short.take_over(timeout_ms=SHORT_MS)
        cluster.until(lambda: short.add(topic) == 0, "the coordinator has ended the last one")
        cluster.until(lambda: short.add(topic) != 0, "it is timed out")
