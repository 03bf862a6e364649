"""Scenarios of the metadata store and the controller, step by step, in the simulated cluster: lost responses, and a
cluster that has too few brokers yet.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from tests.simulation.stage import REPLICAS, Stage, play

from oncelog import Admin, KafkaError
from oncelog.errors import RequestTimedOut
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.tree import Changes
from oncelog_protocol.errors import ErrorCode
from oncelog_simulation.workloads.wire import BUSY, Wire, code
from oncelog_simulation.workloads.workload import COMMON
from oncelog_testing.history.events import Place

TRANSACTIONS = "__transaction_state"
TIMEOUT_MS = 60_000


def test_c11_answers_about_the_controllers_writes_are_lost() -> None:
    """The responses about the creation of a topic, an election, an ISR change, a controller claim, and a deletion are
    lost. Each change is made once, nothing stays incomplete, and leader epochs increase by one.
    """

    async def script(stage: Stage) -> None:
        lost = LostAnswers(stage)
        lost.lose_next(paths.topic("lines"))
        await stage.topic("lines")
        assert stage.state("lines").leader_epoch == 0

        async with stage.writing(Place("lines")) as writing:
            await writing.until_more(5)
            leader, epoch = await stage.until_led("lines"), stage.state("lines").leader_epoch
            lost.lose_next(paths.partition_state("lines", 0))  # the write is an election
            stage.broker(leader).hold()
            stage.broker(leader).kill()
            new = await stage.until_led("lines", but_by=leader)
            assert stage.state("lines").leader_epoch == epoch + 1
            await writing.until_more(5)

            lost.lose_next(paths.partition_state("lines", 0))  # the write is that the broker joins the ISR
            stage.broker(leader).let_start()
            await stage.until_isr("lines", set(REPLICAS))
            (follower, *_) = stage.others(new)
            lost.lose_next(paths.partition_state("lines", 0))
            stage.broker(follower).hold()
            stage.broker(follower).kill()
            await stage.until(lambda: follower not in stage.state("lines").isr, "it has left the ISR")
            await writing.until_more(5)
            stage.broker(follower).let_start()
            await stage.until_isr("lines", set(REPLICAS))

            controller = stage.controller
            lost.lose_next(paths.CONTROLLER)
            stage.broker(controller).hold()
            stage.broker(controller).kill()
            await stage.until(lambda: stage.controller not in (-1, controller), "another controls")
            await stage.until_led("lines", but_by=controller)
            await writing.until_more(5)
            stage.broker(controller).let_start()
        await stage.until_isr("lines", set(REPLICAS))

        await stage.topic("passing")
        lost.lose_next(paths.topic("passing"))
        await stage.call("operator", partial(delete, stage, "passing"))
        del stage.notes.topics["passing"]
        await stage.until(lambda: stage.world.store.tree.node(paths.topic("passing")) is None, "the topic is deleted")
        assert lost.times == 6

    play(script, seconds=120.0)


class LostAnswers:
    """Drops all connections to the metadata store when a chosen node is written, before the response is sent."""

    def __init__(self, stage: Stage) -> None:
        self._store = stage.world.store
        self._loop = stage.world.loop
        self._path: str | None = None
        self.times = 0
        """How often a response was lost."""
        self._told = self._store.on_written
        self._store.on_written = self._on_written

    def lose_next(self, path: str) -> None:
        """Lose the response to the next write of the node or of a node below it."""
        self._path = path

    def _on_written(self, changes: Changes) -> None:
        if self._told is not None:
            self._told(changes)
        if self._path is not None and any(each.startswith(self._path) for each in changes):
            self._path = None
            self.times += 1
            self._loop.happen(self._loop.now, self._store.drop_connections, 1.0)


async def delete(stage: Stage, topic: str) -> None:
    async with Admin(stage.world.bootstrap_servers, **COMMON) as admin:
        try:
            await admin.delete_topics([topic])
        except RequestTimedOut:  # the outcome is unknown
            with suppress(KafkaError):
                await admin.delete_topics([topic])


def test_c26_internal_topics_wait_for_enough_brokers() -> None:
    """A transactional producer starts while only one broker of the cluster is running. The internal topic of
    transactions is created only when three brokers are running, with three replicas, because it would otherwise have
    too few replicas for ever.
    """

    async def script(stage: Stage) -> None:
        def is_there() -> bool:
            return stage.world.store.tree.node(paths.topic(TRANSACTIONS)) is not None

        def registered() -> int:
            return len(stage.world.store.tree.children(paths.BROKER_IDS))

        for number in (2, 3):
            stage.broker(number).hold()
            stage.broker(number).kill()
        await stage.until(lambda: registered() == 1, "one broker is left")

        async def start(wire: Wire) -> ErrorCode:
            told, _ = await wire.until_decided(partial(wire.init, "anna", TIMEOUT_MS), code, BUSY)
            return told

        starting = asyncio.create_task(stage.on_wire(start))
        for number in (2, 3):
            await asyncio.sleep(3.0)
            assert not is_there()
            assert not starting.done()
            stage.broker(number).let_start()
            await stage.until(lambda: registered() == number, f"{number} brokers are registered")  # noqa: B023
        assert await starting is ErrorCode.NONE
        states = [stage.state(TRANSACTIONS, index) for index in range(2)]
        for index, state in enumerate(states):
            await stage.until_led(TRANSACTIONS, index)
            assert set(state.isr) <= set(REPLICAS)
            await stage.until_isr(TRANSACTIONS, set(REPLICAS), index)

    play(script)
