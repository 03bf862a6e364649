"""Compares streams groups (KIP-1071): heartbeats of members, topologies and their topics, tasks, and descriptions."""

from __future__ import annotations

from typing import Any, Final

from tests.interop.differential.calls import GROUP, coordinator
from tests.interop.differential.members import (
    all_offsets,
    await_setting,
    commit_offset,
    delete_groups,
    delete_offsets,
    describe_groups,
    join,
    only_member,
    set_group,
    settle_groups,
)
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.shares import try_settings
from tests.interop.differential.side import Side
from tests.interop.differential.streams_members import (
    StreamsMember,
    copartitioned,
    create_known,
    describe_streams_groups,
    internal,
    size,
    subtopology,
    topology,
)

from oncelog_protocol.api import ApiKey

TASKS: Final = "active_tasks", "standby_tasks", "warmup_tasks"
OFFSET: Final = {"subtopology_id": "0", "partition": 0, "offset": 5}


def simple(side: Side, *topics: str) -> Plain:
    """Return a topology of one subtopology that reads these topics."""
    return topology(subtopology("0", *(side.own(name) for name in topics)))


def member_of(side: Side, name: str = "m", *topics: str, group: str = "g") -> StreamsMember:
    return StreamsMember(side, group, name, simple(side, *(topics or ("a",))))


@scenario
def bad_heartbeats(side: Side) -> None:
    """Send heartbeats that no group accepts."""
    create_known(side, "a", 2)
    coordinator(side, "g", GROUP)
    member = member_of(side)
    member.beat("unknown group, epoch 5", member_epoch=5)
    member.leave("unknown group, leave")
    cases: dict[str, Plain] = {
        "empty member id": {"member_id": ""},
        "blank member id": {"member_id": " "},
        "empty group id": {"group_id": ""},
        "empty rack": {"rack_id": ""},
        "no rebalance timeout": {"rebalance_timeout_ms": -1},
        "no topology": {"topology": None},
        "no process id": {"process_id": None},
        "epoch -3": {"member_epoch": -3},
        "epoch -2": {"member_epoch": -2},
        "instance id": {"instance_id": "i"},
        "epoch -2 with instance id": {"member_epoch": -2, "instance_id": "i"},
        "null tasks": dict.fromkeys(TASKS),
        "only active tasks": {"standby_tasks": None, "warmup_tasks": None},
        "owned active task": {"active_tasks": [{"subtopology_id": "0", "partitions": [0]}]},
        "owned standby task": {"standby_tasks": [{"subtopology_id": "0", "partitions": [0]}]},
        "task offsets": {"task_offsets": [OFFSET]},
        "end offsets": {"task_end_offsets": [OFFSET]},
        "null tags": {"client_tags": None},
    }
    for number, (label, fields) in enumerate(cases.items()):
        member_of(side, group=f"g{number}").join(label, **fields)


@scenario
def bad_topologies(side: Side) -> None:
    """Join with topologies that are not valid."""
    create_known(side, "a", 2)
    a = side.own("a")
    log = side.own("log")
    cases: dict[str, list[Plain]] = {
        "no subtopologies": [],
        "no topics": [subtopology("0")],
        "empty topic": [subtopology("0", "")],
        "bad topic": [subtopology("0", "bad name")],
        "internal source": [subtopology("0", "__consumer_offsets")],
        "topic twice": [subtopology("0", a, a)],
        "subtopology twice": [subtopology("0", a), subtopology("0", a)],
        "one topic in two": [subtopology("0", a), subtopology("1", a)],
        "empty name": [subtopology("", a)],
        "regex": [subtopology("0", source_topic_regex=["a.*"])],
        "changelog of 3": [subtopology("0", a, state_changelog_topics=[internal(log, 3)])],
        "bad changelog": [subtopology("0", a, state_changelog_topics=[internal("bad name")])],
        "changelog of -1 replicas": [subtopology("0", a, state_changelog_topics=[internal(log, replicas=-1)])],
        "loop": [
            subtopology(
                "0",
                repartition_sink_topics=[side.own("loop")],
                repartition_source_topics=[internal(side.own("loop"))],
            )
        ],
        "nobody writes": [subtopology("0", repartition_source_topics=[internal(side.own("nobody"))])],
        "bad copartition": [subtopology("0", a, copartition_groups=[copartitioned([7])])],
    }
    for number, (label, subtopologies) in enumerate(cases.items()):
        StreamsMember(side, f"g{number}", "m", topology(*subtopologies)).join(label)


