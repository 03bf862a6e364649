"""Asks brokers about their logs. Before an election, the controller asks for the log ends of the candidates and whether
these logs are open. Before a reassignment removes replicas in sync, the controller asks whether a remaining replica has
an open log.

`election.py` determines which log ends are missing. This module asks brokers for the missing log ends in the
background, while the controller does other work. The time that the controller waits for log ends is limited:

- If a registered broker does not report its log end within ANSWER_SECONDS, its log counts as the least complete log. A
  broker that hangs loses its session earlier, and is then not registered any more.
- Some replicas of the ISR may have lost records, returned, and become absent again. Such a replica may still have more
  records than the present replicas. A replica with an offline log may also have more records than the present replicas.
  The controller waits ABSENT_SECONDS for replicas that may have more records. After ABSENT_SECONDS the present replica
  with the most complete log becomes leader, and the controller logs an error.
- A replica whose log is offline is asked again every OFFLINE_SECONDS, as long as its partition has no leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from oncelog_broker.controller.candidates import UNKNOWN, Answers, LogEnd, Question
from oncelog_broker.controller.partition_decisions import awaited, is_led, questions
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.controller.writer import Deposed, shortened
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import StoreUnavailable
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.slices import Pause

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
"""Seconds that a registered broker may take to report its log ends; the broker may still be starting."""
RETRY_SECONDS: Final = 0.2
"""Seconds until a broker that was unreachable, or did not answer every question, is asked again."""
ABSENT_SECONDS: Final = 60.0
"""Seconds that an election waits for offline logs and for absent replicas, if every replica of the ISR may have lost
records."""
OFFLINE_SECONDS: Final = 10.0
"""Seconds until a broker with an offline log is asked again, while the partition has no leader."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two checks whether one of the other limits (ANSWER_SECONDS, ABSENT_SECONDS, OFFLINE_SECONDS) has
passed.
"""


class AskedBrokers(Protocol):
    """Asks the brokers of the cluster, including this broker, about their logs."""

    async def until_ready(self) -> None:
        """Wait until this broker can request log ends from other brokers, and answer questions about its own logs."""

    async def log_ends(
        self, broker: int, keys: Sequence[PartitionKey], timeout: float
    ) -> Mapping[PartitionKey, LogEnd]:
        """Ask a broker for the ends of its logs. Each answer is OFFLINE, UNKNOWN, or a log end. The result lacks
        partitions that the broker does not know yet. Raises PeerUnavailable."""


class Term(Protocol):
    """The methods of a controller's term that this module calls; `reconciler.Reconciler` implements this interface."""

    view: ClusterView
    undecided: set[PartitionKey]
    pause: Pause

    async def look_again(self, keys: Collection[PartitionKey]) -> None: ...

    async def note_log_ends(self, answers: Answers) -> None: ...


