"""ConsumerGroupHeartbeat: which members, topics and clusters are permitted."""

from __future__ import annotations

from typing import Any

from tests.support.consumer_groups import ConsumerDriver
from tests.support.handlers import answered, asked, group_coordinator, image_with

from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import consumer_group_heartbeat
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


async def beat(driver: ConsumerDriver, *, refused: Any = (), is_clustered: bool = False, **said: Any) -> Any:
    fields = {
        "group_id": "g",
        "member_id": "m1",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    groups = group_coordinator(driver.machine)
    groups.config = driver.config
    context = asked(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        refused=refused,
        groups=groups,
        is_clustered=is_clustered,
        image=image_with(),
    )
    answer = await answered(consumer_group_heartbeat.handle, ConsumerGroupHeartbeatRequest(**fields | said), context)
    await context.services.tasks.close()
    return answer


async def test_a_member_joins_and_gets_its_partitions() -> None:
    driver = ConsumerDriver()
    answer = await beat(driver)
    assert (answer.error_code, answer.member_id) == (ErrorCode.NONE, "m1")
    assert driver.partitions_in(answer.assignment.topic_partitions) == {("t", number) for number in range(4)}


async def test_consumer_groups_are_disabled_in_a_cluster_with_an_older_broker() -> None:
    """The brokers in the image that `image_with` returns announce no feature levels."""
    assert feature_levels.level_in_force(image_with()) < feature_levels.CONSUMER_GROUPS
    driver = ConsumerDriver()
    assert (await beat(driver, is_clustered=True)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert driver.machine.ids() == []


async def test_a_heartbeat_needs_rights_on_the_group_and_on_each_named_topic() -> None:
    driver = ConsumerDriver()
    denied = await beat(driver, refused={(rules.CONSUMER_HEARTBEAT, "g")})
    assert denied.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    denied = await beat(driver, subscribed_topic_names=["t", "u"], refused={(rules.CONSUMER_TOPICS, "u")})
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert driver.machine.ids() == []


async def test_malformed_heartbeats_are_refused() -> None:
    driver = ConsumerDriver()
    assert (await beat(driver, server_assignor="unknown")).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (await beat(driver, member_id="")).error_code == ErrorCode.INVALID_REQUEST
    wrong = await beat(driver, subscribed_topic_names=None, subscribed_topic_regex="(")
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.machine.ids() == []
