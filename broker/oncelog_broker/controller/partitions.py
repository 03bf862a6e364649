"""Handles requests to the controller about partitions: ISR changes, elections, reassignments, controlled shutdowns.

Each `PartitionController` object serves one term as controller. For each request a change is decided from the
controller's view of the cluster, and written. The request is decided again if the write was refused or the outcome of
the write is unknown. After the write, further changes that follow from it are decided and written (`reconciler.py`),
and the response is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oncelog_broker.controller import reading
from oncelog_broker.controller.alter_partition import Proposal, check_sender, decide, find_partition
from oncelog_broker.controller.candidates import OFFLINE, Question
from oncelog_broker.controller.elect_leaders import imbalances, requested_election
from oncelog_broker.controller.election import Undecided
from oncelog_broker.controller.partition_decisions import (
    PartitionChange,
    in_order,
    questions,
    reassignment_change,
    undecided,
)
from oncelog_broker.controller.reassignment import begin, staying_in_sync
from oncelog_broker.controller.reconciler import MAX_ATTEMPTS, Reconciler, Unsettled
from oncelog_broker.controller.shutdown import is_left_to, note_shutdown
from oncelog_broker.controller.topic_room import TopicRoom
from oncelog_broker.controller.view import KnownState
from oncelog_broker.controller.writer import in_pieces
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import ReplicaAssignment
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError

Wanted = tuple[PartitionKey, Sequence[int] | None]
"""A partition, and the brokers that shall have its replicas. If the brokers are None, the partition's reassignment is
cancelled.
"""

Altered = KnownState | KafkaError
"""The result of a proposal: the partition's state afterwards, or the error with which the proposal was refused."""


