"""A cluster whose processes wait at their fail points for the test; the victims are killed when the chosen process
reaches its fail point.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from elections import until_preferred_lead
from kill_matrix.questions import GO, Hit, Questions
from peer_network import PeerNetwork, Way
from recording_clients import Loop
from replicated_cluster import BROKERS, ReplicatedCluster

from cluster_matrix.cells import BROKER_POINTS, CLIENT, CLIENT_POINTS
from oncelog_broker.replication.peers import Purpose
from oncelog_protocol.messages.find_coordinator import CoordinatorType

COMPLETE = Hit("after", "complete-logged")
COMPLETE_SECONDS = 60.0
INTERNAL_TOPICS = ("__transaction_state", "__consumer_offsets")
MAX_NAMES = 1000
ALONE_SECONDS = 0.5
FETCHES = (Purpose.FETCH,)


class NotReached(AssertionError):
    """No process reached the fail point of the prepared kill."""


class Armed(NamedTuple):
    """A prepared kill: when the first of the processes `asked` reaches this fail point, all processes in `victims` are
    killed. With `come_back` the victims are restarted immediately.
    """

    hit: Hit
    asked: Collection[int]
    victims: Collection[int]
    come_back: bool
    is_alone: bool = False
    """The victims first continue for `ALONE_SECONDS`, while no other process gets new data from them, and are killed
    after that.
    """


def _from_others(brokers: Collection[int]) -> list[Way]:
    return [(other, node_id) for node_id in brokers for other in BROKERS if other != node_id]


class Stage:
    """The cluster in which cells are run; a context manager that starts and stops the brokers and their proxies."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.cluster = ReplicatedCluster(directory, zookeeper)
        self._questions = {
            asker: Questions(directory / f"at-{asker}.sock", partial(self._decide, asker))
            for asker in (CLIENT, *BROKERS)
        }
        for node_id in BROKERS:
            self.cluster.fail_points[node_id] = self._questions[node_id].specification(BROKER_POINTS)
        self._network = PeerNetwork(self.cluster.peer_ports)
        self._armed: Armed | None = None
        self._is_struck = threading.Event()
        self._complete = threading.Semaphore(0)
        """Counts the transactions whose end the coordinator has logged."""
        self._restart: Future[None] | None = None
        self._read_of_logs = dict.fromkeys(BROKERS, 0)

    @staticmethod
    def client_points(directory: Path) -> str:
        """Return the value of ONCELOG_FAIL_POINTS with which a client process of a stage in this directory must be
        started.
        """
        path = directory / f"at-{CLIENT}.sock"
        return ";".join(f"{point} = {when} ask {path}" for point in CLIENT_POINTS for when in ("before", "after"))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._loop = Loop()
            stack.callback(self._loop.close)
            for questions in self._questions.values():
                self._loop.run(questions.start())
                stack.callback(self._close, questions)
            self._hands = stack.enter_context(ThreadPoolExecutor(1))
            stack.enter_context(self._network)
            self.cluster.advertise_to_peers(self._network.ports)
            stack.enter_context(self.cluster)
            for kind in (CoordinatorType.TRANSACTION, CoordinatorType.GROUP):
                # find coordinators, because that creates the internal topics of transactions and groups
                self.cluster.coordinator("anybody", kind)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()
        self._stack.close()

    def _close(self, questions: Questions) -> None:
        self._loop.run(questions.close())

    def tidy(self) -> None:
        """Start all brokers, and distribute the coordinators among them."""
        self.disarm()
        self.cluster.mend()
        for topic in INTERNAL_TOPICS:
            until_preferred_lead(self.cluster, topic)

    def name_coordinated_by(self, node_id: int, prefix: str, kind: CoordinatorType) -> str:
        for number in range(MAX_NAMES):
            if self.cluster.coordinator(f"{prefix}-{number}", kind) == node_id:
                return f"{prefix}-{number}"
        raise AssertionError(f"broker {node_id} coordinates nothing")

    # --- striking

    def forget_ends(self) -> None:
        while self._complete.acquire(blocking=False):
            pass

    def until_complete(self) -> None:
        """Wait until the coordinator has logged the end of one more transaction."""
        assert self._complete.acquire(timeout=COMPLETE_SECONDS), "the end of the transaction is not logged"

    def arm(self, armed: Armed) -> None:
        self._is_struck.clear()
        self._armed = armed

    def until_struck(self, timeout: float) -> None:
        """Raises NotReached."""
        if not self._is_struck.wait(timeout):
            raise NotReached("the point was not reached")

    def disarm(self) -> None:
        """Cancel the prepared kill; return when every restarted process serves requests."""
        self._armed = None
        if self._restart is not None:
            self._restart.result()
            self._restart = None

    async def _decide(self, asker: int, hit: Hit) -> str:
        if hit == COMPLETE:
            self._complete.release()
        armed = self._armed
        if armed is not None and hit == armed.hit and asker in armed.asked:
            self._armed = None
            if armed.is_alone:
                await asyncio.to_thread(self._leave_alone, armed.victims)
                self._dying = asyncio.create_task(self._die_later(armed))
            else:
                await asyncio.to_thread(self._kill, armed)
        return GO

    async def _die_later(self, armed: Armed) -> None:
        await asyncio.sleep(ALONE_SECONDS)
        await asyncio.to_thread(self._kill, armed)

    def _leave_alone(self, brokers: Collection[int]) -> None:
        self._network.hold(*_from_others(brokers), purposes=FETCHES)

    def _kill(self, armed: Armed) -> None:
        self.cluster.kill(*armed.victims)
        if armed.is_alone:
            for node_id in armed.victims:
                self._network.lose(node_id)
            self._network.let_pass(*_from_others(armed.victims))
        if armed.come_back:
            self._restart = self._hands.submit(self.cluster.start, *armed.victims)
        self._is_struck.set()

    def complaints(self) -> list[str]:
        """Return the unexpected log lines of the brokers since the last call."""
        found = []
        for node_id, broker in self.cluster.brokers.items():
            with broker.log.open() as log:
                log.seek(self._read_of_logs[node_id])
                lines = log.read().splitlines()
                self._read_of_logs[node_id] = log.tell()
            found += [f"broker {node_id}: {line}" for line in lines if "Traceback" in line or "Z error " in line]
        return found