@scenario
def one_member(side: Side) -> None:
    """Let a member join, stay, use wrong epochs, rejoin and leave."""
    create_known(side, "a", 2)
    coordinator(side, "g", GROUP)
    member = member_of(side)
    member.join("join")
    member.own("owns its tasks")
    describe_streams_groups(side, "g", label="with tasks", include_authorized_operations=True)
    member.beat("nothing new")
    member.beat("next epoch", member_epoch=member.epoch + 1)
    member.beat("previous epoch", member_epoch=member.epoch - 1)
    member.own("previous epoch with the tasks", member_epoch=member.epoch - 1)
    member_of(side, "stranger").beat("stranger", member_epoch=2)
    member_of(side, "stranger").leave("stranger leaves")
    member.beat(
        "unknown task", active_tasks=[{"subtopology_id": "9", "partitions": [0]}], standby_tasks=[], warmup_tasks=[]
    )
    member.beat("only active tasks", active_tasks=[])
    member.beat("topology again", topology=member.topology)
    member.beat("another rack", rack_id="r")
    member.own("after another rack")
    member.beat("another process", process_id="p")
    member.beat("tags", client_tags=[{"key": "k", "value": "v"}])
    member.own("after the tags")
    member.join("rejoin")
    describe_streams_groups(side, "g", label="rejoined")
    member.leave()
    member.beat("after leaving", member_epoch=3)
    member.leave("leave again")
    describe_streams_groups(side, "g", label="empty")
    member.join("back")


@scenario
def topologies_change(side: Side) -> None:
    """Join with an older, a newer, and another topology."""
    create_known(side, "a", 2)
    create_known(side, "b")
    coordinator(side, "g", GROUP)
    member = member_of(side)
    member.topology["epoch"] = 3
    member.settle(2)
    for label, epoch, topic in (
        ("same epoch, another topic", 3, "b"),
        ("older", 2, "a"),
        ("older, another topic", 2, "b"),
        ("newer", 4, "a"),
        ("newer, another topic", 4, "b"),
        ("negative", -1, "a"),
    ):
        other = member_of(side, f"m {label}", topic)
        other.topology["epoch"] = epoch
        answer = other.join(label)
        describe_streams_groups(side, "g", label=label)
        if not answer.error_code:
            other.leave(f"leave, {label}")
            member.settle(2)


@scenario
def source_topics(side: Side) -> None:
    """Read topics that are missing, are created later, get more partitions, and are deleted."""
    coordinator(side, "g", GROUP)
    member = member_of(side)
    member.join("no topic")
    member.beat("still none")
    describe_streams_groups(side, "g", label="no topic")
    create_known(side, "a", 2)
    member.settle(2)
    describe_streams_groups(side, "g", label="topic created")
    more = {"topics": [{"name": side.own("a"), "count": 3, "assignments": None}], "timeout_ms": 5000}
    side.get(ApiKey.CREATE_PARTITIONS, 3, more)
    member.settle(3)
    side.get(ApiKey.DELETE_TOPICS, 5, {"topic_names": [side.own("a")], "timeout_ms": 5000})
    member.settle(0)
    member.own("deleted")
    describe_streams_groups(side, "g", label="deleted")