class PartitionController(Reconciler):
    """Handles the requests about partitions during one term as controller. All methods raise Deposed (`writer.py`),
    StoreUnavailable and Unsettled (`reconciler.py`).
    """

    async def alter(
        self, broker: int, broker_epoch: int, proposals: Sequence[tuple[bytes, int, Proposal]]
    ) -> list[Altered]:
        """Handle the proposals of a broker; returns the result of each proposal, after all granted changes are written.
        Each proposal comes with the topic id and index of its partition.

        Raises KafkaError STALE_BROKER_EPOCH if the broker has registered again since it sent the request.
        """
        async with self._turn:
            return await self._guarded(self._alter(broker, broker_epoch, proposals))

    async def reassign(
        self, wanted: Sequence[Wanted], *, may_change_replication_factor: bool = True
    ) -> list[KafkaError | None]:
        """Begin, replace or cancel the reassignment of partitions. Returns for each partition None if the reassignment
        is under way or done, otherwise the error with which the request was refused."""
        if self.questions is not None:
            await self._ask_before_replicas_are_taken_away(wanted)
        async with self._turn:
            return await self._guarded(self._reassign(wanted, may_change_replication_factor))

    async def shut_down(self, broker: int, broker_epoch: int) -> list[PartitionKey]:
        """Elect other leaders for the partitions of a broker that is about to stop. Returns the partitions that the
        broker still leads, although other brokers have a replica.

        Raises KafkaError BROKER_NOT_AVAILABLE, or STALE_BROKER_EPOCH if the broker has registered again since it sent
        the request.
        """
        async with self._turn:
            return await self._guarded(self._shut_down(broker, broker_epoch))

    async def elect(
        self, kind: ElectionType, keys: Collection[PartitionKey] | None
    ) -> dict[PartitionKey, KafkaError | None]:
        """Elect leaders of the partitions in `keys`; if `keys` is None, of every partition that needs an election.
        Returns for each partition None if a leader was elected, otherwise the error."""
        if kind is ElectionType.UNCLEAN and self.questions is not None:
            await self._ask_before_an_unclean_election(keys)
        async with self._turn:
            return await self._guarded(self._elect(kind, keys))

    async def balance(self, percentage: int) -> int:
        """Elect the preferred replica of each partition whose preferred leader leads too few partitions. A broker leads
        too few if other brokers lead more than `percentage` percent of the partitions whose preferred leader it is.
        Returns the number of elections.
        """
        async with self._turn:
            return await self._guarded(self._balance(percentage))

    async def _ask_before_an_unclean_election(self, keys: Collection[PartitionKey] | None) -> None:
        """Ask brokers for the missing log ends, so that the replica with the most complete log leads. The lock `_turn`
        (one change of the view at a time) is not held while the brokers are asked.
        """
        assert self.questions is not None
        async with self._turn:
            await self._guarded(self._look_for_brokers())
            asked: list[Question] = []
            for key in list(self.view.states if keys is None else keys):
                await self.pause()
                found = undecided(self.view, key, unclean=True)
                asked += [] if found is None else questions(self.view, key, found)
        for answers in await self.questions.ask(asked):
            self._noted(answers)

    async def _ask_before_replicas_are_taken_away(self, wanted: Sequence[Wanted]) -> None:
        """Ask the replicas that are in sync, and that the requested reassignments do not remove, whether their logs are
        open. The lock `_turn` (one change of the view at a time) is not held while the brokers are asked.
        """
        assert self.questions is not None
        asked: list[Question] = []
        async with self._turn:
            if self._must_read_all:
                await self._guarded(self._settle(()))
            for key, target in wanted:
                await self.pause()
                ask = staying_in_sync(self.view, key, target)
                asked += questions(self.view, key, Undecided(ask=ask)) if ask else []
        for answers in await self.questions.ask(asked):
            self._noted(answers)

    # --- the methods below must be called with the lock `_turn` (one change of the view at a time) acquired

    async def _alter(
        self, broker: int, broker_epoch: int, proposals: Sequence[tuple[bytes, int, Proposal]]
    ) -> list[Altered]:
        if self._must_read_all:
            await self._settle(())
        answers: dict[int, Altered] = {}
        pending = list(range(len(proposals)))
        for _ in range(MAX_ATTEMPTS):
            check_sender(self.view, broker, broker_epoch)
            brokers = self.view.brokers
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
                again |= await self._write(piece, brokers)
            for change in wanted:
                if change.key not in again:
                    answers[changes[change.key]] = self._after(change)
            pending = [index for key, index in changes.items() if key in again]
            # A refused write causes the brokers to be read again; if some brokers have registered again, the partitions
            # on these brokers are reconciled first. A reassignment may have waited for a replica that has just
            # joined the ISR.
            given_up = {change.key for change in wanted if change.state.leader == NO_LEADER}
            await self._settle(again | given_up | {key for key in changes if self._is_reassigned(key)})
            if not pending:
                return [answers[index] for index in range(len(proposals))]
        raise Unsettled("the metadata store refused the proposals in every attempt")

    async def _reassign(self, wanted: Sequence[Wanted], may_change_replication_factor: bool) -> list[KafkaError | None]:
        await self._look_for_brokers()  # read the brokers, because a broker of the target may have registered just now
        errors: list[KafkaError | None] = [None] * len(wanted)
        pending = list(range(len(wanted)))
        tried: dict[PartitionKey, ReplicaAssignment | None] = {}
        for _ in range(MAX_ATTEMPTS):
            brokers = self.view.brokers
            room = TopicRoom(self.view, self.pause)
            changes: dict[PartitionKey, int] = {}
            begun = []
            for index in pending:
                await self.pause()
                key, target = wanted[index]
                try:
                    if key in changes:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
                    # an earlier write of this request succeeded, but its reply was lost
                    is_done = key in tried and tried[key] == self.view.assignment(key)
                    change = None if is_done else self._begin(key, target, may_change_replication_factor)
                    if change is not None and change.assignment is not None:
                        await room.take(key, change.assignment)
                except KafkaError as error:
                    errors[index] = error.as_value()
                    continue
                changes[key] = index
                if change is not None:
                    begun.append(change)
                    tried[key] = change.assignment
            again: set[PartitionKey] = set()
            self._too_large.difference_update(changes)
            for piece in in_pieces(begun):
                again |= await self._write(piece, brokers)
            for key in self._too_large & changes.keys():
                message = "The topic's assignments do not fit into one write to the metadata store."
                errors[changes[key]] = KafkaError(ErrorCode.POLICY_VIOLATION, message)
            pending = sorted(changes[key] for key in again if key in changes)
            await self._settle({*again, *changes})  # end the reassignments whose targets are in sync
            if not pending:
                return errors
        raise Unsettled("the metadata store refused the reassignments in every attempt")

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
        # Read the brokers, because the view may lack a broker that has just registered.
        changed = set() if self._must_read_all else await reading.read_brokers(self._store, self.view)
        if self._must_read_all:
            await self._settle(())
        try:
            note_shutdown(self.view, broker, broker_epoch)
        except KafkaError:
            # The view already has the new registrations, so no later event would decide these partitions.
            await self._settle(self.view.keys_on(changed))
            raise
        await self._settle(self.view.keys_on({broker, *changed}))
        return sorted(key for key in self.view.keys_on({broker}) if is_left_to(self.view, broker, key))

    async def _elect(
        self, kind: ElectionType, keys: Collection[PartitionKey] | None
    ) -> dict[PartitionKey, KafkaError | None]:
        await self._look_for_brokers()  # the sender may know of a dead leader that this broker has not noticed
        outcomes: dict[PartitionKey, KafkaError | None] = {}
        pending = list(dict.fromkeys(self.view.states if keys is None else keys))
        tried: set[PartitionKey] = set()
        for _ in range(MAX_ATTEMPTS):
            brokers = self.view.brokers
            wanted, written = [], set[PartitionKey]()
            for key in pending:
                await self.pause()
                try:
                    wanted.append(requested_election(self.view, key, kind, self.controllership.epoch))
                    written.add(key)
                except KafkaError as error:
                    # an earlier write of this request succeeded, but its reply was lost
                    is_done = key in tried and error.code is ErrorCode.ELECTION_NOT_NEEDED
                    outcomes[key] = None if is_done else error.as_value()
            again: set[PartitionKey] = set()
            for piece in in_pieces(in_order(wanted)):
                again |= await self._write(piece, brokers)
            outcomes.update((key, None) for key in pending if key in written and key not in again)
            tried, pending = tried | written, [key for key in pending if key in written and key in again]
            await self._settle(again)
            if not pending:
                return outcomes
        raise Unsettled(f"the metadata store refused {len(pending)} elections in every attempt")

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
            decided = decide(self.view, key, proposal, self.controllership.epoch)
            if isinstance(decided, PartitionChange) and decided.state.leader == NO_LEADER:
                self.view.candidates.note(key, proposal.sender, OFFLINE)
            return decided
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                self.distrust()  # an earlier write took effect only after the view was read again
            return error.as_value()

    def _after(self, change: PartitionChange) -> Altered:
        if change.is_election:
            return KafkaError(ErrorCode.NEW_LEADER_ELECTED)
        known = self.view.states.get(change.key)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if known is None else known
