"""Services for handlers that read and write records, and look up offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication.isr_keeper import IsrKeeper
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.replication.throttle import Throttles
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.kept.refused_batches import RefusedBatches
from oncelog_broker.server.request.context import CommonServices, RequestContext

if TYPE_CHECKING:
    from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator


class RecordServices(CommonServices, Protocol):
    """The parts of the broker that handlers of records may use, in addition to CommonServices."""

    replicas: Replicas
    logs: LogManager
    throttles: Throttles
    isr_keeper: IsrKeeper
    fetch_sessions: FetchSessions
    refused_batches: RefusedBatches

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, which verifies whether a partition is part of a transaction."""


RecordContext: TypeAlias = RequestContext[RecordServices]
