"""StreamsGroupDescribe: groups with topology and members, topics that are hidden from the client, and groups of other
protocols.
"""

from __future__ import annotations

from typing import Any

from tests.support.handlers import answered, asked, group_coordinator, image_with
from tests.support.streams_groups import WORD_COUNT, StreamsDriver, tasks_in

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import streams_group_describe
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.streams_group_describe import StreamsGroupDescribeRequest


async def describe(driver: StreamsDriver, *names: str, refused: Any = (), **services: Any) -> list[Any]:
    groups = group_coordinator(driver.machine)
    context = asked(ApiKey.STREAMS_GROUP_DESCRIBE, 0, refused=refused, **{"groups": groups, **services})
    request = StreamsGroupDescribeRequest(group_ids=list(names), include_authorized_operations=not refused)
    return (await answered(streams_group_describe.handle, request, context)).groups  # type: ignore[no-any-return]


async def test_a_group_its_topology_and_its_members() -> None:
    driver = StreamsDriver()
    client = driver.streams_joined(topology=WORD_COUNT, endpoint=("host", 1), tags={"zone": "a"}, process_id="p")
    (group,) = await describe(driver, "g", "g")
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.group_epoch, group.assignment_epoch) == (client.epoch, client.epoch)
    first, second = group.topology.subtopologies
    assert (first.subtopology_id, first.source_topics, first.repartition_sink_topics) == (
        "0",
        ["t"],
        ["words-repartition"],
    )
    (repartition,), (changelog,) = second.repartition_source_topics, second.state_changelog_topics
    assert (repartition.name, repartition.partitions, repartition.replication_factor) == ("words-repartition", 4, 0)
    assert [(config.key, config.value) for config in changelog.topic_configs] == [("cleanup.policy", "compact")]
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id, member.process_id, member.topology_epoch) == (
        client.member_id,
        client.epoch,
        "c",
        "p",
        0,
    )
    assert (member.user_endpoint.host, member.user_endpoint.port) == ("host", 1)
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "a")]
    assert tasks_in(member.assignment.active_tasks) == client.active
    assert member.assignment == member.target_assignment
    assert not member.is_classic and group.authorized_operations > 0


async def test_a_topology_whose_topics_are_missing_is_shown_as_it_was_asked_for() -> None:
    driver = StreamsDriver()
    driver.streams_client(topology=WORD_COUNT).join()
    (group,) = await describe(driver, "g")
    assert group.group_state == "NotReady"
    assert [each.partitions for each in group.topology.subtopologies[1].repartition_source_topics] == [0]
    driver.restart()
    (group,) = await describe(driver, "g")
    assert [each.subtopology_id for each in group.topology.subtopologies] == ["0", "1"]


async def test_an_empty_group() -> None:
    driver = StreamsDriver()
    driver.streams_joined().leave()
    (group,) = await describe(driver, "g")
    assert (group.group_state, group.members, group.topology.epoch) == ("Empty", [], 0)


async def test_groups_that_are_not_there_or_not_streams_groups() -> None:
    driver = StreamsDriver()
    driver.client(group_id="consumers").join()
    groups = await describe(driver, "unknown", "consumers", "")
    assert [group.error_code for group in groups] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    ]


async def test_rights() -> None:
    driver = StreamsDriver()
    driver.streams_joined(topology=WORD_COUNT)
    (group,) = await describe(driver, "g", refused={(rules.DESCRIBE_STREAMS_GROUP, "g")})
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    for name in ("t", "words-repartition", "counts-changelog"):
        (group,) = await describe(driver, "g", refused={(rules.TOPIC_OF_STREAMS_GROUP, name)})
        assert (group.error_code, group.members, group.topology) == (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            [],
            None,
        )


async def test_streams_groups_are_disabled_in_a_cluster_with_an_older_broker() -> None:
    (group,) = await describe(StreamsDriver(), "g", is_clustered=True, image=image_with())
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
