"""If the process is armed with faults, each route wraps its handler with them, also for requests inside an Envelope.

tests/unit/broker/test_fail_control.py tests what faults do and how they are removed.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.forwarding import OTHER, Brokers
from tests.support.handlers import asked, image_with

from oncelog.fail_points import point
from oncelog.fail_points.faults import Faults
from oncelog.fail_points.specification import Action, Kind
from oncelog_broker.server.cluster import describe_cluster
from oncelog_broker.server.dispatch.faulty import FaultyHandler
from oncelog_broker.server.dispatch.routes import Route, handler_of
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest

CREATE = CreateTopicsRequest(
    topics=[
        CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
    ],
    timeout_ms=30_000,
)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Arm the process; return its faults."""
    armed = Faults([])
    monkeypatch.setattr(point, "ACTIVE_FAULTS", armed)
    return armed


def test_handlers_are_unchanged_in_a_process_without_fail_points() -> None:
    assert handler_of(SERVED[ApiKey.DESCRIBE_CLUSTER]) is describe_cluster.handle


async def test_a_route_has_the_faults_around_its_handler(faults: Faults) -> None:
    route = Route(ApiKey.DESCRIBE_CLUSTER, 1)
    for _ in route.make():
        pass
    assert isinstance(route.handler, FaultyHandler)
    context: Any = asked(ApiKey.DESCRIBE_CLUSTER, 1, image=image_with())
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert route.handler(request, context).cluster_id == "cluster"
    closed: list[str] = []
    context.connection.close = closed.append
    faults.controlled.add("DescribeCluster.answer", Action(Kind.DROP))
    assert route.handler(request, context) is None
    assert closed == ["a fault: the answer is lost"]


async def test_a_request_in_an_envelope_is_struck_at_the_controller(faults: Faults) -> None:
    brokers = await Brokers.start()
    fault = faults.controlled.add("CreateTopics.request", Action(Kind.REFUSE, error="REQUEST_TIMED_OUT"))
    refused = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, CREATE)
    assert [topic.error_code for topic in refused.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert (fault.struck, brokers.sent) == (1, 1)
    made = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, CREATE)
    assert [topic.error_code for topic in made.topics] == [ErrorCode.NONE]
    await brokers.stop()