@scenario
def internal_topics(side: Side) -> None:
    """Let the broker create changelog and repartition topics, and find them with another number of partitions."""
    create_known(side, "a", 3)
    create_known(side, "other", 2)
    coordinator(side, "g", GROUP)
    log, words = side.own("log"), side.own("words")
    asked = topology(
        subtopology("0", side.own("a"), repartition_sink_topics=[words]),
        subtopology(
            "1",
            repartition_source_topics=[internal(words, cleanup_policy="delete")],
            state_changelog_topics=[internal(log, cleanup_policy="compact")],
        ),
    )
    member = StreamsMember(side, "g", "m", asked)
    member.join("join")
    member.settle(6)
    describe_streams_groups(side, "g", label="created")
    note_topics(side, log, words)
    again = StreamsMember(side, "h", "m", asked)
    again.join("all are there")
    for label, subtopologies in (
        ("changelog of 2", [subtopology("0", side.own("a"), state_changelog_topics=[internal(side.own("other"))])]),
        (
            "repartition topic of 2",
            [
                subtopology("0", side.own("a"), repartition_sink_topics=[side.own("other")]),
                subtopology("1", repartition_source_topics=[internal(side.own("other"))]),
            ],
        ),
    ):
        member = StreamsMember(side, label, "m", topology(*subtopologies))
        member.join(label)
        describe_streams_groups(side, label, label=label)
    for label, one in (
        ("bad key", internal(side.own("bad-key"), no_such="1")),
        ("bad value", internal(side.own("bad-value"), retention_ms="x")),
        ("many replicas", internal(side.own("many"), replicas=3)),
    ):
        member = StreamsMember(
            side, label, "m", topology(subtopology("0", side.own("a"), state_changelog_topics=[one]))
        )
        member.join(label)
        member.await_detail()
        member.beat(f"later, {label}")


def note_topics(side: Side, *names: str) -> None:
    """Record the numbers of partitions, and the cleanup policies of topics."""
    asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    answer = side.get(ApiKey.METADATA, 12, asked)
    for one in answer.topics:
        resource = {"resource_type": 2, "resource_name": one.name, "configuration_keys": ["cleanup.policy"]}
        configs = side.get(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0].configs
        found = [one.error_code, len(one.partitions), *(config.value for config in configs)]
        side.note(f"topic {side.plain.text(one.name)}", found)


@scenario
def copartitions(side: Side) -> None:
    """Join topics that must have equally many partitions."""
    create_known(side, "a", 2)
    create_known(side, "b", 3)
    create_known(side, "c", 2)
    a, b, c, words = (side.own(name) for name in ("a", "b", "c", "words"))
    fixed = internal(side.own("fixed"), 5)
    cases: dict[str, list[Plain]] = {
        "different": [subtopology("0", a, b, copartition_groups=[copartitioned([0, 1])])],
        "equal": [subtopology("0", a, c, copartition_groups=[copartitioned([0, 1])])],
        "follows": [
            subtopology("0", b, repartition_sink_topics=[words]),
            subtopology(
                "1",
                a,
                repartition_source_topics=[internal(words)],
                copartition_groups=[copartitioned([0], [0])],
            ),
        ],
        "fixed": [
            subtopology("0", b, repartition_sink_topics=[fixed["name"]]),
            subtopology("1", a, repartition_source_topics=[fixed], copartition_groups=[copartitioned([0], [0])]),
        ],
    }
    for label, subtopologies in cases.items():
        member = StreamsMember(side, label, "m", topology(*subtopologies))
        member.join(label)
        describe_streams_groups(side, label, label=label)


@scenario
def two_members(side: Side) -> None:
    """Move tasks between two members of different processes, and of one process."""
    create_known(side, "a", 4)
    coordinator(side, "g", GROUP)
    first = member_of(side, "first").settle(4)
    second = member_of(side, "second")
    second.join("second joins")
    describe_streams_groups(side, "g", label="second joined")
    answer = first.beat("first, without its tasks")
    side.note("tasks left", size(first.active))
    second.own("second waits")
    first.own("first has released")
    answer = second.own("second gets them")
    side.note("tasks", [answer.error_code, size(first.active), size(second.active)])
    first.own("first, stable")
    second.own("second, stable")
    describe_state(side, "stable")
    second.leave("second leaves")
    describe_state(side, "second left")
    first.settle(4)
    describe_streams_groups(side, "g", label="first has all")


