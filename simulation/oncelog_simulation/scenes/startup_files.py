"""Scenes in which a broker is killed, and its next start depends on one file: a checkpoint that a truncation has
lowered, or the file of past batches beside a snapshot of producers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from oncelog.clock import now_ms
from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_broker.log.checkpoints import read_offset_checkpoint
from oncelog_simulation.disk import unnoticed
from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, Scene, scene
from oncelog_simulation.scenes.stage import Missed, Stage
from oncelog_simulation.storage import Directory
from oncelog_simulation.workloads.wire import V1_PRODUCE, Wire, code, one_record
from oncelog_testing.history.events import Place, Send

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
LOOK_SECONDS: Final = 0.0003
"""Virtual seconds between two looks whether a truncation has ended: less than the time until the next append."""
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
SNAPSHOT: Final = ".snapshot"
REMEMBERED: Final = 5
"""Number of a producer's newest batches of which a broker recognises copies (S8)."""


@scene(
    SCENES,
    "killed after a truncation",
    "a former leader dies after its truncation, when its log is still shorter than the last checkpoint said",
    settings={**FAST, "log.flush.offset.checkpoint.interval.ms": ("500",)},
    topic=SMALL_SEGMENTS,
)
async def killed_after_a_truncation(stage: Stage) -> bool:
    """The leader syncs records that nobody replicates, and its checkpoint says so. Clients are cut off before another
    broker leads, so that the log does not grow again before the leader dies.
    """
    random, place = stage.random, stage.place()
    leader = stage.leader(place)
    followers = stage.followers(place)
    await stage.lead_coordinators(followers[0])
    replica = stage.replica(leader, place)
    if replica is None:
        raise Missed("the leader has no replica")
    stage.cut(*stage.around(leader, [each.name for each in followers]))
    replicated = max(stage.end(each, place) for each in followers)
    await stage.until(lambda: _recovery_point(leader, place) > replicated, "a checkpoint of records of its own", 2.5)
    stage.cut(*((client, broker) for client in stage.world.clients for broker in stage.world.brokers))
    generation = replica.log.trimmer.generation
    stage.end_session(leader)
    await stage.until_led(place, but_by=leader)
    stage.mend(*stage.around(leader, [each.name for each in followers]))
    await stage.until(
        lambda: replica.log.trimmer.generation > generation and not replica.log.state.is_truncating,
        "the former leader truncates",
        look_seconds=LOOK_SECONDS,
    )
    leader.hold()
    leader.kill() if random.random() < 0.7 else leader.cut_power()
    leader.let_start()
    await stage.until_serving(leader)
    stage.world.network.mend_all()
    await stage.until_in_sync(place, leader)
    return True


def _recovery_point(machine: BrokerMachine, place: Place) -> int:
    """Return the recovery point of a log in the broker's checkpoint; 0 if the checkpoint does not name the log."""
    if machine.disk is None or not machine.is_running:
        return 0
    with unnoticed():
        found = read_offset_checkpoint(machine.disk, machine.directories[0] + RECOVERY_POINTS)
    return found.get((place.topic, place.index), 0)


@scene(
    SCENES,
    "copies after a kill",
    "a broker dies after a snapshot of producers, leads again, and gets copies of batches from before the snapshot",
    settings=FAST,
    topic={**SMALL_SEGMENTS, "segment.bytes": ("300", "600", "1500")},
)
async def copies_after_a_kill(stage: Stage) -> bool:
    """The broker must acknowledge each copy with the offset of the batch: the file of past batches beside the snapshot
    names the batches before the last one of each producer.
    """
    random, place, machine = stage.random, stage.place(), stage.random.choice(stage.brokers)
    await stage.lead(machine, place)
    copier = _Copier(stage, place)
    await copier.write(random.randint(2, REMEMBERED))
    await stage.until(lambda: _newest_snapshot(machine, place) > copier.end, "a snapshot after the batches", 5.0)
    machine.hold()
    machine.kill() if random.random() < 0.7 else machine.cut_power()
    machine.let_start()
    await stage.until_serving(machine)
    await stage.until_in_sync(place, machine)
    await stage.lead(machine, place)
    await copier.repeat()
    return True


def _newest_snapshot(machine: BrokerMachine, place: Place) -> int:
    """Return the offset of the newest snapshot of producers on the disk of a broker; -1 if there is none."""
    found = machine.storage.find(f"{machine.directories[0]}{place.topic}-{place.index}")
    names = found.entries if isinstance(found, Directory) else {}
    offsets = [int(name.removesuffix(SNAPSHOT)) for name in names if name.endswith(SNAPSHOT)]
    return max(offsets, default=-1)


class _Copier:
    """An idempotent producer that writes some batches, and sends all of them again later."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._stage = stage
        self._place = place
        self._name = f"copier/{stage.world.now:.3f}"
        self._written: list[tuple[Send, bytes]] = []

    @property
    def end(self) -> int:
        """The offset of the last batch."""
        return max(send.offset for send, _ in self._written)

    async def write(self, batches: int) -> None:
        """Write batches of one record each, one after the other. Raises Missed if one of them is not acknowledged."""
        await self._run(partial(self._write, batches))

    async def repeat(self) -> None:
        """Send each batch again, and complain if a copy is refused or has another offset. Raises Missed if no broker
        decides.
        """
        await self._run(self._repeat)

    async def _run(self, work: Callable[[Wire], Awaitable[None]]) -> None:
        async def call() -> None:
            async with Wire(self._stage.world.bootstrap_servers) as wire:
                await wire.follow([self._place.topic])
                await work(wire)

        try:
            await self._stage.world.client("copier").run(call)
        except (Killed, KafkaError, ConnectionFailed) as error:
            raise Missed(f"the copier is not served: {error}") from error

    async def _write(self, batches: int, wire: Wire) -> None:
        history = self._stage.notes.history
        _, writer = await wire.until_decided(wire.new_producer_id, code)
        for sequence in range(batches):
            value = f"{self._name}/{sequence}".encode()
            send = history.send(self._name, self._place, value)
            batch = one_record(value, writer, sequence, now_ms(), is_transactional=False)
            answer = await wire.until_decided(partial(wire.produce, self._place, batch, None, V1_PRODUCE), code)
            if answer.code:
                raise KafkaError(answer.code)
            history.acknowledged(send, answer.offset)
            self._written.append((send, batch))

    async def _repeat(self, wire: Wire) -> None:
        for send, batch in self._written:
            answer = await wire.until_decided(partial(wire.produce, self._place, batch, None, V1_PRODUCE), code)
            if answer.code:
                self._complain(f"a copy of {send.value!r} at {send.offset} was refused: {answer.code.name}")
            elif answer.offset != send.offset:
                self._complain(f"a copy of {send.value!r} at {send.offset} was acknowledged at {answer.offset}")

    def _complain(self, what: str) -> None:
        self._stage.notes.complain(self._stage.world, "scene", what)
