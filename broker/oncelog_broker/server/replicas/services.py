"""For handlers of who holds and who leads a partition."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.forwarding import ForwardingServices


class ReplicaServices(ForwardingServices, Protocol):
    """What handlers of who holds and leads a partition may reach, beside what all may."""

    replicas: Replicas
    logs: LogManager


ReplicaContext: TypeAlias = RequestContext[ReplicaServices]
