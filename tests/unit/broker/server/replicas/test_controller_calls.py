"""A broker calls the controller directly if it is the controller itself, and by requests otherwise."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import image_with

from oncelog_broker.metadata.model.image import NO_CONTROLLER
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication.peers import PeerUnavailable, Purpose
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.replicas.controller_calls import ANSWER_SECONDS, ControllerCalls
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

THIS, OTHER = 1, 2
REQUEST = ControlledShutdownRequest(broker_id=THIS, broker_epoch=9)


class Controllers:
    """Replaces this broker's elector and its connections to other brokers. `error` is the reason why this broker is not
    the controller.
    """

    def __init__(self, controller: int, error: ErrorCode | None = None) -> None:
        self.error = error
        self.sent: list[tuple[Any, ...]] = []
        self.shut_down_brokers: list[tuple[int, int]] = []
        metadata: Any = SimpleNamespace(image=replace(image_with("orders"), controller_id=controller))
        slices = Slices(ManualClock(), Tasks())
        elector: Any = SimpleNamespace(term=self.term)
        peers: Any = SimpleNamespace(send=self.send)
        self.calls = ControllerCalls(THIS, metadata, peers, elector, slices)

    def term(self) -> Any:
        if self.error is not None:
            raise KafkaError(self.error)
        return self

    async def shut_down(self, broker: int, epoch: int) -> list[PartitionKey]:
        self.shut_down_brokers.append((broker, epoch))
        return [PartitionKey("orders", 1)]

    async def send(self, broker: int, request: Any, *, purpose: Purpose, timeout: float) -> Any:
        self.sent.append((broker, request, purpose, timeout))
        return ControlledShutdownResponse(error_code=0, remaining_partitions=[])


async def test_the_controller_asks_itself() -> None:
    controllers = Controllers(THIS)
    answer = await controllers.calls.controlled_shutdown(REQUEST)
    assert (controllers.shut_down_brokers, controllers.sent) == ([(THIS, 9)], [])
    assert [(each.topic_name, each.partition_index) for each in answer.remaining_partitions] == [("orders", 1)]


async def test_a_remote_controller_is_sent_a_request() -> None:
    controllers = Controllers(OTHER)
    await controllers.calls.controlled_shutdown(REQUEST)
    assert controllers.sent == [(OTHER, REQUEST, Purpose.CONTROL, ANSWER_SECONDS)]
    assert controllers.shut_down_brokers == []


async def test_a_former_controller_reports_that_it_resigned() -> None:
    answer = await Controllers(THIS, ErrorCode.NOT_CONTROLLER).calls.controlled_shutdown(REQUEST)
    assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.NOT_CONTROLLER, [])


async def test_a_request_without_a_known_controller_fails() -> None:
    controllers = Controllers(NO_CONTROLLER)
    with pytest.raises(PeerUnavailable):
        await controllers.calls.controlled_shutdown(REQUEST)
    assert controllers.sent == []
