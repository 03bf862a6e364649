"""Whether this broker is the controller: watches, claims, works through a term, resigns.

    no controller      claim, once we are registered ourselves: others must be able to find us
    we are             a term (`partitions.py`), which this one tells what the watches say
    another one is     wait until its registration goes

Who is controller is asked of the store and of nobody else: our session owns the registration, or it does not. A term
that does not know yet that it is over can do no harm: each of its writes carries the fence of its epoch. It is over,
too, when the epoch is raised and the registration stays ours: a claim whose reply was lost may raise it after we have
read it. Then the next term begins with the epoch as it is; the one before could write nothing more.
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
from oncelog_broker.controller.settling import Unsettled
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
"""The wait after the store has failed or refused a write."""


class Elector:
    """Claims, holds and resigns the controller role for this broker. Call `close` before closing its tasks."""

    def __init__(
        self,
        store: MetadataStore,
        node_id: int,
        host: Host,
        unclean_by_static: bool,
        asked_brokers: AskedBrokers | None = None,
    ) -> None:
        """`unclean_by_static`: unclean.leader.election.enable, as the broker was started. `asked_brokers`: how an
        election asks brokers for the ends of their logs; None: elections do not ask."""
        self._asked_brokers = asked_brokers
        self._store = store
        self._node_id = node_id
        self._host = host
        self._clock = host.clock
        self._tasks = host.tasks
        self._pause = host.slices.pauses().here
        self._unclean_by_default = partial(reading.read_unclean_default, store, node_id, unclean_by_static)
        self._term: PartitionController | None = None
        self._stirred = asyncio.Event()
        self._brokers_are_stale = False
        self._epoch_is_stale = False
        self._stale_configs: set[str] = set()
        self._default_is_stale = False
        self._watches: list[Unsubscribe] = []
        self._at_work = asyncio.Lock()
        self._is_closed = False
        self.topics = TopicController(store, self.term)
        """The work on topics, which this broker does while it is controller."""

    def term(self) -> PartitionController:
        """Our term as controller. Raises KafkaError NOT_CONTROLLER."""
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._term

    async def start(self) -> None:
        """Claim if there is no controller, then bring all partitions online; follow from there.

        Where the store's answer is lost, that comes later: whoever is elected finds out from the store.
        """
        self._watches = [
            self._store.watch(paths.CONTROLLER, lambda _: self._stirred.set()),
            self._store.watch(paths.CONTROLLER_EPOCH, self._on_epoch),
            self._store.watch(paths.BROKER_IDS, self._on_broker),
            self._store.watch(paths.TOPIC_CONFIGS, self._on_config),
            self._store.watch(paths.BROKER_CONFIGS, self._on_broker_config),
            self._store.watch_session(self._on_session),
        ]
        try:
            await self._follow()
        except (StoreUnavailable, Unsettled) as error:
            logger.warning("the controller tries again", extra={"reason": error})
            self._stirred.set()
        self._tasks.supervise("elector", self._run)

    async def give_up(self) -> None:
        """Follow no more, and let another broker take the part now: the session may last for a while yet."""
        async with self._at_work:
            self.close()
            try:
                standing = await self._store.exists(paths.CONTROLLER)
                if standing is not None and standing.ephemeral_owner == self._store.session_id:
                    await self._store.delete(paths.CONTROLLER, standing.version)
            except MetadataError as error:
                logger.info("the part of controller goes with the session", extra={"reason": error})

    def close(self) -> None:
        """Follow no more. The registration goes with the session."""
        self._is_closed = True
        for unsubscribe in self._watches:
            unsubscribe()
        self._watches.clear()
        self._end_term()

    def _on_epoch(self, path: str) -> None:
        self._epoch_is_stale = True
        self._stirred.set()

    def _on_broker(self, path: str) -> None:
        self._brokers_are_stale = True
        self._stirred.set()

    def _on_config(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent == paths.TOPIC_CONFIGS:
            self._stale_configs.add(name)
        elif self._term is not None:
            self._term.distrust()
        self._stirred.set()

    def _on_broker_config(self, path: str) -> None:
        self._default_is_stale = True
        self._stirred.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._resign("the session is over")
        elif state is SessionState.CONNECTED:
            if self._term is not None:
                self._term.distrust()
            self._stirred.set()

    def _resign(self, reason: str) -> None:
        if self._term is not None:
            epoch = self._term.controllership.epoch
            logger.info("no longer controller", extra={"epoch": epoch, "reason": reason})
            self._end_term()

    def _end_term(self) -> None:
        if self._term is not None and self._term.questions is not None:
            self._term.questions.close()
        self._term = None

    async def _run(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            try:
                await self._follow()
            except Deposed:
                self._resign("another broker has become controller")
                self._stirred.set()
            except (StoreUnavailable, Unsettled) as error:
                logger.warning("the controller tries again", extra={"reason": error})
                await asyncio.sleep(RETRY_SECONDS)
                if self._store.session is not SessionState.LOST:  # else its return will stir us
                    self._stirred.set()
            except Exception:
                logger.exception("the controller failed, and begins anew")
                if self._term is not None:
                    self._term.distrust()
                await asyncio.sleep(RETRY_SECONDS)
                self._stirred.set()

    async def _follow(self) -> None:
        """Do what is to be done as things stand. Raises Deposed, StoreUnavailable, Unsettled."""
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
        logger.info("controller", extra={"epoch": claimed.epoch})
        asked = self._asked_brokers
        questions = None if asked is None else CandidateQuestions(asked, self._host)
        term = PartitionController(self._store, claimed, self._unclean_by_default, self._pause, questions)
        term.on_trouble = self._stirred.set
        self._term = term
        await self._work(term)

    async def _work(self, term: PartitionController) -> None:
        """What the watches have said since the last time."""
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
        """Finish deletions, when everything has been read and all partitions have their leaders: at the beginning of a
        term, and after a time without the store. Where the store fails the work is repeated when it is back; after a
        lost session the next controller does it."""
        try:
            await self.topics.finish_deletions(term)
        except (KafkaError, StoreUnavailable, Deposed) as error:
            logger.warning("the work of a term is begun again", extra={"reason": error})
            await asyncio.sleep(RETRY_SECONDS)
            term.distrust()
