"""Changes the states of partitions as `partition_decisions.py` decides. Events are handled one at a time. For each
event, changes are decided and written until no further change is necessary.

If the store was unreachable and the outcome of a write is unknown, the controller's view of the cluster is no longer
trusted. A view that is not trusted is read again completely before the next decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from heapq import merge
from typing import Final, TypeVar

from oncelog_broker.controller import reading
from oncelog_broker.controller.candidate_questions import CandidateQuestions
from oncelog_broker.controller.candidates import Answers
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.leadership import Controllership
from oncelog_broker.controller.partition_decisions import PartitionChange, awaited, is_led, wanted_change, writing_order
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.controller.writer import Deposed, Refused, StateWriter, in_pieces
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import PARTITIONS_PER_STEP
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import ConnectionLost, MetadataStore, RequestTooLarge
from oncelog_broker.runtime.slices import Pause, no_pause
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SORTED_AT_ONCE: Final = 500
"""The number of changes that are sorted between two pauses, which takes about a millisecond."""
MAX_ATTEMPTS: Final = 20
"""Maximum number of consecutive refused writes for the same partitions. Each refusal means that a node of the store has
changed since it was read."""


class Unsettled(Exception):
    """Writes for the same partitions were refused MAX_ATTEMPTS times in a row."""


async def _never() -> bool:
    return False


class Reconciler:
    """Handles the events (broker changes, topic changes, reported log ends) of one term as controller. The subclass
    `partitions.PartitionController` handles the requests of other brokers and of clients."""

    def __init__(
        self,
        store: MetadataStore,
        controllership: Controllership,
        unclean_by_default: Callable[[], Awaitable[bool]] = _never,
        pause: Pause = no_pause,
        questions: CandidateQuestions | None = None,
    ) -> None:
        """`questions` asks brokers for the log ends that elections need; None means that elections use no log ends."""
        self.controllership = controllership
        self.view = ClusterView()
        self.questions = questions
        self.undecided: set[PartitionKey] = set()
        """Partitions without a leader whose election waits for answers of brokers or for a time limit. The set also has
        partitions whose reassignment waits until a replica of the target reports that its log is open.
        """
        self._store = store
        self._writer = StateWriter(store, controllership, pause)
        self._unclean_by_default = unclean_by_default
        self.pause = pause
        self._turn = asyncio.Lock()
        self._too_large: set[PartitionKey] = set()
        """Partitions with a change that was too large for one write."""
        self._must_read_all = True
        self._has_missed = False
        """Whether an event may have been missed since the present reading of the entire view began."""
        self.must_begin = True
        """Whether the work that is due at the beginning of a term must still be done, or done again. This flag is
        separate from `must_read_all`, because any request that reads the view again resets `must_read_all`.
        """
        self.on_trouble: Callable[[], None] = lambda: None
        """Function that is called when the view must be read again, or when this term is over."""

    @property
    def must_read_all(self) -> bool:
        """Whether the view may be outdated and must be read again before the next decision."""
        return self._must_read_all

    def distrust(self) -> None:
        """Mark the view as not trusted, because an event may have been missed. Everything is read again before the next
        decision.
        """
        self._must_read_all = self._has_missed = self.must_begin = True
        self.on_trouble()

    # --- handlers of events: each handler returns after the resulting changes are written, and raises Deposed,
    # StoreUnavailable or Unsettled

    async def read_all(self) -> None:
        """Read everything: at the beginning of a term, and after an outage of the store."""
        async with self._turn:
            self._must_read_all = True
            await self._guarded(self._settle(()))

    async def current_view(self) -> ClusterView:
        """Return the controller's view of the cluster (partitions, topics and brokers in the store). A view that is not
        trusted is read again before this method returns it.
        """
        if self._must_read_all:
            async with self._turn:
                await self._guarded(self._settle(()))
        return self.view

    async def brokers_changed(self) -> None:
        """Handle a change of brokers: brokers registered, left, or registered again."""
        async with self._turn:
            await self._guarded(self._brokers_changed())

    async def topics_changed(self, names: Collection[str]) -> None:
        """Handle a change of these topics: they were created or deleted, or have new partitions."""
        async with self._turn:
            await self._guarded(self._topics_changed(names))

    async def make_topic(self, name: str, write: Callable[[], Awaitable[None]]) -> None:
        """Create a topic by calling `write`, whose errors are raised. The lock `_turn` is held during the write, so no
        decision about an earlier topic with the same name can still be waiting to be written. A waiting decision about
        the earlier topic could be written into the new topic, because znode versions restart at 0 when a topic is
        re-created.
        """
        async with self._turn:
            await write()
            await self._guarded(self._topics_changed((name,)))

    async def deletion_began(self, name: str, topic_id: bytes | None) -> None:
        """Handle a new deletion mark of a topic. The deletion is also noted in the view, because a read of the view
        that is under way may have read the marks before this mark was set.
        """
        async with self._turn:
            known = self.view.topics.get(name)
            if known is not None and known.topic_id == topic_id:
                self.view.doomed.add(name)

    async def configs_changed(self, names: Collection[str]) -> None:
        """Handle a change of the settings of these topics."""
        async with self._turn:
            await self._guarded(self._configs_changed(names))

    async def default_changed(self) -> None:
        """Handle a change of the settings of brokers, which may include the default of unclean.leader.election.enable
        for topics.
        """
        async with self._turn:
            await self._guarded(self._default_changed())

    async def look_again(self, keys: Collection[PartitionKey]) -> None:
        """Decide these partitions again, although the cluster has not changed, for example because a time limit has
        passed."""
        async with self._turn:
            await self._guarded(self._settle(keys))

    async def note_log_ends(self, answers: Answers) -> None:
        """Note the log ends that a broker has reported, and write the elections that follow."""
        async with self._turn:
            await self._guarded(self._settle(self._noted(answers)))

    # --- the methods below must be called with the lock `_turn` (one change of the view at a time) acquired

    def _noted(self, answers: Answers) -> list[PartitionKey]:
        """Store the reported log ends that are still valid: the broker has the same registration, and the partition's
        state has not changed since the request. Returns the partitions whose log ends were stored.
        """
        registered = self.view.live.get(answers.broker)
        if registered is None or registered.epoch != answers.broker_epoch:
            return []
        noted = []
        for question, end in answers.ends.items():
            known = self.view.states.get(question.key)
            if known is not None and known.version == question.version:
                self.view.candidates.note(question.key, answers.broker, end)
                noted.append(question.key)
        return noted

    async def _guarded(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except KafkaError:
            raise
        except Deposed:
            self.on_trouble()
            raise
        except Exception:  # otherwise partitions that were read but not reconciled would never be checked again
            self.distrust()
            raise

    async def _brokers_changed(self) -> None:
        if self._must_read_all:
            return await self._settle(())
        changed = await reading.read_brokers(self._store, self.view)
        return await self._settle(self.view.keys_on(changed))

    async def _look_for_brokers(self) -> None:
        """Update the registrations in the view. The sender of a request may know newer registrations, because it may
        have read them at another server of the store.
        """
        await self._store.sync()
        await self._brokers_changed()

    async def _topics_changed(self, names: Collection[str]) -> None:
        if not self._must_read_all:
            await reading.read_topics(self._store, self.view, names, self.pause)
        await self._settle(self.view.keys_of(names))

    async def _configs_changed(self, names: Collection[str]) -> None:
        changed: Collection[str] = ()
        if not self._must_read_all:
            changed = await reading.read_configs(self._store, self.view, names)
        await self._settle(self.view.keys_of(changed))

    async def _default_changed(self) -> None:
        if self._must_read_all:
            return await self._settle(())
        before, self.view.unclean_by_default = self.view.unclean_by_default, await self._unclean_by_default()
        return await self._settle(() if self.view.unclean_by_default == before else self.view.keys())

    async def _settle(self, keys: Iterable[PartitionKey]) -> None:
        """Write the wanted changes of these partitions, until no change is wanted."""
        pending = set(keys) if not self._must_read_all else await self._read_all()
        for _ in range(MAX_ATTEMPTS):
            if not pending:
                break
            refused: set[PartitionKey] = set()
            brokers = self.view.brokers
            wanted = await self._wanted(pending)
            for piece in in_pieces(wanted):
                refused |= await self._write(piece, brokers)
            # A reassignment may have waited for a change that was just written, such as a broker leaving an ISR. If the
            # last step of a reassignment was written while the partition had no leader, an election may follow.
            pending = refused.union(
                change.key for change in wanted if change.assignment is not None or self._is_reassigned(change.key)
            )
        else:
            raise Unsettled(f"{len(pending)} partitions changed in each of {MAX_ATTEMPTS} attempts")
        if self.undecided and self.questions is not None:
            self.questions.look_at(self)

    async def _read_all(self) -> set[PartitionKey]:
        before, self._has_missed = self.view.brokers, False
        self.view = await reading.read_view(self._store, await self._unclean_by_default(), self.pause)
        self.view.keep_stopping(before)
        self.view.candidates.is_asked_for = self.questions is not None
        self._must_read_all = self._has_missed
        found = set()
        for number, key in enumerate(self.view.keys()):
            found.add(key)
            if number % PARTITIONS_PER_STEP == 0:
                await self.pause()
        return found

    async def _wanted(self, keys: Iterable[PartitionKey]) -> Sequence[PartitionChange]:
        """Return the results of `partition_decisions.wanted_change` for these partitions, computed with pauses."""
        changes = []
        for key in keys:
            await self.pause()
            change = wanted_change(self.view, key, self.controllership.epoch)
            if change is not None:
                changes.append(change)
            is_unled = change is None or change.state.leader == NO_LEADER
            if is_unled and self.questions is not None and key in self.view.states:
                must_confirm = self._is_reassigned(key) and awaited(self.view, key) is not None
                if must_confirm or not is_led(self.view, key):
                    self.undecided.add(key)
        return await self._in_order(changes)

    async def _in_order(self, changes: Sequence[PartitionChange]) -> Sequence[PartitionChange]:
        """Return the changes in the order of writing, sorted with pauses, because there may be 100,000."""
        parts = []
        for begin in range(0, len(changes), SORTED_AT_ONCE):
            parts.append(sorted(changes[begin : begin + SORTED_AT_ONCE], key=writing_order))
            await self.pause()
        if len(parts) <= 1:
            return parts[0] if parts else []
        merged = []
        for number, change in enumerate(merge(*parts, key=writing_order)):
            merged.append(change)
            if number % SORTED_AT_ONCE == 0:
                await self.pause()
        return merged

    async def _write(self, piece: Sequence[PartitionChange], brokers: Mapping[int, KnownBroker]) -> set[PartitionKey]:
        """Write the changes in `piece`, which fit into one write of the store. Returns the partitions to decide again;
        empty if every change was written. `brokers`: the known brokers that the decisions used (`StateWriter.write`).
        """
        keys = {change.key for change in piece}
        topics = {key.topic for key in keys}
        try:
            await self._writer.write(self.view, piece, brokers)
        except RequestTooLarge as error:
            return await self._write_less(piece, brokers, error)
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

    async def _write_less(
        self, piece: Sequence[PartitionChange], brokers: Mapping[int, KnownBroker], error: RequestTooLarge
    ) -> set[PartitionKey]:
        """Write a piece (partition changes for one write of the store) that turned out too large for one write, by
        splitting the piece into halves. A single change that is too large is logged and not written, since it would
        never fit."""
        if len(piece) > 1:
            middle = len(piece) // 2
            again = await self._write(piece[:middle], brokers)
            return again | await self._write(piece[middle:], brokers)
        key = piece[0].key
        if key not in self._too_large:
            logger.error(
                "partition not changed: the write is too large for the metadata store. Create the topic with "
                "fewer partitions, or reassign fewer partitions in one request",
                extra={"partition": f"{key.topic}-{key.partition}", "reason": error},
            )
        self._too_large.add(key)
        return set()

    def _is_reassigned(self, key: PartitionKey) -> bool:
        assignment = self.view.assignment(key)
        return assignment is not None and assignment.is_reassigned