class CandidateQuestions:
    """Requests log ends from brokers during one term as controller. Call `close` at the end of the term."""

    def __init__(self, brokers: AskedBrokers, host: Host) -> None:
        self._brokers = brokers
        self._clock = host.clock
        self._tasks = host.tasks
        self._wake_up = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._under_way: set[Question] = set()
        self._absent_since: dict[PartitionKey, float] = {}
        self._offline_since: dict[PartitionKey, float] = {}
        self._told: set[PartitionKey] = set()
        """The partitions whose election waits, and for which this module has already logged an error."""

    def look_at(self, term: Term) -> None:
        """Start asking for the log ends that elections of partitions without a leader still need."""
        self._wake_up.set()
        if self._work is None or self._work.done():
            self._work = self._tasks.spawn("ask candidates", self._work_off(term), is_awaited=True)

    def close(self) -> None:
        """Stop asking, at the end of the term."""
        for task in (self._work, *self._asking):
            if task is not None:
                task.cancel()

    async def ask(self, asked: Collection[Question]) -> list[Answers]:
        """Request the log ends of these replicas from all their brokers in parallel; return the reported log ends."""
        by_broker = defaultdict(list)
        for question in asked:
            by_broker[question.broker].append(question)
        return await asyncio.gather(*map(self._ask_one, by_broker.values()))

    async def _work_off(self, term: Term) -> None:
        await self._brokers.until_ready()
        while term.undecided:
            self._wake_up.clear()
            try:
                await self._look(term)
            except (StoreUnavailable, Deposed) as error:
                logger.info("elections wait", extra={"reason": error})
            # an exception in one request must not stop the elections of other partitions
            except Exception:
                logger.exception("candidates could not be asked")
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake_up.wait()
            except TimeoutError:
                pass

    async def _look(self, term: Term) -> None:
        now, due, wanted = self._clock.monotonic(), [], list[Question]()
        waiting: list[PartitionKey] = []
        stuck: list[PartitionKey] = []
        for key in sorted(term.undecided):
            await term.pause()
            found = awaited(term.view, key)
            if found is None:
                self._is_decided(term, key)
                known = term.view.states.get(key)
                if known is not None and known.state.leader != NO_LEADER and not is_led(term.view, key):
                    stuck.append(key)
                continue
            wanted += questions(term.view, key, found)
            if found.absent:
                waiting.append(key)
                if now - self._absent_since.setdefault(key, now) >= ABSENT_SECONDS:
                    term.view.candidates.wait_no_longer(key)
                    due.append(key)
            if found.offline and now - self._offline_since.setdefault(key, now) >= OFFLINE_SECONDS:
                del self._offline_since[key]
                for broker in found.offline:
                    term.view.candidates.forget_answer(key, broker)
                wanted += questions(term.view, key, awaited(term.view, key) or found)
        if stuck:
            logger.warning(
                "partitions have no leader: the available in-sync replicas may have lost records, and the "
                "missing in-sync replicas may have all records. Start the brokers of the missing replicas, or "
                "accept the loss (oncelog leaders elect --unclean)",
                extra={"count": len(stuck), "partitions": _names(stuck)},
            )
        self._tell(waiting)
        by_broker = defaultdict(list)
        for question in [each for each in dict.fromkeys(wanted) if each not in self._under_way]:
            by_broker[question.broker].append(question)
        for asked in by_broker.values():
            self._under_way.update(asked)
            task = self._tasks.spawn("ask a candidate", self._ask_and_note(term, asked), is_awaited=True)
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        if due:
            logger.error(
                "replicas that may have more records are still missing or offline: the available replica with "
                "the most complete log becomes leader",
                extra={
                    "count": len(due),
                    "seconds": ABSENT_SECONDS,
                    "partitions": _names(due),
                },
            )
            await term.look_again(due)

    def _is_decided(self, term: Term, key: PartitionKey) -> None:
        term.undecided.discard(key)
        self._told.discard(key)
        self._absent_since.pop(key, None)
        self._offline_since.pop(key, None)

    def _tell(self, waiting: Sequence[PartitionKey]) -> None:
        new = [key for key in waiting if key not in self._told]
        self._told.update(new)
        if new:
            logger.warning(
                "partitions have no leader yet: all in-sync replicas may have lost records, and some replicas "
                "are missing or offline",
                extra={
                    "count": len(new),
                    "seconds": ABSENT_SECONDS,
                    "partitions": _names(new),
                },
            )

    async def _ask_and_note(self, term: Term, asked: Sequence[Question]) -> None:
        try:
            await term.note_log_ends(await self._ask_one(asked))
        except (StoreUnavailable, Deposed) as error:
            logger.info("elections wait", extra={"reason": error})
        # A broker whose request failed is asked again after RETRY_SECONDS.
        except Exception:
            logger.exception("a candidate could not be asked")
        finally:
            self._under_way.difference_update(asked)
            self._wake_up.set()

    async def _ask_one(self, asked: Sequence[Question]) -> Answers:
        """Ask one broker until it has answered all questions, or ANSWER_SECONDS are over."""
        broker, ends = asked[0].broker, dict[Question, LogEnd]()
        deadline = self._clock.monotonic() + ANSWER_SECONDS
        while (left := [question for question in asked if question not in ends]) and self._clock.monotonic() < deadline:
            try:
                timeout = max(RETRY_SECONDS, deadline - self._clock.monotonic())
                answered = await self._brokers.log_ends(broker, [question.key for question in left], timeout)
            except PeerUnavailable as error:
                logger.debug("a candidate was not asked", extra={"broker": broker, "reason": error})
                answered = {}
            ends.update((question, answered[question.key]) for question in left if question.key in answered)
            if len(ends) < len(asked):
                await asyncio.sleep(RETRY_SECONDS)
        if left:
            logger.warning(
                "a broker does not report the ends of its logs: elections count it as the least complete",
                extra={"broker": broker, "partitions": len(left), "seconds": ANSWER_SECONDS},
            )
        ends.update(dict.fromkeys(left, UNKNOWN))
        return Answers(broker, asked[0].broker_epoch, ends)


def _names(keys: Sequence[PartitionKey]) -> str:
    return shortened([f"{key.topic}-{key.partition}" for key in keys])