def describe_state(side: Side, label: str) -> None:
    """Record the state and the epochs of the group."""
    settle_groups(side)
    answer = side.get(ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [side.own("g")]})
    group = answer.groups[0]
    epochs = sorted(one.member_epoch for one in group.members)
    side.note(label, [group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, epochs])


@scenario
def standbys(side: Side) -> None:
    """Assign standby tasks to members of two processes."""
    create_known(side, "a", 2)
    coordinator(side, "g", GROUP)
    set_group(side, "g", streams_num_standby_replicas=1)
    await_setting(side, "g", "streams.num.standby.replicas", "1")
    stateful = topology(subtopology("0", side.own("a"), state_changelog_topics=[internal(side.own("log"))]))
    first = StreamsMember(side, "g", "first", stateful).settle(2)
    describe_streams_groups(side, "g", label="one process")
    second = StreamsMember(side, "g", "second", stateful)
    second.settle_with(first, 1, standby=1)
    side.note("tasks", [size(one) for one in (first.active, first.standby, second.active, second.standby)])
    describe_state(side, "two processes")
    set_group(side, "g", streams_num_standby_replicas=0)
    await_setting(side, "g", "streams.num.standby.replicas", "0")
    first.settle_with(second, 1)
    side.note("no standbys", [size(one) for one in (first.active, first.standby, second.active, second.standby)])


@scenario
def initial_delay(side: Side) -> None:
    """Let a new group wait for further members before the first assignment."""
    create_known(side, "a", 2)
    coordinator(side, "g", GROUP)
    set_group(side, "g", streams_initial_rebalance_delay_ms=1500)
    await_setting(side, "g", "streams.initial.rebalance.delay.ms", "1500")
    first = member_of(side, "first")
    first.join("first joins")
    second = member_of(side, "second")
    second.join("second joins")
    describe_streams_groups(side, "g", label="delayed")
    first.settle_with(second, 1)
    side.note("tasks", [size(first.active), size(second.active)])
    describe_state(side, "assigned")


KEYS: Final = (
    ("streams.session.timeout.ms", ("45000", "44999", "60001")),
    ("streams.heartbeat.interval.ms", ("5000", "4999", "15001")),
    ("streams.num.standby.replicas", ("0", "2", "3", "-1")),
    ("streams.initial.rebalance.delay.ms", ("0", "5000", "-1")),
    ("streams.assignment.interval.ms", ("0", "15000", "15001", "-1")),
    ("streams.no.such.key", ("1",)),
)


@scenario
def settings(side: Side) -> None:
    """Set the keys of streams groups to values that are allowed, and to others."""
    coordinator(side, "g", GROUP)
    try_settings(side, KEYS)


@scenario
def endpoints(side: Side) -> None:
    """Exchange the addresses at which members serve queries."""
    create_known(side, "a", 2)
    coordinator(side, "g", GROUP)
    first = member_of(side, "first")
    first.join("first", user_endpoint={"host": "one", "port": 1})
    first.own("first owns")
    first.endpoint_epoch = first.own("first has no endpoints").endpoint_information_epoch
    first.own("first has all endpoints")
    second = member_of(side, "second")
    second.settle_with(first, 1, user_endpoint={"host": "two", "port": 65535})
    for member in (first, second):
        member.endpoint_epoch = -1
        note_endpoints(side, f"endpoints of {member.id}", member)
    first.leave("leave")
    second.settle(2)
    note_endpoints(side, "endpoints of the last", second)


def note_endpoints(side: Side, label: str, member: StreamsMember) -> None:
    """Record the known endpoints, and the partitions of all of them."""
    answer = member.quiet()
    found = answer.partitions_by_user_endpoint or []
    partitions = sorted(
        (side.plain.text(topic.topic), number)
        for one in found
        for topic in one.active_partitions
        for number in topic.partitions
    )
    hosts = sorted((one.user_endpoint.host, one.user_endpoint.port) for one in found)
    side.note(label, [hosts, partitions])


