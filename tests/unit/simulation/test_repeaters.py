"""Repeaters notice that the copy of an old batch is a success before the batch is replicated."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.repeaters import REMEMBERED, Repeater, Round


@pytest.mark.parametrize(
    ("code", "exposed", "is_wrong"),
    [
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 0, True),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 1, False),
        (ErrorCode.REQUEST_TIMED_OUT, 0, False),
    ],
)
def test_an_old_copy_may_be_a_success_only_when_its_batch_is_replicated(
    code: ErrorCode, exposed: int, is_wrong: bool
) -> None:
    """The batch is at offset 0, and its own acknowledgement comes later."""
    told: list[bytes] = []

    class Wire:
        async def produce(self, place: object, batch: bytes, *_: object) -> object:
            is_old_copy = batch in told and batch == told[0] and len(told) >= REMEMBERED + 1
            told.append(batch)
            if is_old_copy:
                return SimpleNamespace(code=code, offset=-1)
            offset = told.index(batch)
            await asyncio.sleep(0.01)
            return SimpleNamespace(code=ErrorCode.NONE, offset=offset)

    class Draws(Random):
        def randint(self, a: int, b: int) -> int:
            return REMEMBERED + 1

    notes = Notes()
    notes.history.exposed = lambda place: exposed
    world: Any = SimpleNamespace(brokers={}, note=lambda *_: None)
    wire: Any = Wire()
    repeater = Repeater(notes, "repeater-1")
    asyncio.run(Round(repeater, world, wire, wire, Draws(1), ProducerIdAndEpoch(1, 0)).play())
    assert bool(notes.complaints) is is_wrong
