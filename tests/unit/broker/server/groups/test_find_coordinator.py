"""FindCoordinator returns the coordinating broker and its address, in the old form and in the new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import find_coordinator
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = CoordinatorType.GROUP, CoordinatorType.TRANSACTION, CoordinatorType.SHARE
BOTH = image_with(CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, leader=2)


async def find(
    version: int, *keys: str, kind: int = GROUP, image: ClusterImage = BOTH, refused: Any = (), create: Any = None
) -> Any:
    request = FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=list(keys))
    context = asked(ApiKey.FIND_COORDINATOR, version, refused=refused, image=image, create_topic=create)
    answer = await answered(find_coordinator.handle, request, context)
    await context.services.tasks.close()
    return answer


async def test_the_old_form_has_one_coordinator() -> None:
    answer = await find(3, "g")
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (ErrorCode.NONE, 2, "host-2", 9092)
    assert answer.coordinators == []


async def test_the_new_form_has_one_for_each_key_once() -> None:
    answer = await find(4, "a", "b", "a", kind=TRANSACTION)
    assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [("a", 2, 0), ("b", 2, 0)]


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        (5, SHARE, ErrorCode.INVALID_REQUEST),
        (6, SHARE, ErrorCode.INVALID_REQUEST),
        (6, 7, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_unknown_coordinator_type_is_refused(version: int, kind: int, code: ErrorCode) -> None:
    (answer,) = (await find(version, "key", kind=kind)).coordinators
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (code, -1, "", -1)


async def test_share_partitions_are_for_brokers_and_those_without_the_right_learn_nothing() -> None:
    key = ShareKey("g", b"t" * 16, 1).text
    answer = await find(6, key, "nonsense", kind=SHARE)
    assert [(each.node_id, each.error_code) for each in answer.coordinators] == [
        (2, ErrorCode.NONE),
        (-1, ErrorCode.INVALID_REQUEST),
    ]
    answer = await find(6, key, "nonsense", kind=SHARE, refused={rules.FIND_SHARE_GROUP})
    assert {each.error_code for each in answer.coordinators} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


async def test_rights_are_asked_for_each_key() -> None:
    answer = await find(4, "mine", "yours", refused={(rules.FIND_GROUP, "yours")})
    assert [(each.key, each.error_code) for each in answer.coordinators] == [
        ("mine", ErrorCode.NONE),
        ("yours", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]


async def test_clients_retry_while_the_coordinator_partition_has_no_leader() -> None:
    answer = await find(3, "g", image=image_with(CONSUMER_OFFSETS, leader=3))
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_the_first_request_creates_the_internal_topic() -> None:
    created: list[str] = []

    async def create(name: str) -> None:
        await asyncio.sleep(0)
        created.append(name)

    await find(3, "t", kind=TRANSACTION, image=ClusterImage("cluster"), create=create)
    assert created == [TRANSACTION_STATE]
    await find(3, "t", kind=TRANSACTION, image=ClusterImage("cluster"), create=create, refused={rules.FIND_TRANSACTION})
    assert created == [TRANSACTION_STATE], "not for somebody who may not ask"


async def test_a_failed_creation_of_the_internal_topic_is_reported_with_the_reason() -> None:
    async def create(name: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")

    answer = await find(3, "g", image=ClusterImage("cluster"), create=create)
    assert (answer.error_code, answer.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few brokers")
