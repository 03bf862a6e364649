"""ListConfigResources returns topics, brokers, their loggers, groups with settings, and client metrics (KIP-1142)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.topics import list_config_resources
from oncelog_broker.server.topics.list_config_resources import RESOURCES_OF_A_STEP
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPICS = [(ResourceType.TOPIC, "orders"), (ResourceType.TOPIC, "paid")]
BROKERS = [(ResourceType.BROKER, "1"), (ResourceType.BROKER, "2")]
LOGGERS = [(ResourceType.BROKER_LOGGER, "1"), (ResourceType.BROKER_LOGGER, "2")]
GROUPS = [(ResourceType.GROUP, "billing")]
CLIENT_METRICS = [(ResourceType.CLIENT_METRICS, "lag")]


async def ask(*types: int, version: int = 1, refused: Any = (), image: Any = None) -> Any:
    known = image or replace(
        image_with("orders", "paid"),
        group_configs={"billing": {"group.type": "consumer"}},
        client_metrics={"lag": {"metrics": "*"}},
    )
    context = asked(ApiKey.LIST_CONFIG_RESOURCES, version, refused=refused, image=known)
    return await answered(list_config_resources.handle, ListConfigResourcesRequest(resource_types=[*types]), context)


def listed(answer: Any) -> list[tuple[int, str]]:
    assert answer.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), TOPICS + BROKERS + LOGGERS + CLIENT_METRICS + GROUPS),
        ((ResourceType.TOPIC,), TOPICS),
        ((ResourceType.GROUP, ResourceType.BROKER, ResourceType.GROUP), BROKERS + GROUPS),
        ((ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS), LOGGERS + CLIENT_METRICS),
    ],
)
async def test_resources_of_the_named_types_are_listed(types: Any, expected: Any) -> None:
    assert listed(await ask(*types)) == expected


async def test_version_0_lists_client_metrics_alone() -> None:
    assert listed(await ask(version=0)) == CLIENT_METRICS


@pytest.mark.parametrize("unknown", [0, 3, 64, -1])
async def test_an_unknown_type_is_refused(unknown: int) -> None:
    answer = await ask(ResourceType.TOPIC, unknown)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_listing_config_resources_needs_the_right_on_the_cluster() -> None:
    answer = await ask(refused={rules.LIST_CONFIG_RESOURCES})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_a_long_list_is_made_in_steps() -> None:
    image = image_with(*(f"topic-{number}" for number in range(2 * RESOURCES_OF_A_STEP)))
    pauses = sum(1 for _ in list_config_resources._list({ResourceType.TOPIC}, image))
    assert pauses == 2
    assert len(listed(await ask(ResourceType.TOPIC, image=image))) == 2 * RESOURCES_OF_A_STEP
