"""Heartbeat: the response to a member while its coordinator is loading."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog_broker.server.groups import heartbeat
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.heartbeat import HeartbeatRequest


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_of_a_loaded_group_is_alive(refused: ErrorCode, told: ErrorCode) -> None:
    """Kafka responds in the same way, because clients do not expect a loading error here, and aiokafka's consumer stops
    after one.
    """
    runtime = SimpleNamespace(write=lambda group, step, failed: failed(KafkaError(refused)))
    services = SimpleNamespace(groups=SimpleNamespace(runtime=runtime))
    context = cast(RequestContext, SimpleNamespace(services=services, may=lambda *_: True))
    answer: Any = heartbeat.handle(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), context)
    assert answer.error_code == told
