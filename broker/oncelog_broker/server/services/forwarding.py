"""For handlers whose requests only the controller can serve."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.controller.elector import Elector
from oncelog_broker.replication.peers import Peers
from oncelog_broker.server.request.context import CommonServices, RequestContext


class ForwardingServices(CommonServices, Protocol):
    """What a handler needs to forward a request to the controller (KIP-590)."""

    elector: Elector
    """Whether this broker is the controller, and its term."""
    peers: Peers


ForwardingContext: TypeAlias = RequestContext[ForwardingServices]
