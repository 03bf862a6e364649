"""Each check of `oncelog doctor` finds its fault, names it, and says what to do; a healthy cluster passes all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncelog.admin.log_dirs import LogDirectory
from oncelog.cli.broker_http import BrokerPages
from oncelog.cli.cluster_state import ClusterState
from oncelog.cli.health_checks import CHECKS, FINE, Evidence, Finding, State, findings
from oncelog.cluster import Broker, Partition, Topic
from oncelog.errors import error_for
from oncelog_protocol.errors import ErrorCode

GB = 1_000_000_000
VERSIONS = frozenset({(0, 3, 12), (1, 4, 17)})
METRICS = "process_open_fds 100.0\nprocess_max_fds 65536.0\noncelog_session_in_doubt 0.0\n"


def pages(**changes: Any) -> BrokerPages:
    return replace(BrokerPages("0.1.0", 100.0, 10.0, METRICS), **changes)


def healthy() -> Evidence:
    partition = Partition(0, leader=1, replicas=(1, 2), isr=(2, 1))
    state = ClusterState(
        brokers={1: Broker(1, "one", 9092), 2: Broker(2, "two", 9092)},
        controller_id=1,
        topics={"orders": Topic("orders", partitions={0: partition})},
        moving={},
        directories={node: {"/data": LogDirectory({}, 100 * GB, 50 * GB)} for node in (1, 2)},
    )
    return Evidence(
        state,
        unreachable={},
        api_versions={1: VERSIONS, 2: VERSIONS},
        pages={1: pages(), 2: pages()},
        unread={},
        hanging={},
        hanging_error="",
        throttled=frozenset(),
    )


def with_state(**changes: Any) -> Evidence:
    evidence = healthy()
    return replace(evidence, state=replace(evidence.state, **changes))


def with_partition(**changes: Any) -> Evidence:
    partition = replace(Partition(0, leader=1, replicas=(1, 2), isr=(2, 1)), **changes)
    return with_state(topics={"orders": Topic("orders", partitions={0: partition})})


def with_pages(**changes: Any) -> Evidence:
    return replace(healthy(), pages={1: pages(), 2: pages(**changes)})


def metrics(**values: float) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


FAULTS: dict[str, tuple[str, State, Evidence, str, str]] = {
    "a broker cannot be reached from here": (
        "listeners",
        State.PROBLEM,
        replace(healthy(), unreachable={2: "connection refused"}),
        "broker 2 advertises two:9092",
        "advertised.listeners",
    ),
    "there is no controller": ("controller", State.PROBLEM, with_state(controller_id=-1), "no controller", "ZooKeeper"),
    "a broker with replicas is away": (
        "brokers",
        State.PROBLEM,
        with_state(brokers={1: Broker(1, "one", 9092)}),
        "broker 2 should hold replicas",
        "decommission 2",
    ),
    "a partition has no leader": (
        "replication",
        State.PROBLEM,
        with_partition(leader=-1),
        "1 partition without a leader: orders-0",
        "topics describe",
    ),
    "a replica is out of sync": (
        "replication",
        State.WARNING,
        with_partition(isr=(1,)),
        "1 partition with replicas out of sync: orders-0",
        "ping --in-sync",
    ),
    "a partition has a single replica": (
        "replication",
        State.WARNING,
        with_partition(replicas=(1,), isr=(1,)),
        "one replica only: orders-0",
        "--replication-factor 3",
    ),
    "a transaction hangs": (
        "transactions",
        State.PROBLEM,
        replace(healthy(), hanging={"orders-0": ("unknown",)}),
        "orders-0 has a hanging transaction (unknown)",
        "find-hanging",
    ),
    "transactions may not be asked for": (
        "transactions",
        State.UNKNOWN,
        replace(healthy(), hanging=None, hanging_error="CLUSTER_AUTHORIZATION_FAILED"),
        "CLUSTER_AUTHORIZATION_FAILED",
        "rights",
    ),
    "a disk has failed": (
        "disks",
        State.PROBLEM,
        with_state(directories={1: {"/data": error_for(ErrorCode.KAFKA_STORAGE_ERROR)}, 2: {}}),
        "/data of broker 1 has failed",
        "replace the disk",
    ),
    "a disk is almost full": (
        "disks",
        State.PROBLEM,
        with_state(directories={1: {"/data": LogDirectory({}, 100 * GB, 5 * GB)}, 2: {}}),
        "/data of broker 1 has 5% of its space left",
        "retention.ms",
    ),
    "a broker does not describe its disks": (
        "disks",
        State.UNKNOWN,
        with_state(directories={1: {}}),
        "broker 2",
        "findings",
    ),
    "a session is in doubt": (
        "leases",
        State.PROBLEM,
        with_pages(metrics=metrics(oncelog_session_in_doubt=1)),
        "session of broker 2",
        "ZooKeeper",
    ),
    "a clock is ahead": (
        "clocks",
        State.WARNING,
        with_pages(clock_offset_ms=7300.0),
        "clock of broker 2 is 7.3 s ahead of",
        "chrony",
    ),
    "a clock is behind": ("clocks", State.WARNING, with_pages(clock_offset_ms=-7300.0), "7.3 s behind", "chrony"),
    "descriptors run out": (
        "descriptors",
        State.PROBLEM,
        with_pages(metrics=metrics(process_open_fds=900, process_max_fds=1000)),
        "broker 2 uses 900 of 1000",
        "LimitNOFILE",
    ),
    "the limit of descriptors is low": (
        "descriptors",
        State.WARNING,
        with_pages(metrics=metrics(process_open_fds=9, process_max_fds=1024)),
        "broker 2 may open 1024 files only",
        "LimitNOFILE",
    ),
    "releases differ": (
        "versions",
        State.WARNING,
        with_pages(release="0.2.0"),
        "broker 1 has 0.1.0, broker 2 has 0.2.0",
        "upgrade",
    ),
    "brokers serve other versions": (
        "versions",
        State.WARNING,
        replace(healthy(), api_versions={1: VERSIONS, 2: VERSIONS, 3: frozenset({(0, 3, 11)})}),
        "broker 3 serves other versions",
        "upgrade",
    ),
    "a throttle is left behind": (
        "throttles",
        State.WARNING,
        replace(healthy(), throttled=frozenset({"orders"})),
        "left on orders",
        "rebalance --execute",
    ),
}


def test_a_healthy_cluster_has_no_finding_and_every_check_is_named() -> None:
    assert findings(healthy()) == [Finding(check, State.OK, FINE[check]) for check in CHECKS]
    assert CHECKS.keys() == FINE.keys() == {check for check, *_ in FAULTS.values()}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_check_with_what_to_do(fault: str) -> None:
    check, state, evidence, what, remedy = FAULTS[fault]
    found = [each for each in findings(evidence) if each.check == check]
    assert [each.state for each in found] == [state], found
    assert what in found[0].what
    assert remedy in found[0].remedy


@pytest.mark.parametrize("check", ["clocks", "descriptors", "leases"])
def test_a_check_that_needs_unreadable_metrics_says_so(check: str) -> None:
    evidence = replace(healthy(), pages={1: pages()}, unread={2: "http.listener is not set"})
    (found,) = [each for each in findings(evidence) if each.check == check]
    assert (found.state, found.what) == (State.UNKNOWN, "broker 2: http.listener is not set")


def test_a_clock_is_not_blamed_for_a_slow_answer() -> None:
    (found,) = [
        each for each in findings(with_pages(clock_offset_ms=5000.0, round_trip_ms=8000.0)) if each.check == "clocks"
    ]
    assert found.state is State.OK


def test_a_moving_partition_may_be_throttled() -> None:
    from oncelog.admin.reassignments import Reassignment
    from oncelog.cluster import TopicPartition

    evidence = with_state(moving={TopicPartition("orders", 0): Reassignment((1, 2), (2,), ())})
    found = findings(replace(evidence, throttled=frozenset({"orders"})))
    assert [each.state for each in found if each.check == "throttles"] == [State.OK]


@pytest.mark.parametrize(("racks", "state"), [(("m", "m"), State.OK), (("m", "n"), State.WARNING)])
def test_a_single_replica_is_right_where_all_brokers_are_in_one_rack(racks: tuple[str, str], state: State) -> None:
    """Workers of one machine have the machine as their rack: a second replica would be lost with the first one."""
    brokers = {node: Broker(node, "here", 9092 + node, rack) for node, rack in enumerate(racks, 1)}
    evidence = with_partition(replicas=(1,), isr=(1,))
    found = findings(replace(evidence, state=replace(evidence.state, brokers=brokers)))
    assert [each.state for each in found if each.check == "replication"] == [state]


def test_many_partitions_are_counted_and_a_few_named() -> None:
    partitions = {index: Partition(index, leader=-1, replicas=(1, 2), isr=(1, 2)) for index in range(7)}
    found = findings(with_state(topics={"orders": Topic("orders", partitions=partitions)}))
    (said,) = [each.what for each in found if each.check == "replication"]
    assert said == "7 partitions without a leader: orders-0, orders-1, orders-2 and 4 more"
