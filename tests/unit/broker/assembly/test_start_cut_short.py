"""A startup that fails at any point, or is cancelled, closes all that it had opened, and the next startup works."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncelog_broker.broker import Broker
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.in_memory import MemorySession, MemoryTree
from oncelog_broker.metadata.stores.store import Operation, SessionKey
from oncelog_broker.metadata.stores.tree_store import Outcome
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.network import Listening, RealNetwork

MOST_CALLS, MOST_TURNS = 500, 500
"""Upper bounds for the store calls and loop turns of one startup; a test that reaches a bound fails, because no startup
succeeded.
"""
JOB_TURNS = 3
"""A job given to a thread is done after this many turns of the event loop."""


class Broken(Exception):
    """An exception that no code expects."""


class BreakingTree(MemoryTree):
    """Raises Broken at one call of its sessions, counted from 1; 0 means never."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks_at = 0
        self.calls = 0
        self.opened: list[BreakingSession] = []

    async def open(self, home: str, clock: Clock) -> MemorySession:
        self.opened.append(BreakingSession(self))
        return self.opened[-1]

    def call(self) -> None:
        self.calls += 1
        if self.calls == self.breaks_at:
            raise Broken

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def watched(self) -> set[str]:
        """The paths that sessions still watch."""
        return {root for session in self.opened for root in session._watches.roots()}


class BreakingSession(MemorySession):
    _shared: BreakingTree

    def _require_session(self) -> None:
        super()._require_session()
        self._shared.call()

    def _submit(self, operations: tuple[Operation, ...]) -> asyncio.Future[Outcome]:
        self._shared.call()
        return super()._submit(operations)

    async def end_session(self, key: SessionKey) -> None:
        self._shared.call()
        await super().end_session(key)


class CountedNetwork(RealNetwork):
    """Counts the bound sockets."""

    def __init__(self) -> None:
        self.bound = 0

    async def listen(self, *arguments: Any, **named: Any) -> Listening:
        listening = await super().listen(*arguments, **named)
        self.bound += 1
        close = listening.close

        async def closed() -> None:
            self.bound -= 1
            await close()

        listening.close = closed  # type: ignore[method-assign]
        return listening


class Place:
    """The data directory and the metadata store with which one broker starts repeatedly."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tree = BreakingTree()
        self.network = CountedNetwork()
        self.threads = threading.active_count()

    def broker(self) -> Broker:
        settings = {"log.dirs": str(self.directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
        return Broker(BrokerConfig.of(settings), store=self.tree, network=self.network)

    def check_is_clean(self, after: object) -> None:
        """Check that the broker left no sockets, sessions, watches or tasks, but only its data."""
        assert self.network.bound == 0, after
        assert self.tree.sessions == 0, after
        assert self.tree.watched.isdisjoint({paths.BROKERS, paths.CONTROLLER}), after
        assert asyncio.all_tasks() == {asyncio.current_task()}, after

    async def check_starts(self) -> None:
        self.tree.breaks_at = 0
        broker = self.broker()
        await broker.start()
        assert self.network.bound == 1
        await broker.stop()
        self.check_is_clean("a start that nothing disturbs")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("is_first", [True, False], ids=["the first start", "a later start"])
async def test_a_start_that_fails_at_any_call_of_its_store_closes_what_it_had_begun(
    place: Place, is_first: bool
) -> None:
    failed = 0
    if not is_first:
        await place.check_starts()
    for number in range(1, MOST_CALLS):
        place.tree.breaks_at, place.tree.calls = number, 0
        broker = place.broker()
        try:
            await broker.start()
        except Broken:
            failed += 1
        await broker.stop()  # an exception in a background task is only logged, and the broker keeps serving
        place.check_is_clean(number)
        if place.tree.calls < number:
            break
    else:
        raise AssertionError("no start was left alone")
    assert failed > 10
    await place.check_starts()


@pytest.fixture
async def counted_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run thread jobs in the loop, JOB_TURNS turns after they were submitted, so that every startup takes the same
    number of turns. These jobs cannot be cancelled, just as a job that runs in a thread cannot.
    """
    loop = asyncio.get_running_loop()

    def run_in_executor(_executor: None, job: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        done = loop.create_future()

        def run(turns: int) -> None:
            if turns:
                loop.call_soon(run, turns - 1)
                return
            try:
                result = job(*arguments)
            except BaseException as error:
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        run(JOB_TURNS)
        return done

    monkeypatch.setattr(loop, "run_in_executor", run_in_executor)


@pytest.mark.usefixtures("counted_turns")
async def test_a_start_that_is_cancelled_closes_what_it_had_begun(place: Place) -> None:
    cancelled = 0
    for turns in range(MOST_TURNS):
        broker = place.broker()
        starting = asyncio.ensure_future(broker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if starting.done():
            starting.result()
            await broker.stop()
            break
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        cancelled += starting.cancelled()
        place.check_is_clean(turns)
    else:
        raise AssertionError("no start was left alone")
    assert cancelled > 10
    await place.check_starts()


@pytest.mark.parametrize(
    "broken",
    [
        "oncelog_broker.starting.data_start.DataStart.note_seen",
        "oncelog_broker.log.directories.log_closing.LogClosing._close_all",
    ],
)
async def test_a_stop_that_cannot_write_unlocks_the_directories(
    place: Place, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    broker = place.broker()
    await broker.start()

    def breaks(*_: object) -> None:
        raise OSError(errno.EIO, "no such luck")

    with monkeypatch.context() as patch:
        patch.setattr(broken, breaks)
        await broker.stop()
    await place.check_starts()


async def test_notes_of_two_threads_are_written_one_after_the_other(place: Place) -> None:
    """The thread of the cancelled startup may still write the file with the broker's incarnation while the cleanup
    writes the same file.
    """
    broker = place.broker()
    await broker.start()
    data = broker.parts.storage.data

    def note_often() -> None:
        for _ in range(100):
            data._note(lambda note: note)

    await asyncio.gather(asyncio.to_thread(note_often), asyncio.to_thread(note_often))
    await broker.stop()
    await place.check_starts()
