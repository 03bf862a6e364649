"""ControlledShutdown: what a broker still leads when it stops; strangers are refused in test_for_brokers.py."""

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
    """`outcome`: the partitions that remain, or what the controller raises."""

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


async def test_what_nobody_else_can_lead_remains() -> None:
    assert await ask([]) == (ErrorCode.NONE, [])
    assert await ask([PartitionKey("orders", 3)]) == (ErrorCode.NONE, [("orders", 3)])


async def test_a_store_that_does_not_say_what_became_of_the_writes() -> None:
    assert await ask(ConnectionLost("", "away")) == (ErrorCode.REQUEST_TIMED_OUT, [])


async def test_without_the_right() -> None:
    assert await ask([], refused={rules.CONTROLLED_SHUTDOWN}) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
