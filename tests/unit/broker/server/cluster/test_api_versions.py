"""ApiVersions: the responses for clients and brokers, in each version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import asked, image_with

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.server.cluster import api_versions
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

FEATURES = {"group.version", "share.version", "streams.version", "transaction.version"}
STATE_APIS = range(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1)
FOR_BROKERS = {int(ApiKey.CONTROLLED_SHUTDOWN), int(ApiKey.ALTER_PARTITION), int(ApiKey.ENVELOPE), *STATE_APIS}


TELEMETRY = {int(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS), int(ApiKey.PUSH_TELEMETRY)}


def ask(
    version: int = 4,
    name: str = "client",
    software_version: str = "1.0",
    *,
    is_clustered: bool = False,
    client_metrics: Any = None,
) -> Any:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    context = asked(
        ApiKey.API_VERSIONS,
        version,
        config=BrokerConfig.of({}),
        is_clustered=is_clustered,
        image=image_with(client_metrics=client_metrics or {}),
    )
    return api_versions.handle(request, context)


def test_api_versions_lists_served_apis_without_inter_broker_ones() -> None:
    keys = {each.api_key: (each.min_version, each.max_version) for each in ask().api_keys}
    assert set(keys) == set(SERVED) - FOR_BROKERS - TELEMETRY
    highest = {key: SERVED[key].versions.high for key in keys} | {int(ApiKey.INIT_PRODUCER_ID): 5}
    assert keys == {key: (SERVED[key].advertised_low, highest[key]) for key in keys}, "two-phase commit is not enabled"


def test_client_metrics_are_advertised_while_there_is_a_subscription() -> None:
    answer = ask(client_metrics={"lag": {"metrics": "*"}})
    assert {each.api_key for each in answer.api_keys} == set(SERVED) - FOR_BROKERS
    assert {each.api_key for each in ask().api_keys}.isdisjoint(TELEMETRY)


def test_the_software_of_a_client_is_kept_with_its_connection() -> None:
    request = ApiVersionsRequest(client_software_name="a" * 1000, client_software_version="2.6.0")
    context = asked(ApiKey.API_VERSIONS, 3, config=BrokerConfig.of({}), image=image_with())
    api_versions.handle(request, context)
    assert context.connection.software == ("a" * 257, "2.6.0")


def test_versions_of_produce_are_advertised_that_are_refused() -> None:
    produce = next(each for each in ask().api_keys if each.api_key == ApiKey.PRODUCE)
    assert (produce.min_version, SERVED[ApiKey.PRODUCE].versions.low) == (0, 3)


def test_brokers_get_inter_broker_apis_and_feature_levels() -> None:
    answer = ask(is_clustered=True)
    assert {each.api_key for each in answer.api_keys} >= FOR_BROKERS
    names = {each.name for each in answer.finalized_features}
    assert names == {"transaction.version", "oncelog.version"}, "no broker is known to have the level of group.version"
    assert {each.name for each in ask().finalized_features} == FEATURES


@pytest.mark.parametrize(("version", "names"), [(3, set()), (4, FEATURES)])
def test_features_whose_lowest_level_is_0_are_for_those_who_can_read_them(version: int, names: set[str]) -> None:
    assert {each.name for each in ask(version).supported_features} == names


@pytest.mark.parametrize(
    ("version", "name", "software_version", "code"),
    [
        (3, "", "1", ErrorCode.INVALID_REQUEST),
        (3, "client", "", ErrorCode.INVALID_REQUEST),
        (3, "-client", "1", ErrorCode.INVALID_REQUEST),
        (3, "client name", "1", ErrorCode.INVALID_REQUEST),
        (3, "client\n", "1", ErrorCode.INVALID_REQUEST),
        (3, "apache-kafka-java", "4.1.0-rc1", ErrorCode.NONE),
        (2, "", "", ErrorCode.NONE),  # before v3 clients did not send their name
    ],
)
def test_client_software_names_are_validated(version: int, name: str, software_version: str, code: ErrorCode) -> None:
    answer = ask(version, name, software_version)
    assert answer.error_code == code
    assert bool(answer.api_keys) is (code is ErrorCode.NONE)


def test_a_future_version_is_answered_with_the_supported_ones() -> None:
    answer = api_versions.unsupported_version()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
