"""Streams groups: members join, get tasks, give tasks up, and leave; also topics, statuses, endpoints, epochs and
limits.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.consumer_groups import topic
from tests.support.groups import state_of
from tests.support.streams_groups import (
    SIMPLE,
    STATEFUL,
    WORD_COUNT,
    Client1071,
    StreamsDriver,
    each_task,
    ids_of,
    internal,
    subtopology,
    tasks_in,
    topology,
)

from oncelog_broker.coordinator.group.config import GroupConfig, StreamsGroupSettings
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.streams.heartbeat_answer import SOON_MS
from oncelog_broker.coordinator.group.streams.heartbeat_request import check_request
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup, StreamsGroupState
from oncelog_broker.coordinator.group.streams.streams_target import BY_INITIAL_DELAY, BY_INTERVAL
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StatusCode,
    StreamsGroupHeartbeatRequest,
    TaskOffset,
)

ALL_OF_T = frozenset(("0", number) for number in range(4))
WITHOUT_DELAY = GroupConfig(streams=StreamsGroupSettings(initial_rebalance_delay_ms=0))


@pytest.fixture
def driver() -> StreamsDriver:
    return StreamsDriver()


def reasons(client: Client1071) -> set[StatusCode]:
    return {StatusCode(code) for code in client.statuses}


# --- joining


def test_the_first_member_waits_for_others_and_gets_all_tasks(driver: StreamsDriver) -> None:
    client = driver.streams_client()
    client.join()
    assert (client.epoch, client.active, client.interval_ms) == (1, frozenset(), SOON_MS)
    assert client.statuses == {StatusCode.ASSIGNMENT_DELAYED: BY_INITIAL_DELAY}
    assert driver.streams_group.state is StreamsGroupState.ASSIGNING
    driver.advance(2.9)
    client.beat()
    assert (client.active, client.interval_ms) == (frozenset(), 100)
    driver.advance(0.1)
    client.beat()
    assert (client.epoch, client.active, client.statuses, client.interval_ms) == (2, ALL_OF_T, {}, 5_000)
    assert driver.streams_group.state is StreamsGroupState.STABLE


def test_members_that_join_within_the_delay_are_assigned_together(driver: StreamsDriver) -> None:
    first, second = driver.streams_client(), driver.streams_client()
    first.join()
    second.join()
    driver.advance(3.0)
    first.beat()
    second.beat()
    assert (first.epoch, second.epoch) == (3, 3)
    assert (len(first.active), len(second.active)) == (2, 2)
    assert each_task(first, second) == sorted(ALL_OF_T)


def test_without_delay_the_first_answer_has_tasks() -> None:
    client = StreamsDriver(WITHOUT_DELAY).streams_client()
    client.join()
    assert (client.epoch, client.active) == (2, ALL_OF_T)


def test_a_group_that_empties_and_fills_again_within_the_delay(driver: StreamsDriver) -> None:
    """The initial rebalance delay continues; when it ends, the members present at that time get tasks (KAFKA-19926)."""
    first = driver.streams_client()
    first.join()
    first.leave()
    driver.advance(1.0)
    second = driver.streams_client()
    second.join()
    assert reasons(second) == {StatusCode.ASSIGNMENT_DELAYED}
    driver.advance(2.0)
    second.beat()
    assert second.active == ALL_OF_T
    second.leave()
    driver.advance(4.0)
    assert driver.streams_group.state is StreamsGroupState.EMPTY


def test_topics_that_were_created_within_the_delay_are_assigned_when_it_is_over(driver: StreamsDriver) -> None:
    client = driver.streams_client(topology=WORD_COUNT)
    client.join()
    driver.advance(2.9)
    driver.create_topics()
    driver.advance(0.1)
    client.beat()
    assert len(client.active) == 8, "the delay does not count as an assignment without topics"


def test_a_delay_that_ends_in_an_empty_group_does_nothing(driver: StreamsDriver) -> None:
    client = driver.streams_client()
    client.join()
    client.leave()
    logged = len(driver.log)
    driver.advance(3.0)
    assert len(driver.log) == logged
    client.join()
    assert reasons(client) == {StatusCode.ASSIGNMENT_DELAYED}, "an empty group waits again"


def test_a_member_that_comes_back_has_its_tasks_at_once(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    epoch = driver.streams_group.epoch
    client.join()
    assert (client.active, driver.streams_group.epoch) == (ALL_OF_T, epoch)


def test_tags_and_endpoint_are_noted(driver: StreamsDriver) -> None:
    driver.streams_joined(tags={"zone": "b", "a": "1"}, endpoint=("host", 8080), process_id="p")
    (member,) = driver.streams_group.members.values()
    assert (member.tags, member.endpoint, member.process_id) == (
        (("a", "1"), ("zone", "b")),
        ("host", 8080),
        "p",
    )
    epoch = driver.streams_group.epoch
    driver.streams_heartbeat(member_id="m1", member_epoch=member.epoch, client_tags=[KeyValue(key="zone", value="c")])
    assert driver.streams_group.epoch == epoch + 1, "all that a member says may matter to an assignment"


# --- topics


def test_missing_internal_topics_are_asked_for_until_they_are_there(driver: StreamsDriver) -> None:
    client = driver.streams_client(topology=WORD_COUNT)
    client.join()
    assert client.statuses[StatusCode.MISSING_INTERNAL_TOPICS].startswith("Internal topics are missing: ")
    assert [(each.name, each.partitions) for each in driver.wanted] == [
        ("counts-changelog", 4),
        ("words-repartition", 4),
    ]
    assert driver.streams_group.state is StreamsGroupState.NOT_READY
    driver.advance(3.0)
    client.beat()
    assert (client.active, reasons(client), client.interval_ms) == (
        frozenset(),
        {StatusCode.MISSING_INTERNAL_TOPICS},
        SOON_MS,
    )
    driver.create_topics()
    driver.advance(1.0)
    client.beat()
    assert client.active == ALL_OF_T | {("1", number) for number in range(4)}
    assert not client.statuses
    assert driver.streams_group.state is StreamsGroupState.STABLE


def test_source_topics_that_are_deleted_take_all_tasks_away(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    driver.set_topics(without=["t"])
    driver.advance(1.0)
    client.beat()
    assert (client.active, reasons(client)) == (frozenset(), {StatusCode.MISSING_SOURCE_TOPICS})
    client.beat()
    assert driver.streams_group.state is StreamsGroupState.NOT_READY
    driver.set_topics(topic("t", 2, incarnation=1))
    driver.advance(1.0)
    client.beat()
    assert client.active == {("0", 0), ("0", 1)}


def test_partitions_that_are_added_become_tasks(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    driver.set_topics(topic("t", 6))
    driver.advance(1.0)
    client.beat()
    assert client.active == ALL_OF_T | {("0", 4), ("0", 5)}


def test_a_heartbeat_that_says_nothing_sees_new_topics_too(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    client.idle()
    driver.set_topics(topic("t", 6))
    driver.advance(1.0)
    client.idle()
    assert len(client.active) == 6


def test_topics_that_others_use_change_nothing(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    epoch = driver.streams_group.epoch
    driver.set_topics(topic("v", 6))
    client.beat()
    assert driver.streams_group.epoch == epoch


# --- the topology


def test_another_topology_is_refused(driver: StreamsDriver) -> None:
    driver.streams_joined()
    other = driver.streams_client(topology=STATEFUL)
    assert other.join().code is ErrorCode.INVALID_REQUEST
    newer = driver.streams_client(topology=topology(*SIMPLE.subtopologies, epoch=1))
    assert newer.join().code is ErrorCode.INVALID_REQUEST


def test_an_older_topology_is_told(driver: StreamsDriver) -> None:
    driver.streams_joined(topology=topology(*SIMPLE.subtopologies, epoch=1))
    old = driver.streams_client(topology=SIMPLE)
    old.join()
    assert StatusCode.STALE_TOPOLOGY in reasons(old)
    driver.advance(1.0)
    old.beat()
    assert old.statuses == {
        StatusCode.STALE_TOPOLOGY: "The member's topology epoch 0 is behind the group's topology epoch 1."
    }


def test_the_topology_stays_while_the_group_is_empty(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    client.leave()
    assert driver.streams_client(topology=STATEFUL).join().code is ErrorCode.INVALID_REQUEST
    driver.run(lambda answer: driver.machine.delete("g"))
    assert driver.streams_client(topology=STATEFUL).join().code is ErrorCode.NONE


# --- moving tasks


def test_a_task_moves_when_its_member_has_given_it_up(driver: StreamsDriver) -> None:
    first = driver.streams_joined()
    second = driver.streams_client()
    second.join()
    assert second.active == frozenset()
    driver.advance(1.0)
    second.beat()
    assert second.active == frozenset() and second.interval_ms == SOON_MS
    first.idle()
    told = first.active
    assert len(told) == 2
    second.beat()
    assert second.active == frozenset(), "the first one has not said that it gave its tasks up"
    assert driver.streams_group.state is StreamsGroupState.RECONCILING
    first.beat()
    second.beat()
    assert each_task(first, second) == sorted(ALL_OF_T)
    assert first.active == told
    assert first.epoch == second.epoch == driver.streams_group.epoch
    assert driver.streams_group.state is StreamsGroupState.STABLE


def test_a_member_that_does_not_give_tasks_up_is_fenced(driver: StreamsDriver) -> None:
    first = driver.streams_joined()
    had = first.active
    second = driver.streams_client()
    second.join()
    driver.advance(1.0)
    second.beat()
    first.idle()
    for _ in range(31):
        driver.advance(1.0)
        second.beat()
        if first.epoch:
            first.send(active_tasks=ids_of(had), standby_tasks=[], warmup_tasks=[])
    assert set(driver.streams_group.members) == {"m2"}
    driver.settle_streams(second)
    assert second.active == ALL_OF_T


def test_a_silent_member_goes(driver: StreamsDriver) -> None:
    first, second = driver.streams_joined(), driver.streams_joined()
    driver.settle_streams(first, second)
    for _ in range(10):
        driver.advance(5.0)
        second.beat()
    assert set(driver.streams_group.members) == {"m2"}
    assert first.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    driver.settle_streams(second)
    assert second.active == ALL_OF_T


def test_assignments_keep_their_interval(driver: StreamsDriver) -> None:
    first = driver.streams_joined()
    driver.advance(5.0)
    second, third = driver.streams_client(), driver.streams_client()
    second.join()
    third.join()
    assert third.statuses == {StatusCode.ASSIGNMENT_DELAYED: BY_INTERVAL}
    assert third.interval_ms == SOON_MS
    driver.settle_streams(first, second, third)
    assert each_task(first, second, third) == sorted(ALL_OF_T)


def test_two_members_of_a_process_never_have_the_same_task_in_two_roles() -> None:
    """The tasks of one process share a state directory, so a process must give up its standby task before the active
    task starts there.
    """
    driver = StreamsDriver(GroupConfig(streams=StreamsGroupSettings(num_standby_replicas=1)))
    first = driver.streams_joined(topology=STATEFUL, process_id="p")
    other = driver.streams_joined(topology=STATEFUL, process_id="q")
    second = driver.streams_joined(topology=STATEFUL, process_id="p")
    for _ in range(20):
        driver.advance(1.0)
        for client in (first, second, other):
            client.beat()
            assert not (first.active | first.standby) & (second.active | second.standby)
    assert each_task(first, second, other) == sorted(ALL_OF_T)
    assert first.standby | second.standby == other.active
    assert other.standby == first.active | second.active


# --- standby tasks


def test_standby_tasks(driver: StreamsDriver) -> None:
    driver.overrides["g"] = {"streams.num.standby.replicas": "1"}
    first = driver.streams_joined(topology=STATEFUL)
    assert first.standby == frozenset(), "there is no other process"
    second = driver.streams_joined(topology=STATEFUL)
    driver.settle_streams(first, second)
    assert (first.standby, second.standby) == (second.active, first.active)
    assert each_task(first, second) == sorted(ALL_OF_T)
    driver.overrides["g"] = {"streams.num.standby.replicas": "0"}
    driver.settle_streams(first, second)
    assert first.standby == second.standby == frozenset()
    assert driver.streams_group.assignment_configs == {"num.standby.replicas": "0"}


def test_a_standby_becomes_active_when_the_active_one_dies(driver: StreamsDriver) -> None:
    driver.overrides["g"] = {"streams.num.standby.replicas": "1"}
    clients = [driver.streams_joined(topology=STATEFUL) for _ in range(3)]
    driver.settle_streams(*clients)
    gone = clients.pop(0)
    had = {task: client for client in clients for task in client.standby}
    gone_had = gone.active
    gone.leave()
    driver.settle_streams(*clients)
    assert any(task in had[task].active for task in gone_had), "who has the state continues"
    assert all(task in had[task].active or len(had[task].active) == 2 for task in gone_had), "unless it has its share"


# --- epochs


def test_a_member_whose_answer_was_lost(driver: StreamsDriver) -> None:
    first = driver.streams_joined()
    second = driver.streams_client()
    second.join()
    driver.advance(1.0)
    first.idle()
    second.beat()
    told, epoch = first.active, first.epoch
    first.beat()
    assert first.epoch == epoch + 1
    again = first.send(member_epoch=epoch, active_tasks=ids_of(told), standby_tasks=[], warmup_tasks=[])
    assert (again.code, again.response.member_epoch) == (ErrorCode.NONE, epoch + 1)
    assert first.send(member_epoch=epoch).code is ErrorCode.FENCED_MEMBER_EPOCH, "it must say which tasks it has"


def test_a_lost_answer_with_new_tasks_is_repeated(driver: StreamsDriver) -> None:
    client = driver.streams_client(endpoint=("a", 1))
    client.join()
    driver.advance(3.0)
    lost = driver.streams_heartbeat(
        member_id=client.member_id, member_epoch=client.epoch, active_tasks=[], standby_tasks=[], warmup_tasks=[]
    )
    assert tasks_in(lost.response.active_tasks) == ALL_OF_T
    client.beat()
    assert client.active == ALL_OF_T
    assert client.endpoint_epoch == lost.response.endpoint_information_epoch, "no task has changed since"
    assert client.beat().response.active_tasks is None, "the member has told that it has these tasks"


def test_a_lost_answer_that_takes_tasks_away_is_repeated(driver: StreamsDriver) -> None:
    first = driver.streams_joined()
    second = driver.streams_client()
    second.join()
    driver.advance(1.0)
    owned = ids_of(first.active)
    for _ in range(2):
        answer = driver.streams_heartbeat(
            member_id=first.member_id, member_epoch=first.epoch, active_tasks=owned, standby_tasks=[], warmup_tasks=[]
        )
        assert len(tasks_in(answer.response.active_tasks)) == 2


def test_epochs_that_are_not_the_members(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    assert driver.streams_heartbeat(member_id="m1", member_epoch=9).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.streams_heartbeat(member_id="m1", member_epoch=1).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.streams_heartbeat(member_id="m9", member_epoch=1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.streams_heartbeat(member_id="m9", member_epoch=-1).code is ErrorCode.UNKNOWN_MEMBER_ID
    unknown = driver.streams_heartbeat(group_id="h", member_id="m1", member_epoch=1)
    assert unknown.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert client.beat().code is ErrorCode.NONE


def test_tasks_that_the_topology_does_not_have(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    for wrong in (("1", 0), ("0", 4), ("0", -1)):
        answer = client.send(active_tasks=ids_of(frozenset([wrong])), standby_tasks=[], warmup_tasks=[])
        assert answer.code is ErrorCode.INVALID_REQUEST


# --- leaving and shutting down


def test_leaving(driver: StreamsDriver) -> None:
    first, second = driver.streams_joined(), driver.streams_joined()
    driver.settle_streams(first, second)
    answer = second.leave()
    assert (answer.response.member_epoch, answer.response.status) == (-1, [])
    driver.settle_streams(first)
    assert first.active == ALL_OF_T
    first.leave()
    group = driver.streams_group
    assert (group.state, group.epoch) == (StreamsGroupState.EMPTY, group.assignment_epoch)


def test_a_member_can_have_all_members_stop(driver: StreamsDriver) -> None:
    first, second = driver.streams_joined(), driver.streams_joined()
    second.beat(shutdown_application=True)
    assert StatusCode.SHUTDOWN_APPLICATION in reasons(second)
    first.beat()
    assert first.statuses[StatusCode.SHUTDOWN_APPLICATION] == (
        "Streams group member m2 encountered a fatal error and requested a shutdown for the entire application."
    )
    first.leave()
    second.leave()
    third = driver.streams_client()
    third.join()
    assert StatusCode.SHUTDOWN_APPLICATION not in reasons(third), "a group that was empty starts anew"


def test_a_member_can_ask_for_the_stop_as_it_leaves(driver: StreamsDriver) -> None:
    first, second = driver.streams_joined(), driver.streams_joined()
    second.leave(shutdown_application=True)
    first.beat()
    assert StatusCode.SHUTDOWN_APPLICATION in reasons(first)
    first.leave(shutdown_application=True)
    assert driver.streams_group.shutdown_requested_by is None


# --- endpoints


def test_endpoints_of_all_members(driver: StreamsDriver) -> None:
    first = driver.streams_joined(endpoint=("a", 1))
    second = driver.streams_joined(endpoint=("b", 2))
    third = driver.streams_joined()
    driver.settle_streams(first, second, third)
    assert first.endpoint_epoch == second.endpoint_epoch == third.endpoint_epoch
    for client in (first, second, third):
        shown = {
            (entry.user_endpoint.host, entry.user_endpoint.port): {
                ("0", number) for partition in entry.active_partitions for number in partition.partitions
            }
            for entry in client.endpoints
        }
        assert shown == {("a", 1): first.active, ("b", 2): second.active}
    assert first.beat().response.partitions_by_user_endpoint is None, "as before"


def test_partitions_of_endpoints_are_those_that_topics_have(driver: StreamsDriver) -> None:
    """The subtopology has more tasks than the smaller of its two topics has partitions (KAFKA-20885)."""
    driver.overrides["g"] = {"streams.num.standby.replicas": "1"}
    both = topology(subtopology("0", "t", "u", changelogs=[internal("c")]))
    first = driver.streams_joined(topology=both, endpoint=("a", 1))
    (entry,) = first.endpoints
    assert [(each.topic, each.partitions) for each in entry.active_partitions] == [("t", [0, 1, 2, 3]), ("u", [0, 1])]
    second = driver.streams_joined(topology=both)
    driver.settle_streams(first, second)
    (entry,) = second.endpoints
    shown = {(each.topic, number) for each in entry.standby_partitions for number in each.partitions}
    assert shown == {(name, number) for _, number in first.standby for name in ("t", "u")[: 1 + (number < 2)]}


def test_a_new_coordinator_has_another_endpoint_epoch(driver: StreamsDriver) -> None:
    client = driver.streams_joined(endpoint=("a", 1))
    before = client.endpoint_epoch
    driver.restart()
    client.endpoints = []
    client.beat()
    assert client.endpoint_epoch > before + 1_000, "far from any that a member has seen"
    assert len(client.endpoints) == 1


# --- the log


def test_the_log_says_all(driver: StreamsDriver) -> None:
    driver.overrides["g"] = {"streams.num.standby.replicas": "1"}
    first = driver.streams_joined(topology=WORD_COUNT, tags={"zone": "a"}, endpoint=("host", 1))
    assert state_of(driver.replayed()) == state_of(driver.machine)
    second = driver.streams_joined(topology=WORD_COUNT)
    first.idle()
    assert state_of(driver.replayed()) == state_of(driver.machine), "while tasks are given up"
    driver.settle_streams(first, second)
    assert state_of(driver.replayed()) == state_of(driver.machine)
    second.leave()
    assert state_of(driver.replayed()) == state_of(driver.machine)
    first.leave()
    driver.run(lambda answer: driver.machine.delete("g"))
    assert driver.machine.groups == {} and state_of(driver.replayed()) == {}
    assert driver.held.bytes == 0


def test_a_group_goes_on_at_another_coordinator(driver: StreamsDriver) -> None:
    first, second = driver.streams_joined(), driver.streams_joined()
    first.idle()
    had = first.active | second.active
    driver.restart()
    driver.settle_streams(first, second)
    assert each_task(first, second) == sorted(ALL_OF_T)
    assert had <= first.active | second.active
    driver.advance(46.0)
    assert driver.streams_group.state is StreamsGroupState.EMPTY, "sessions go on, too"


def test_a_step_that_cannot_be_logged_changes_nothing(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    driver.set_topics(topic("t", 6))
    driver.advance(1.0)
    driver.fail_appends = True
    assert client.beat().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = driver.streams_group
    assert group.configured is not None and group.configured.subtopologies["0"].tasks == 4
    driver.fail_appends = False
    driver.fail()
    client.beat()
    assert len(client.active) == 6


def test_a_delay_whose_assignment_could_not_be_logged_is_over(driver: StreamsDriver) -> None:
    client = driver.streams_client()
    client.join()
    driver.fail_appends = True
    driver.advance(3.0)
    driver.fail_appends = False
    driver.fail()
    client.beat()
    assert client.active == ALL_OF_T


# --- limits


def test_a_full_group_lets_its_own_members_in() -> None:
    driver = StreamsDriver(GroupConfig(streams_max_size=1))
    client = driver.streams_joined()
    assert driver.streams_client().join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.join().code is ErrorCode.NONE


def test_limits_on_bytes() -> None:
    driver = StreamsDriver(GroupConfig(member_metadata_max_bytes=1_000))
    assert driver.streams_client(tags={"tag": "x" * 1_000}).join().code is ErrorCode.MESSAGE_TOO_LARGE
    large = topology(subtopology("0", *(f"topic-{number}" for number in range(20))))
    assert driver.streams_client(topology=large).join().code is ErrorCode.MESSAGE_TOO_LARGE
    assert driver.machine.groups == {}
    driver = StreamsDriver(GroupConfig(metadata_max_bytes=1_000))
    codes = [driver.streams_client(tags={"tag": "x" * 300}).join().code for _ in range(3)]
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver = StreamsDriver(GroupConfig(coordinator_metadata_max_bytes=1_000))
    codes = [driver.streams_client(group_id=f"g{number}").join().code for number in range(4)]
    assert codes[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.held.bytes == sum(group.held_bytes for group in driver.machine.groups.values())


def test_large_groups_are_assigned_by_a_job(driver: StreamsDriver) -> None:
    driver.set_topics(topic("t", 1_200))
    first, second = driver.streams_client(), driver.streams_client()
    first.join()
    second.join()
    driver.advance(3.0)
    first.beat()
    assert first.active == frozenset() and StatusCode.ASSIGNMENT_DELAYED in reasons(first)
    driver.run_jobs()
    first.beat()
    second.beat()
    assert (len(first.active), len(second.active)) == (600, 600)
    third = driver.streams_client()
    third.join()
    driver.advance(1.0)
    third.beat()
    driver.run_jobs_after(second.leave)
    assert set(driver.streams_group.targets) == {"m1", "m3"}, "who has left has no target"
    driver.settle_streams(first, third)
    assert len(each_task(first, third)) == 1_200
    assert state_of(driver.replayed()) == state_of(driver.machine)


def test_a_job_of_a_deleted_group_does_not_assign_the_new_group(driver: StreamsDriver) -> None:
    driver.set_topics(topic("t", 1_200))
    client = driver.streams_joined()
    driver.run_jobs()
    others = [driver.streams_joined() for _ in range(3)]

    def create_again() -> None:
        for member in (client, *others):
            member.leave()
        driver.run(lambda answer: driver.machine.delete("g"))
        client.join()

    driver.advance(1.0)
    client.beat()
    driver.run_jobs_after(create_again)
    assert driver.streams_group.assignment_epoch < driver.streams_group.epoch
    driver.settle_streams(client)
    assert len(client.active) == 1_200


# --- requests


def test_requests_that_say_nonsense() -> None:
    joins: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "endpoint_information_epoch": 0,
        "rebalance_timeout_ms": 1,
        "topology": SIMPLE,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    stays = joins | {"member_epoch": 1, "rebalance_timeout_ms": -1, "topology": None}
    tasks = ids_of(ALL_OF_T)
    offsets = [TaskOffset(subtopology_id="0", partition=0, offset=1)]
    check_request(StreamsGroupHeartbeatRequest(**joins))
    check_request(StreamsGroupHeartbeatRequest(**stays))
    for fields, said in (
        (joins, {"member_id": " "}),
        (joins, {"group_id": ""}),
        (joins, {"rack_id": ""}),
        (joins, {"rebalance_timeout_ms": -1}),
        (joins, {"active_tasks": tasks}),
        (joins, {"standby_tasks": tasks}),
        (joins, {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}),
        (joins, {"topology": None}),
        (joins, {"instance_id": "i"}),
        (joins, {"task_offsets": offsets}),
        (joins, {"task_end_offsets": offsets}),
        (stays, {"topology": SIMPLE}),
        (stays, {"warmup_tasks": tasks}),
        (stays, {"active_tasks": None}),
        (stays, {"member_epoch": -2}),
        (stays, {"member_epoch": -3}),
    ):
        with pytest.raises(KafkaError) as refused:
            check_request(StreamsGroupHeartbeatRequest(**fields | said))
        assert refused.value.code is ErrorCode.INVALID_REQUEST, said


# --- other protocols


def test_a_group_id_belongs_to_one_protocol(driver: StreamsDriver) -> None:
    driver.client(group_id="consumers").join()
    assert driver.streams_client(group_id="consumers").join().code is ErrorCode.GROUP_ID_NOT_FOUND
    client = driver.streams_joined()
    assert driver.client().join().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    client.leave()
    assert driver.client().join().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.join().code is ErrorCode.MEMBER_ID_REQUIRED, "a classic group takes the place of an empty one"
    assert "g" not in driver.machine.groups or not isinstance(driver.machine.groups["g"], StreamsGroup)


def test_an_empty_classic_group_is_replaced(driver: StreamsDriver) -> None:
    (joined,) = driver.stable()
    assert driver.streams_client().join().code is ErrorCode.GROUP_ID_NOT_FOUND
    driver.leave(joined.member_id)
    assert driver.streams_joined().active == ALL_OF_T
    assert state_of(driver.replayed()) == state_of(driver.machine)


def test_the_timer_of_a_delay_means_nothing_to_a_classic_group(driver: StreamsDriver) -> None:
    client = driver.streams_client()
    client.join()
    client.leave()
    driver.stable()
    driver.advance(3.0)
    assert driver.group.state is GroupState.STABLE


def test_a_member_may_change_its_endpoint(driver: StreamsDriver) -> None:
    client = driver.streams_joined(endpoint=("a", 1))
    client.beat(user_endpoint=Endpoint(host="b", port=2))
    driver.settle_streams(client)
    assert driver.streams_group.members["m1"].endpoint == ("b", 2)
