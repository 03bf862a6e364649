"""Services for handlers of producer ids and transactions."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.markers import MarkerAppender
from oncelog_broker.metadata.membership.producer_ids import ProducerIdManager
from oncelog_broker.server.groups.services import GroupServices
from oncelog_broker.server.request.context import RequestContext


class TransactionServices(GroupServices, Protocol):
    """The parts of the broker that handlers of producer ids and transactions may use, in addition to CommonServices."""

    producer_ids: ProducerIdManager

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator of this broker."""

    @property
    def markers(self) -> MarkerAppender:
        """Appends markers to the partitions that this broker leads."""


TransactionContext: TypeAlias = RequestContext[TransactionServices]
