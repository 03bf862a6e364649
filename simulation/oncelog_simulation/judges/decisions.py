"""A transaction is complete when all of its partitions have its marker, in every replica in sync.

Looked at after each turn of a broker, at the transactional ids whose state has changed in it: a coordinator that calls
a transaction complete too early is seen at once, whether or not a fault takes the marker away. Beside that must hold:
what was decided to be committed is not aborted, nor the other way round, and the epoch of a producer id never goes
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_simulation.judges.committed import Committed
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

COMPLETE: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Decisions:
    """Follows the transactional ids of each coordinator."""

    name = "decisions"

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._seen: dict[object, dict[str, TransactionMetadata]] = {}
        """Coordinating machine -> transactional id -> its state at the last look."""

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """What has changed in this turn."""
        if machine.broker is None:
            return ()
        wrong: list[str] = []
        for coordinating in machine.broker.parts.coordinators.transactions.runtime.machines():
            seen = self._seen.setdefault(coordinating, {})
            for transactional_id, now in coordinating.transactions.items():
                before = seen.get(transactional_id)
                if before is not now:
                    seen[transactional_id] = now
                    if before is not None:
                        wrong += (f"{transactional_id}: {what}" for what in self._wrong(world, before, now))
        return wrong

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        return ()

    def _wrong(self, world: World, before: TransactionMetadata, now: TransactionMetadata) -> Iterator[str]:
        if before.producer_id == now.producer_id and now.producer_epoch < before.producer_epoch:
            yield f"the epoch of producer {now.producer_id} went from {before.producer_epoch} to {now.producer_epoch}"
        if not before.state.is_prepared or now.state not in COMPLETE.values():
            return  # in one turn a transaction may become complete and the next one begin
        if now.state is not COMPLETE[before.state]:
            yield f"{now.state.shown} follows {before.state.shown}"
            return
        for topic, index in sorted(before.partitions):
            if Place(topic, index) in self._committed.excused:
                continue
            for replica in self._committed.in_sync(world, topic, index):
                state = replica.log.producers.state
                if any(state.has_open_transaction(before.producer_id, before.producer_epoch - back) for back in (0, 1)):
                    yield (
                        f"{now.state.shown}, and broker {replica.broker_id}, which is in sync, has no marker in "
                        f"{topic}-{index}"
                    )
