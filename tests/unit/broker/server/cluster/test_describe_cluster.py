"""DescribeCluster returns brokers with their addresses on the listener that the client uses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import asked, image_with

from oncelog_broker.metadata.model.image import Broker, Endpoint
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.cluster import describe_cluster
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest


def ask(*, refused: Any = (), image: Any = None, **fields: Any) -> Any:
    request = DescribeClusterRequest(**{"include_cluster_authorized_operations": False} | fields)
    return describe_cluster.handle(
        request, asked(ApiKey.DESCRIBE_CLUSTER, 2, refused=refused, image=image or image_with())
    )


def test_describe_cluster_lists_brokers_and_controller() -> None:
    answer = ask()
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (ErrorCode.NONE, "cluster", 1)
    brokers = [(each.broker_id, each.host, each.port) for each in answer.brokers]
    assert brokers == [(1, "host-1", 9092), (2, "host-2", 9092)]


def test_a_broker_without_that_listener_is_left_out() -> None:
    image = image_with()
    elsewhere = Broker(3, 1, (Endpoint("OTHER", "host-3", 9092),))
    image.brokers[3] = elsewhere  # type: ignore[index]
    assert [each.broker_id for each in ask(image=image).brokers] == [1, 2]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_the_cluster_has_no_separate_controllers(endpoint_type: int, code: ErrorCode) -> None:
    answer = ask(endpoint_type=endpoint_type)
    assert (answer.error_code, answer.error_message, answer.brokers) == (code, code.meaning, [])


def test_authorized_operations_are_returned_if_requested_and_allowed() -> None:
    assert ask().cluster_authorized_operations == -(2**31)
    operations = ask(include_cluster_authorized_operations=True, refused={rules.DESCRIBE_CLUSTER})
    assert operations.cluster_authorized_operations == 0
    assert ask(include_cluster_authorized_operations=True).cluster_authorized_operations > 0
