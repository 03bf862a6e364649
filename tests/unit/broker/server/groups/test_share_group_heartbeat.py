"""ShareGroupHeartbeat: which clients may join, with which topics, in which clusters; and the internal topic that must
be created first.
"""

from __future__ import annotations

from typing import Any

from tests.support.handlers import answered, asked, group_coordinator, image_with
from tests.support.share_groups import ShareDriver

from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import share_group_heartbeat
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

READY = image_with(SHARE_GROUP_STATE)


async def beat(
    driver: ShareDriver,
    *,
    refused: Any = (),
    is_clustered: bool = False,
    image: Any = READY,
    create: Any = None,
    **said: Any,
) -> Any:
    fields = {"group_id": "g", "member_id": "m1", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    context = asked(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        refused=refused,
        groups=group_coordinator(driver.machine),
        is_clustered=is_clustered,
        image=image,
        create_topic=create,
    )
    answer = await answered(share_group_heartbeat.handle, ShareGroupHeartbeatRequest(**fields | said), context)
    await context.services.tasks.close()
    return answer


async def test_a_member_joins_stays_and_leaves() -> None:
    driver = ShareDriver()
    answer = await beat(driver)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m1", 2)
    assert (await beat(driver, member_epoch=2, subscribed_topic_names=None)).error_code == ErrorCode.NONE
    assert (await beat(driver, member_epoch=-1, subscribed_topic_names=None)).member_epoch == -1
    assert (await beat(driver, member_id="")).error_code == ErrorCode.INVALID_REQUEST


async def test_consumer_groups_are_disabled_in_a_cluster_with_an_older_broker() -> None:
    """The brokers in the image that `image_with` returns announce no feature levels."""
    driver = ShareDriver()
    assert (await beat(driver, is_clustered=True)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert driver.machine.ids() == []


async def test_a_heartbeat_needs_rights_on_the_group_and_on_each_named_topic() -> None:
    driver = ShareDriver()
    denied = await beat(driver, refused={(rules.SHARE_HEARTBEAT, "g")})
    assert denied.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    denied = await beat(driver, subscribed_topic_names=["t", "u"], refused={(rules.SHARE_TOPICS, "u")})
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert driver.machine.ids() == []
    assert (await beat(driver, refused={(rules.SHARE_TOPICS, "u")})).error_code == ErrorCode.NONE


async def test_the_first_heartbeat_makes_the_topic_of_states() -> None:
    created: list[str] = []

    async def create(name: str) -> None:
        created.append(name)

    assert (await beat(ShareDriver(), image=image_with(), create=create)).error_code == ErrorCode.NONE
    assert created == [SHARE_GROUP_STATE]

    async def fail(name: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")

    answer = await beat(ShareDriver(), image=image_with(), create=fail)
    assert (answer.error_code, answer.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few brokers")
