"""A transactional producer for scenarios, which sends each request as the test says."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.simulation.stage import Stage

from oncelog.clock import now_ms
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.wire import BUSY, V1_END, V1_PRODUCE, V2_END, V2_PRODUCE, Wire, code, one_record
from oncelog_testing.history.events import End, Place, Transaction

NAME: Final = "anna"
LONG_MS: Final = 600_000
SOON_SECONDS: Final = 2.0
"""The last stable offset must advance within this time when nothing blocks it; a timeout would take far longer."""


class Transactional:
    """A transactional producer that sends its requests as the test says; each record has its entry in the history."""

    def __init__(self, stage: Stage, wire: Wire, *, is_v2: bool) -> None:
        self._stage = stage
        self._wire = wire
        self._is_v2 = is_v2
        self._sequences: dict[Place, int] = {}
        self._values = 0
        self.producer = ProducerIdAndEpoch(-1, -1)
        self.transaction: Transaction | None = None

    async def take_over(self, *, is_two_phase: bool = False) -> None:
        """Get a new epoch, and begin a transaction; with `is_two_phase` it has no timeout (KIP-939)."""
        init = partial(self._wire.init, NAME, LONG_MS, is_two_phase=is_two_phase)
        told, self.producer = await self._wire.until_decided(init, code, BUSY)
        assert told is ErrorCode.NONE
        self.begin_next()

    def begin_next(self) -> None:
        """Begin the next transaction, with the epoch that the producer has. With transactions V2, it is a new one."""
        self._sequences.clear()
        self.transaction = self._stage.history.transaction(f"{NAME}/{self.producer.epoch}")

    async def add(self, place: Place) -> ErrorCode:
        """Add a partition, as clients before transactions V2 do; the request is sent once."""
        return await self._wire.add(NAME, self.producer, place)

    async def write(self, place: Place) -> None:
        """Write a record, which must be accepted."""
        self._values += 1
        value = f"{NAME}/{self.producer.epoch}/{self._values}".encode()
        send = self._stage.history.send(f"{NAME}/{self.producer.epoch}", place, value, self.transaction)
        sequence = self._sequences.get(place, 0)
        batch = one_record(value, self.producer, sequence, now_ms(), is_transactional=True)
        version = V2_PRODUCE if self._is_v2 else V1_PRODUCE
        answer = await self._wire.until_decided(partial(self._wire.produce, place, batch, NAME, version), code, BUSY)
        assert answer.code is ErrorCode.NONE
        self._stage.history.acknowledged(send, answer.offset)
        self._sequences[place] = sequence + 1

    async def begin(self, place: Place) -> None:
        """Take over, and write a first record."""
        await self.take_over()
        if not self._is_v2:
            assert await self._wire.until_decided(partial(self.add, place), code, BUSY) is ErrorCode.NONE
        await self.write(place)

    async def end(self, *, commits: bool) -> ErrorCode:
        """End the transaction, and note how it has ended."""
        version = V2_END if self._is_v2 else V1_END
        ask = partial(self._wire.end, NAME, self.producer, commits=commits, version=version)
        told, self.producer = await self._wire.until_decided(ask, code, BUSY)
        assert self.transaction is not None
        self._stage.history.ended(self.transaction, End.COMMITTED if commits and not told else End.ABORTED)
        return told


async def until_stable(stage: Stage, place: Place) -> None:
    """Wait until no transaction is open in the partition."""
    replica = stage.replica(await stage.until_led(*place), *place)
    assert replica is not None
    await stage.until(
        lambda: replica.last_stable_offset == replica.log.log_end_offset, f"{place} is stable", SOON_SECONDS
    )
