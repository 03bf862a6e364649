"""Services for handlers that deal with replicas and leaders of partitions."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication.directory_moves import DirectoryMoves
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.forwarding import ForwardingServices


class ReplicaServices(ForwardingServices, Protocol):
    """The parts of the broker that handlers of replicas and leaders may use, in addition to CommonServices."""

    replicas: Replicas
    logs: LogManager
    directory_moves: DirectoryMoves


ReplicaContext: TypeAlias = RequestContext[ReplicaServices]
