"""Services for handlers that read and write records, and look up offsets."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication.isr_keeper import IsrKeeper
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.replication.throttle import Throttles
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.kept.refused_batches import RefusedBatches
from oncelog_broker.server.request.context import CommonServices, RequestContext


class RecordServices(CommonServices, Protocol):
    """The parts of the broker that handlers of records may use, in addition to CommonServices."""

    replicas: Replicas
    logs: LogManager
    transactions: TransactionCoordinator
    """Verifies whether a partition is part of a transaction."""
    throttles: Throttles
    isr_keeper: IsrKeeper
    fetch_sessions: FetchSessions
    refused_batches: RefusedBatches


RecordContext: TypeAlias = RequestContext[RecordServices]
