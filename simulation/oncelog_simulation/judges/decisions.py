"""A transaction may be complete only when all of its partitions have its marker, in every in-sync replica.

After each turn of a broker, the judge checks the transactional ids whose state has changed in this turn. The judge
therefore notices a coordinator that completes a transaction too early, even if no fault then removes the marker. The
judge also checks that a transaction with a commit decision is not aborted and vice versa, and that the epoch of a
producer id never decreases.

The next coordinator may have completed the same transaction before, and begun the next one of this producer. So a
broker that no longer leads the partition of the transactional id is not asked for markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_broker.metadata.topic_names import TRANSACTION_STATE
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.running import Running
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_broker.assembly.running_coordinators import RunningCoordinators
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

COMPLETE: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Decisions:
    """Tracks the transactional ids of each coordinator."""

    name = "decisions"
    sees_only_partitions = False

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._seen: dict[object, dict[str, TransactionMetadata]] = {}
        """For each coordinating machine, the state of each transactional id at the last check. An id stays here when
        the coordinator has forgotten it.
        """
        self._last: dict[object, dict[str, TransactionMetadata]] = {}
        """For each coordinating machine, all of its transactional ids at the last check."""

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Yield the violations among the state changes of this turn."""
        running = None if machine.broker is None else machine.broker.parts.coordinators.present
        if running is None:
            return ()
        wrong: list[str] = []
        last = self._last
        for coordinating in running.transactions.runtime.machines():
            transactions = coordinating.transactions
            if not transactions and coordinating not in last:
                continue
            if last.get(coordinating) == transactions:
                continue
            last[coordinating] = dict(transactions)
            seen = self._seen.setdefault(coordinating, {})
            for transactional_id, now in transactions.items():
                before = seen.get(transactional_id)
                if before is not now:
                    seen[transactional_id] = now
                    if before is not None:
                        leads = self._is_coordinator(machine, running, transactional_id)
                        found = self._wrong(world, before, now, asks_for_markers=leads)
                        wrong += (f"{transactional_id}: {what}" for what in found)
        return wrong

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        return ()

    def _is_coordinator(self, machine: BrokerMachine, running: RunningCoordinators, transactional_id: str) -> bool:
        """Return whether the metadata store names this broker as the coordinator of the transactional id."""
        index = running.transactions.runtime.partition_of(transactional_id)
        assert machine.broker is not None
        assert index is not None
        return self._committed.is_leader(Running(machine, machine.broker.parts), TRANSACTION_STATE, index)

    def _wrong(
        self, world: World, before: TransactionMetadata, now: TransactionMetadata, *, asks_for_markers: bool
    ) -> Iterator[str]:
        if before.producer_id == now.producer_id and now.producer_epoch < before.producer_epoch:
            yield f"the epoch of producer {now.producer_id} went from {before.producer_epoch} to {now.producer_epoch}"
        if not before.state.is_prepared or now.state not in COMPLETE.values():
            return  # one turn may both complete a transaction and begin the next one
        if now.state is not COMPLETE[before.state]:
            yield f"{now.state.shown} follows {before.state.shown}"
            return
        for topic, index in sorted(before.partitions) if asks_for_markers else ():
            if Place(topic, index) in self._committed.excused:
                continue
            for replica in self._committed.in_sync(world, topic, index):
                state = replica.log.producers.state
                if any(state.has_open_transaction(before.producer_id, before.producer_epoch - back) for back in (0, 1)):
                    yield (
                        f"{now.state.shown}, and broker {replica.broker_id}, which is in sync, has no marker in "
                        f"{topic}-{index}"
                    )
