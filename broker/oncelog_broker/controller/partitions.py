"""The controller at work on partitions: events come in, the machine decides, the writer writes; one thing at a time.

One object is one term as controller. Where an outcome stays unknown (the store is out of reach) the view is not to be
trusted any more: it is read again as a whole before the next decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from oncelog_broker.controller import reading
from oncelog_broker.controller.alter_partition import Proposal, check_sender, decide, find_partition
from oncelog_broker.controller.elect_leaders import imbalances, requested_election
from oncelog_broker.controller.leadership import Controllership
from oncelog_broker.controller.machine import PartitionChange, in_order, reassignment_change, wanted_change
from oncelog_broker.controller.reassignment import begin
from oncelog_broker.controller.shutdown import is_left_to, note_shutdown
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.controller.writer import Deposed, Refused, StateWriter, in_pieces
from oncelog_broker.metadata.payloads import PARTITIONS_PER_STEP, ReplicaAssignment
from oncelog_broker.metadata.reader import PartitionKey
from oncelog_broker.metadata.store import ConnectionLost, MetadataStore
from oncelog_broker.runtime.slices import Pause, no_pause
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_ATTEMPTS: Final = 20
"""How often in a row writes for the same partitions may be refused: each time something else must have changed."""

Wanted = tuple[PartitionKey, Sequence[int] | None]
"""A partition, and who is to hold it; None: its reassignment is cancelled."""

Altered = KnownState | KafkaError
"""What becomes of a proposal: the state afterwards, or why it was refused."""


class Unsettled(Exception):
    """The same partitions were refused again and again."""


class PartitionController:
    """See the module's docstring."""

    def __init__(
        self,
        store: MetadataStore,
        controllership: Controllership,
        unclean_by_default: Callable[[], bool] = lambda: False,
        pause: Pause = no_pause,
    ) -> None:
        self.controllership = controllership
        self.view = ClusterView()
        self._store = store
        self._writer = StateWriter(store, controllership, pause)
        self._unclean_by_default = unclean_by_default
        self.pause = pause
        self._turn = asyncio.Lock()
        self._must_read_all = True
        self.on_trouble: Callable[[], None] = lambda: None
        """Called when the view is to be read again, or this term is over."""

    @property
    def must_read_all(self) -> bool:
        """Whether the view is not to be trusted."""
        return self._must_read_all

    def distrust(self) -> None:
        """Something may have been missed: everything is read again, and before the next decision."""
        self._must_read_all = True
        self.on_trouble()

    # --- events; each returns when what follows from it is written. Raises Deposed, StoreUnavailable, Unsettled.

    async def read_all(self) -> None:
        """The beginning of a term, and the end of a time without the store."""
        async with self._turn:
            self._must_read_all = True
            await self._guarded(self._settle(()))

    async def current_view(self) -> ClusterView:
        """The view, when it is to be trusted."""
        if self._must_read_all:
            async with self._turn:
                await self._guarded(self._settle(()))
        return self.view

    async def brokers_changed(self) -> None:
        """Brokers came or went."""
        async with self._turn:
            await self._guarded(self._brokers_changed())

    async def topics_changed(self, names: Collection[str]) -> None:
        """Topics were created, deleted, or have got partitions."""
        async with self._turn:
            await self._guarded(self._topics_changed(names))

    async def configs_changed(self, names: Collection[str]) -> None:
        """Settings of topics were changed."""
        async with self._turn:
            await self._guarded(self._configs_changed(names))

    async def alter(
        self, broker: int, broker_epoch: int, proposals: Sequence[tuple[bytes, int, Proposal]]
    ) -> list[Altered]:
        """What becomes of each proposal of a broker for a partition, named by topic id and index, when all are written.

        KafkaError STALE_BROKER_EPOCH: it is not that broker any more.
        """
        async with self._turn:
            return await self._guarded(self._alter(broker, broker_epoch, proposals))

    async def reassign(
        self, wanted: Sequence[Wanted], *, may_change_replication_factor: bool = True
    ) -> list[KafkaError | None]:
        """Begin, replace or cancel the reassignment of partitions: None for each that is under way, or done, or why it
        is refused."""
        async with self._turn:
            return await self._guarded(self._reassign(wanted, may_change_replication_factor))

    async def shut_down(self, broker: int, broker_epoch: int) -> list[PartitionKey]:
        """A broker is about to stop: others lead what they can, and nobody waits for it. What it leads all the same.

        KafkaError BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH: it is not that broker any more.
        """
        async with self._turn:
            return await self._guarded(self._shut_down(broker, broker_epoch))

    async def elect(
        self, kind: ElectionType, keys: Collection[PartitionKey] | None
    ) -> dict[PartitionKey, KafkaError | None]:
        """Elect leaders of these partitions, None: of all that need it. What became of each; None: it is led so now."""
        async with self._turn:
            return await self._guarded(self._elect(kind, keys))

    async def balance(self, percentage: int) -> int:
        """Let preferred replicas lead, of those brokers of whose partitions others lead more than `percentage`; how
        many do so now."""
        async with self._turn:
            return await self._guarded(self._balance(percentage))

    # --- with the turn taken

    async def _guarded(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except KafkaError:
            raise
        except Deposed:
            self.on_trouble()
            raise
        except Exception:  # what was read and not settled would never be looked at again
            self.distrust()
            raise

    async def _brokers_changed(self) -> None:
        if self._must_read_all:
            return await self._settle(())
        changed = await reading.read_brokers(self._store, self.view)
        return await self._settle(self.view.keys_on(changed))

    async def _topics_changed(self, names: Collection[str]) -> None:
        if not self._must_read_all:
            await reading.read_topics(self._store, self.view, names, self.pause)
        await self._settle(self.view.keys_of(names))

    async def _configs_changed(self, names: Collection[str]) -> None:
        changed: Collection[str] = ()
        if not self._must_read_all:
            changed = await reading.read_configs(self._store, self.view, names)
        await self._settle(self.view.keys_of(changed))

    async def _settle(self, keys: Iterable[PartitionKey]) -> None:
        """Write what the machine wants of these partitions, until it wants nothing more."""
        pending = set(keys) if not self._must_read_all else await self._read_all()
        for _ in range(MAX_ATTEMPTS):
            if not pending:
                return
            refused: set[PartitionKey] = set()
            incarnations = self.view.incarnations
            wanted = await self._wanted(pending)
            for piece in in_pieces(wanted):
                refused |= await self._write(piece, incarnations)
            # What was written first, somebody who left an ISR, say, may be what the end of a reassignment waited for.
            pending = refused.union(change.key for change in wanted if self._is_reassigned(change.key))
        raise Unsettled(f"{len(pending)} partitions changed in each of {MAX_ATTEMPTS} attempts")

    async def _read_all(self) -> set[PartitionKey]:
        stopping = self.view.stopping
        self.view = await reading.read_view(self._store, self._unclean_by_default(), self.pause)
        self.view.note_stopping(stopping)
        self._must_read_all = False
        found = set()
        for number, key in enumerate(self.view.keys()):
            found.add(key)
            if number % PARTITIONS_PER_STEP == 0:
                await self.pause()
        return found

    async def _wanted(self, keys: Iterable[PartitionKey]) -> list[PartitionChange]:
        """`machine.wanted_changes`, while others have their turn."""
        changes = []
        for key in keys:
            await self.pause()
            change = wanted_change(self.view, key, self.controllership.epoch)
            if change is not None:
                changes.append(change)
        return in_order(changes)

    async def _write(self, piece: Sequence[PartitionChange], incarnations: Mapping[int, int]) -> set[PartitionKey]:
        """The partitions to look at again: none, if all was written. `incarnations`: see StateWriter.write."""
        keys = {change.key for change in piece}
        topics = {key.topic for key in keys}
        try:
            await self._writer.write(self.view, piece, incarnations)
        except Refused as refused:
            if refused.brokers:
                return keys | self.view.keys_on(await reading.read_brokers(self._store, self.view))
            await reading.read_topics(self._store, self.view, topics, self.pause)
        except ConnectionLost:
            await self._store.sync()
            await reading.read_topics(self._store, self.view, topics, self.pause)
        else:
            return set()
        return keys

    async def _alter(
        self, broker: int, broker_epoch: int, proposals: Sequence[tuple[bytes, int, Proposal]]
    ) -> list[Altered]:
        if self._must_read_all:
            await self._settle(())
        answers: dict[int, Altered] = {}
        pending = list(range(len(proposals)))
        for _ in range(MAX_ATTEMPTS):
            check_sender(self.view, broker, broker_epoch)
            incarnations = self.view.incarnations
            changes: dict[PartitionKey, int] = {}
            wanted = []
            for index in pending:
                await self.pause()
                decided = self._decide(*proposals[index])
                if not isinstance(decided, PartitionChange):
                    answers[index] = decided
                elif decided.key in changes:
                    answers[index] = KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
                else:
                    changes[decided.key] = index
                    wanted.append(decided)
            again: set[PartitionKey] = set()
            for piece in in_pieces(wanted):
                again |= await self._write(piece, incarnations)
            for change in wanted:
                if change.key not in again:
                    answers[changes[change.key]] = self._after(change)
            pending = [index for key, index in changes.items() if key in again]
            # Brokers that came again were noticed on the way: what that means for the ISRs as they are comes first.
            # And an ISR may have got what the end of a reassignment waits for.
            await self._settle(again.union(key for key in changes if self._is_reassigned(key)))
            if not pending:
                return [answers[index] for index in range(len(proposals))]
        raise Unsettled("proposals were refused by the store again and again")

    def _is_reassigned(self, key: PartitionKey) -> bool:
        assignment = self.view.assignment(key)
        return assignment is not None and assignment.is_reassigned

    async def _reassign(self, wanted: Sequence[Wanted], may_change_replication_factor: bool) -> list[KafkaError | None]:
        await self._brokers_changed()  # one that is to hold something may have come just now
        errors: dict[int, KafkaError] = {}
        pending = list(range(len(wanted)))
        tried: dict[PartitionKey, ReplicaAssignment | None] = {}
        for _ in range(MAX_ATTEMPTS):
            incarnations = self.view.incarnations
            changes: dict[PartitionKey, int] = {}
            begun = []
            for index in pending:
                await self.pause()
                key, target = wanted[index]
                try:
                    if key in changes:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
                    is_done = key in tried and tried[key] == self.view.assignment(key)  # the reply was lost
                    change = None if is_done else self._begin(key, target, may_change_replication_factor)
                except KafkaError as error:
                    errors[index] = error
                    continue
                changes[key] = index
                if change is not None:
                    begun.append(change)
                    tried[key] = change.assignment
            again: set[PartitionKey] = set()
            for piece in in_pieces(begun):
                again |= await self._write(piece, incarnations)
            pending = [index for key, index in changes.items() if key in again]
            await self._settle({*again, *changes})  # what has nobody to wait for is completed now
            if not pending:
                return [errors.get(index) for index in range(len(wanted))]
        raise Unsettled("reassignments were refused by the store again and again")

    def _begin(
        self, key: PartitionKey, target: Sequence[int] | None, may_change_replication_factor: bool
    ) -> PartitionChange | None:
        reassigned = begin(
            self.view,
            key,
            target,
            self.controllership.epoch,
            may_change_replication_factor=may_change_replication_factor,
        )
        return None if reassigned is None else reassignment_change(key, reassigned, self.view.states[key])

    async def _shut_down(self, broker: int, broker_epoch: int) -> list[PartitionKey]:
        # Who has just come may not have been seen yet.
        changed = set() if self._must_read_all else await reading.read_brokers(self._store, self.view)
        if self._must_read_all:
            await self._settle(())
        note_shutdown(self.view, broker, broker_epoch)
        await self._settle(self.view.keys_on({broker, *changed}))
        return [key for key in self.view.keys_on({broker}) if is_left_to(self.view, broker, key)]

    async def _elect(
        self, kind: ElectionType, keys: Collection[PartitionKey] | None
    ) -> dict[PartitionKey, KafkaError | None]:
        if self._must_read_all:
            await self._settle(())
        outcomes: dict[PartitionKey, KafkaError | None] = {}
        pending = set(self.view.states if keys is None else keys)
        tried: set[PartitionKey] = set()
        for _ in range(MAX_ATTEMPTS):
            incarnations = self.view.incarnations
            wanted = []
            for key in pending:
                await self.pause()
                try:
                    wanted.append(requested_election(self.view, key, kind, self.controllership.epoch))
                except KafkaError as error:
                    is_done = key in tried and error.code is ErrorCode.ELECTION_NOT_NEEDED  # the reply was lost
                    outcomes[key] = None if is_done else error
            again: set[PartitionKey] = set()
            for piece in in_pieces(wanted):
                again |= await self._write(piece, incarnations)
            written = {change.key for change in wanted}
            outcomes.update(dict.fromkeys(written - again))
            tried, pending = tried | written, written & again
            await self._settle(again)
            if not pending:
                return outcomes
        raise Unsettled(f"{len(pending)} elections were refused by the store again and again")

    async def _balance(self, percentage: int) -> int:
        if self._must_read_all:
            await self._settle(())
        wanted: set[PartitionKey] = set()
        for found in imbalances(self.view):
            await self.pause()
            if found is not None and found[1].exceeds(percentage):
                wanted.update(found[1].elsewhere)
        outcomes = await self._elect(ElectionType.PREFERRED, wanted) if wanted else {}
        return sum(error is None for error in outcomes.values())

    def _decide(self, topic_id: bytes, partition: int, proposal: Proposal) -> PartitionChange | Altered:
        try:
            key = find_partition(self.view, topic_id, partition)
            return decide(self.view, key, proposal, self.controllership.epoch)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                self.distrust()  # a write of ours took place after we had read that it had not
            return error

    def _after(self, change: PartitionChange) -> Altered:
        if change.is_election:
            return KafkaError(ErrorCode.NEW_LEADER_ELECTED)
        known = self.view.states.get(change.key)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if known is None else known
