"""Services for handlers of share partitions."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.coordinator.share.share_coordinator import ShareCoordinator
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.request.context import CommonServices, RequestContext
from oncelog_broker.sharing.share_partitions import SharePartitions


class ShareServices(CommonServices, Protocol):
    """The parts of the broker that handlers of share partitions may use, in addition to CommonServices."""

    replicas: Replicas

    @property
    def shares(self) -> ShareCoordinator:
        """The share coordinator of this broker."""

    @property
    def share_partitions(self) -> SharePartitions:
        """The share partitions that this broker leads."""


ShareContext: TypeAlias = RequestContext[ShareServices]
