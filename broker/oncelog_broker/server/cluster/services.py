"""Services for the handlers of client metrics, and of the requests that a client sends first."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.server.request.context import CommonServices, RequestContext
from oncelog_broker.telemetry.client_telemetry import ClientTelemetry


class ClusterServices(CommonServices, Protocol):
    """The parts of the broker that handlers of client metrics may use, in addition to CommonServices."""

    telemetry: ClientTelemetry


ClusterContext: TypeAlias = RequestContext[ClusterServices]