@scenario
def shutdown(side: Side) -> None:
    """Stop an application: all members learn of it."""
    create_known(side, "a", 2)
    coordinator(side, "g", GROUP)
    first = member_of(side, "first").settle(2)
    second = member_of(side, "second")
    second.join("second joins")
    second.beat("shut down", shutdown_application=True)
    first.beat("first learns of it")
    second.leave("second leaves")
    first.own("first, after it")
    first.leave("first leaves")
    member_of(side, "third").join("third joins")


@scenario
def kinds_of_groups(side: Side) -> None:
    """Send requests of other kinds of groups to a streams group, and requests of streams groups to other groups."""
    create_known(side, "a")
    coordinator(side, "g", GROUP)
    commit_offset(side, "offsets")
    only_member(side, "classic")
    for group in ("offsets", "classic"):
        member = member_of(side, group=group)
        describe_streams_groups(side, group, label=f"before, {group}")
        member.beat(f"stay in {group}", member_epoch=1)
        member.leave(f"leave {group}")
        member.join(f"join {group}")
        describe_streams_groups(side, group, label=group)
    all_offsets(side, "offsets", "after the change")
    member = member_of(side).settle(1)
    for label in ("with a member", "empty"):
        beat = {"group_id": side.own("g"), "member_id": "c" * 22}
        topics = {"subscribed_topic_names": [side.own("a")]}
        side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {"member_epoch": 0, **topics, **beat}, f"share member, {label}")
        side.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [side.own("g")]}, label)
        side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [side.own("g")]}, label)
        for version in (5, 6):
            describe_groups(side, "g", label=label, version=version)
        commit_offset(side, "g", f"without a member, {label}", version=9)
        commit_offset(side, "g", f"as a member, {label}", generation=member.epoch, member="m", version=9)
        commit_offset(side, "g", f"newer epoch, {label}", generation=member.epoch + 1, member="m", version=9)
        commit_offset(side, "g", f"older version, {label}", generation=member.epoch, member="m", version=8)
        commit_offset(side, "g", f"stranger, {label}", generation=member.epoch, member="x", version=9)
        fetch_offsets(side, label, member)
        delete_offsets(side, "g", label)
        note_groups(side, label)
        if label == "with a member":
            join(side, "g", label="classic member")
            delete_groups(side, "g", label="with a member")
            member.leave("leave")
    describe_streams_groups(side, "g", "none", label="empty, unknown")
    describe_streams_groups(side, "", label="empty name")
    describe_streams_groups(side, label="none")
    delete_groups(side, "g", label="empty")
    describe_streams_groups(side, "g", label="deleted")


def fetch_offsets(side: Side, label: str, member: StreamsMember) -> None:
    """Send OffsetFetch as the member, with its epoch and with other epochs."""
    topics = [{"name": side.own("a"), "partition_indexes": [0]}]
    for what, epoch, name in (("right", member.epoch, "m"), ("older", member.epoch - 1, "m"), ("stranger", 2, "x")):
        group = {"group_id": side.own("g"), "topics": topics, "member_id": name, "member_epoch": epoch}
        side.ask(ApiKey.OFFSET_FETCH, 9, {"groups": [group]}, f"{what}, {label}")


def note_groups(side: Side, label: str) -> None:
    """Record the streams groups of this scenario, by each filter."""
    settle_groups(side)
    for kind, state in (("streams", ""), ("Streams", ""), ("streams", "Empty"), ("streams", "stable")):
        filters = {"types_filter": [kind], "states_filter": [state] if state else []}
        answer = side.get(ApiKey.LIST_GROUPS, 5, filters)
        own = [one for one in answer.groups if one.group_id == side.own("g")]
        found: list[Any] = [[one.protocol_type, one.group_state, one.group_type] for one in own]
        side.note(f"ListGroups {kind} {state} {label}", [answer.error_code, found])
