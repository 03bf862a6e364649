"""Sends this broker's own requests to the controller; if this broker is the controller, calls the controller
directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog_broker.controller.elector import Elector
from oncelog_broker.metadata.model.image import NO_CONTROLLER, ImageView
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.server.replicas.alter_partition import alter
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

ALTER_PARTITION_VERSION: Final = 3
"""Version of AlterPartition that this broker uses in direct calls, when it is the controller itself."""
ANSWER_SECONDS: Final = 10.0
"""If the controller does not respond within this number of seconds, the request is repeated."""


class ControllerCalls:
    """Sends requests to the controller; each method raises PeerUnavailable if it is unknown whether the controller
    received the request.
    """

    def __init__(self, node_id: int, metadata: ImageView, peers: Peers, elector: Elector, slices: Slices) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._elector = elector
        self._slices = slices

    def _controller(self) -> int:
        controller = self._metadata.image.controller_id
        if controller == NO_CONTROLLER:
            raise PeerUnavailable(controller, "no controller is known")
        return controller

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Request that the controller changes the ISR of partitions."""
        controller = self._controller()
        if controller == self._node_id:
            return await alter(request, ALTER_PARTITION_VERSION, self._elector, self._slices)
        return await self._peers.send(controller, request, purpose=Purpose.CONTROL, timeout=ANSWER_SECONDS)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Request that the controller moves this broker's leadership to other brokers."""
        from oncelog_broker.server.replicas.controlled_shutdown import shut_down

        controller = self._controller()
        if controller == self._node_id:
            return await shut_down(request, self._elector)
        return await self._peers.send(controller, request, purpose=Purpose.CONTROL, timeout=ANSWER_SECONDS)
