"""ControlledShutdown returns the partitions that a stopping broker still leads; test_for_brokers.py tests that clients
are refused.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.handlers import answered, asked

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import ConnectionLost
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas import controlled_shutdown
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest


async def ask(outcome: Any, *, refused: Any = ()) -> Any:
    """Send a ControlledShutdown request. `outcome`: the remaining partitions, or the controller's exception."""

    async def shut_down(broker: int, epoch: int) -> Any:
        assert (broker, epoch) == (2, 7)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    elector = SimpleNamespace(term=lambda: SimpleNamespace(shut_down=shut_down))
    context = asked(ApiKey.CONTROLLED_SHUTDOWN, 3, refused=refused, elector=elector, config=BrokerConfig.of({}))
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=7)
    answer = await answered(controlled_shutdown.handle, request, context)
    await context.services.tasks.close()
    return answer.error_code, [(each.topic_name, each.partition_index) for each in answer.remaining_partitions]


async def test_partitions_that_no_other_broker_can_lead_remain() -> None:
    assert await ask([]) == (ErrorCode.NONE, [])
    assert await ask([PartitionKey("orders", 3)]) == (ErrorCode.NONE, [("orders", 3)])


async def test_an_unknown_outcome_of_the_writes_is_an_error() -> None:
    assert await ask(ConnectionLost("", "away")) == (ErrorCode.REQUEST_TIMED_OUT, [])


async def test_a_controlled_shutdown_needs_the_right() -> None:
    assert await ask([], refused={rules.CONTROLLED_SHUTDOWN}) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
