"""Makes this broker the controller if the cluster has none: watches and claims the controller role, runs a term as
controller, and resigns.

    controller           action of this broker
    none                 claim the role, after this broker has registered;
    this broker          run a term (`partitions.py`), and pass the events of the store's watches to the term;
    another broker       wait until the registration of that broker ends.

Only the store decides which broker is controller: the broker whose session owns the registration node. A broker whose
term is over may not have noticed this yet. Such a broker can do no harm: each of its writes checks the epoch of its
term, so the store refuses the write. A term also ends when the epoch is raised although this broker is still
controller. The epoch can rise in this way if an earlier claim of this broker, whose reply was lost, takes effect late.
The next term then begins with the raised epoch; the previous term can write nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from oncelog_broker.controller import reading
from oncelog_broker.controller.candidate_questions import AskedBrokers, CandidateQuestions
from oncelog_broker.controller.leadership import Controllership, claim_controllership, own_controllership
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.reconciler import Unsettled
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.controller.writer import Deposed
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.store import (
    MetadataError,
    MetadataStore,
    SessionState,
    StoreUnavailable,
    Unsubscribe,
)
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""Seconds to wait before a retry after the store has failed or refused a write."""


class Elector:
    """Claims the controller role for this broker, runs the terms, and resigns. Call `close` before the tasks of `host`
    are closed."""

    def __init__(
        self,
        store: MetadataStore,
        node_id: int,
        host: Host,
        unclean_by_static: bool,
        asked_brokers: AskedBrokers | None = None,
    ) -> None:
        """`unclean_by_static`: unclean.leader.election.enable in the broker's start-up settings. `asked_brokers` asks
        brokers for the ends of their logs; None means that elections ask no broker.
        """
        self._asked_brokers = asked_brokers
        self._store = store
        self._node_id = node_id
        self._host = host
        self._clock = host.clock
        self._tasks = host.tasks
        self._pause = host.slices.pauses().here
        self._unclean_by_default = partial(reading.read_unclean_default, store, node_id, unclean_by_static)
        self._term: PartitionController | None = None
        self._wake_up = asyncio.Event()
        self._brokers_are_stale = False
        self._epoch_is_stale = False
        self._stale_configs: set[str] = set()
        self._default_is_stale = False
        self._watches: list[Unsubscribe] = []
        self._at_work = asyncio.Lock()
        self._is_closed = False
        self.topics = TopicController(store, self.term)
        """Object that creates, changes and deletes topics while this broker is controller."""

    def term(self) -> PartitionController:
        """Return the object of this broker's present term as controller. Raises KafkaError NOT_CONTROLLER."""
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._term

    async def start(self) -> None:
        """Claim the controller role if there is no controller, and elect leaders for all partitions. After the claim,
        react to the store's watches.

        If the store's reply to the claim is lost, the term begins later, when this broker reads from the store that it
        was elected.
        """
        self._watches = [
            self._store.watch(paths.CONTROLLER, lambda _: self._wake_up.set()),
            self._store.watch(paths.CONTROLLER_EPOCH, self._on_epoch),
            self._store.watch(paths.BROKER_IDS, self._on_broker),
            self._store.watch(paths.TOPIC_CONFIGS, self._on_config),
            self._store.watch(paths.BROKER_CONFIGS, self._on_broker_config),
            self._store.watch_session(self._on_session),
        ]
        try:
            await self._follow()
        except (StoreUnavailable, Unsettled) as error:
            logger.warning("a change by the controller failed and will be tried again", extra={"reason": error})
            self._wake_up.set()
        self._tasks.supervise("elector", self._run)

    async def give_up(self) -> None:
        """Stop reacting to watches, and release the controller role now, because the session may last for some time
        yet."""
        async with self._at_work:
            self.close()
            try:
                standing = await self._store.exists(paths.CONTROLLER)
                if standing is not None and standing.ephemeral_owner == self._store.session_id:
                    await self._store.delete(paths.CONTROLLER, standing.version)
            except MetadataError as error:
                what = "resigning as controller failed; closing the session releases the role"
                logger.info(what, extra={"reason": error})

    def close(self) -> None:
        """Stop following the store's watches. The controller registration need not be deleted: the store deletes it
        when this broker's session ends.
        """
        self._is_closed = True
        for unsubscribe in self._watches:
            unsubscribe()
        self._watches.clear()
        self._end_term()

    def _on_epoch(self, path: str) -> None:
        self._epoch_is_stale = True
        self._wake_up.set()

    def _on_broker(self, path: str) -> None:
        self._brokers_are_stale = True
        self._wake_up.set()

    def _on_config(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent == paths.TOPIC_CONFIGS:
            self._stale_configs.add(name)
        elif self._term is not None:
            self._term.distrust()
        self._wake_up.set()

    def _on_broker_config(self, path: str) -> None:
        self._default_is_stale = True
        self._wake_up.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._resign("the session has expired")
        elif state is SessionState.CONNECTED:
            if self._term is not None:
                self._term.distrust()
            self._wake_up.set()

    def _resign(self, reason: str) -> None:
        if self._term is not None:
            epoch = self._term.controllership.epoch
            logger.info("this broker is no longer the controller", extra={"epoch": epoch, "reason": reason})
            self._end_term()

    def _end_term(self) -> None:
        if self._term is not None and self._term.questions is not None:
            self._term.questions.close()
        self._term = None

    async def _run(self) -> None:
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            try:
                await self._follow()
            except Deposed:
                self._resign("another broker has become controller")
                self._wake_up.set()
            except (StoreUnavailable, Unsettled) as error:
                logger.warning("a change by the controller failed and will be tried again", extra={"reason": error})
                await asyncio.sleep(RETRY_SECONDS)
                # After a lost session, the new connection to the store wakes this task.
                if self._store.session is not SessionState.LOST:
                    self._wake_up.set()
            except Exception:
                logger.exception("the controller failed; it reads all metadata again from the store")
                if self._term is not None:
                    self._term.distrust()
                await asyncio.sleep(RETRY_SECONDS)
                self._wake_up.set()

    async def _follow(self) -> None:
        """Read which broker has the controller role, and begin, continue or end this broker's term accordingly. Raises
        Deposed, StoreUnavailable, Unsettled."""
        async with self._at_work:
            if not self._is_closed:
                await self._follow_alone()

    async def _follow_alone(self) -> None:
        claimed: Controllership | None = None
        if self._epoch_is_stale:
            await self._look_at_epoch()
        standing = await self._store.exists(paths.CONTROLLER)
        if standing is None:
            self._resign("the registration is gone")
            if await self._is_registered():
                claimed = await claim_controllership(self._store, self._node_id, self._clock.now_ms())
        elif standing.ephemeral_owner != self._store.session_id:
            self._resign("another broker is controller")
        elif self._term is None:
            claimed = await own_controllership(self._store)
        if claimed is not None:
            await self._begin(claimed)
        elif self._term is not None:
            await self._work(self._term)

    async def _look_at_epoch(self) -> None:
        self._epoch_is_stale = False
        try:
            found = (await self._store.get_many([paths.CONTROLLER_EPOCH]))[0]
        except StoreUnavailable:
            self._epoch_is_stale = True
            raise
        if self._term is not None and (found is None or found[1].version != self._term.controllership.epoch_version):
            self._resign("the controller epoch was raised")

    async def _is_registered(self) -> bool:
        own = await self._store.exists(paths.broker_id(self._node_id))
        return own is not None and own.ephemeral_owner == self._store.session_id

    async def _begin(self, claimed: Controllership) -> None:
        logger.info("this broker is the controller", extra={"epoch": claimed.epoch})
        asked = self._asked_brokers
        questions = None if asked is None else CandidateQuestions(asked, self._host)
        term = PartitionController(self._store, claimed, self._unclean_by_default, self._pause, questions)
        term.on_trouble = self._wake_up.set
        self._term = term
        await self._work(term)

    async def _work(self, term: PartitionController) -> None:
        """Handle the watch events that arrived since the previous call."""
        must_begin, term.must_begin = term.must_begin, False
        brokers_are_stale, self._brokers_are_stale = self._brokers_are_stale, False
        configs, self._stale_configs = self._stale_configs, set()
        default_is_stale, self._default_is_stale = self._default_is_stale, False
        if term.must_read_all:
            await term.read_all()
        if brokers_are_stale:
            await term.brokers_changed()
        if default_is_stale:
            await term.default_changed()
        if configs:
            await term.configs_changed(configs)
        if must_begin:
            self._tasks.supervise("beginning of a term", partial(self._begin_work, term))

    async def _begin_work(self, term: PartitionController) -> None:
        """Finish interrupted deletions of topics, after everything has been read and partitions have leaders.
        Interrupted deletions are continued at the beginning of a term and after an outage of the store. After a store
        failure this broker retries the deletions; after a lost session the next controller continues them.
        """
        try:
            await self.topics.finish_deletions(term)
        except (KafkaError, StoreUnavailable, Deposed) as error:
            logger.warning("finishing the deletions of topics failed and will be tried again", extra={"reason": error})
            await asyncio.sleep(RETRY_SECONDS)
            term.distrust()
