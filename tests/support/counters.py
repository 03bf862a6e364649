"""A toy state machine for CoordinatorRuntime: it logs each number that is put under a name, and adds the number to the
name's sum.
"""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog_broker.coordinator.effects import Effects, Encoded
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC = "__consumer_offsets"


UNREPLAYABLE = -666


class Counters:
    """A state machine with one sum for each name; a logged record is the pair (name, number or None)."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.numbers: dict[str, int] = {}
        self.offsets: list[int] = []
        self.pending: dict[int, dict[str, int]] = {}
        self.waiting: list[Any] = []
        self.fired: list[Any] = []
        self.fell_back: list[str] = []

    def encode(self, record):
        name, number = record
        return Encoded(name.encode(), None if number is None else str(number).encode())

    def decode(self, key, value):
        return None if key.startswith(b"?") else (key.decode(), None if value is None else int(value))

    def replay(self, record, offset, producer_id):
        name, number = record
        assert number != UNREPLAYABLE
        self.offsets.append(offset)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, {})[name] = number
        elif number is None:
            self.numbers.pop(name, None)
        else:
            self.numbers[name] = number

    records_replace_older = True

    def replay_end_transaction(self, producer_id, committed):
        pending = self.pending.pop(producer_id, {})
        if committed:
            self.numbers.update(pending)

    def on_loaded(self):
        effects = Effects()
        if self.numbers:
            effects.start_timer("loaded", 1.0)
        yield effects

    def on_timer(self, key):
        self.fired.append(key)
        assert key != "raise", "thrown by a timer"
        effects = Effects()
        if key == "log":
            effects.append(("fired", 1))
        return effects

    def key_of(self, timer):
        return timer

    def on_failed(self, key):
        self.fell_back.append(key)
        assert key != "for good"
        effects = Effects()
        effects.cancel_timer(key)
        return effects

    def on_unloaded(self, error):
        effects = Effects()
        for waiter in self.waiting:
            effects.reply(waiter, error)
        return effects


def put(name: str, number: int | None, timer: float | None = None):
    def operation(machine: Counters, waiter):
        effects = Effects()
        effects.append((name, number))
        effects.reply(waiter, ("put", machine.numbers.get(name)))
        if timer is not None:
            effects.start_timer(name, timer)
        return effects

    return operation


def wait_for_ever(machine: Counters, waiter):
    machine.waiting.append(waiter)
    return Effects()


def failed(error: KafkaError) -> ErrorCode:
    return error.code


async def loaded(runtime) -> int:
    """Let the tasks that load the machine from its log run to their end. Returns the number of loop turns that the
    loading took.
    """
    turns = 0
    while runtime.is_loading:
        turns += 1
        await asyncio.sleep(0)
    return turns


def counters(runtime, key="a") -> Counters:
    return runtime.shard(key).machine
