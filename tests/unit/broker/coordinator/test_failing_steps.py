"""A coordinator step that raises an unexpected exception rolls back its key, and all other keys continue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.counters import UNREPLAYABLE, Counters, counters, failed, loaded, put, wait_for_ever

from oncelog_broker.coordinator.effects import Effects, Interruption
from oncelog_protocol.errors import ErrorCode

# --- steps that raise unexpected exceptions


def throw(machine: Counters, waiter: Any) -> Effects:
    raise AssertionError("thrown by a step")


def told(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Return the keys of the failed steps that log messages report."""
    return [record.__dict__["key"] for record in caplog.records if record.message == "step failed"]


async def test_a_step_that_raises_is_logged_once_and_its_key_is_rolled_back(runtime, internal_topic, caplog):
    runtime.on_image(internal_topic.lead())
    of_the_same, of_another = (runtime.write(key, wait_for_ever, failed) for key in ("a", "b"))
    assert runtime.write("a", throw, failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert told(caplog) == ["a"]
    assert "thrown by a step" in caplog.text
    assert of_the_same.result() is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not of_another.done()
    assert counters(runtime).fell_back == ["a"]
    assert runtime.write("a", put("a", 1), failed) == ("put", None)


async def test_an_answered_request_waits_no_more_after_a_failure(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    waiting = runtime.write("a", wait_for_ever, failed)
    assert len(runtime.shard("a").waiting("a")) == 1
    counters(runtime).waiting.pop().answer("done")
    assert await waiting == "done"
    await asyncio.sleep(0)
    assert not runtime.shard("a").waiting("a")


async def test_a_timer_that_raises_takes_no_other_timer_with_it(runtime, internal_topic, caplog):
    runtime.on_image(internal_topic.lead())
    for name, seconds in (("raise", 1.0), ("same", 1.0), ("later", 2.0)):
        runtime.write(name, put(name, 1, timer=seconds), failed)
    internal_topic.advance(10.0)
    assert counters(runtime).fired == ["raise", "same", "later"]
    assert told(caplog) == counters(runtime).fell_back == ["raise"]


async def test_records_that_cannot_be_encoded_change_nothing(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", put(b"no text", 1), failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert internal_topic.logs[0].log_end_offset == 0
    assert counters(runtime).fell_back == ["a"]


async def test_a_machine_that_is_not_what_was_logged_is_loaded_anew(runtime, internal_topic, caplog, monkeypatch):
    runtime.on_image(internal_topic.lead())
    runtime.write("b", put("b", 1, timer=1.0), failed)
    waiting = runtime.write("b", wait_for_ever, failed)
    machine = counters(runtime)
    monkeypatch.setattr("tests.support.counters.UNREPLAYABLE", 2)
    assert runtime.write("a", put("a", 2), failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.result() is ErrorCode.NOT_COORDINATOR
    monkeypatch.setattr("tests.support.counters.UNREPLAYABLE", UNREPLAYABLE)
    await loaded(runtime)
    assert counters(runtime) is not machine
    assert counters(runtime).numbers == {"a": 2, "b": 1}  # the new machine has the numbers from the log
    assert told(caplog) == ["a"]
    internal_topic.advance(5.0)
    assert machine.fired == []


async def test_a_reload_covers_all_logged_records_replicated_or_not(runtime, internal_topic, monkeypatch):
    runtime.on_image(internal_topic.lead())
    partition = internal_topic.led[0]
    advance = type(partition)._advance_high_watermark
    monkeypatch.setattr(type(partition), "_advance_high_watermark", lambda self, size: None)  # followers lag
    runtime.write("b", put("b", 1), failed)
    assert runtime.write("for good", throw, failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    await loaded(runtime)
    advance(partition, 0)
    assert counters(runtime).numbers == {"b": 1}


async def test_a_log_whose_replay_raises_coordinates_nothing(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", put("a", UNREPLAYABLE), failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    await loaded(runtime)
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR


async def test_a_key_that_cannot_fall_back_has_the_machine_loaded_anew(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    runtime.write("b", put("b", 1), failed)
    machine = counters(runtime)
    assert runtime.write("for good", throw, failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    await loaded(runtime)
    assert counters(runtime) is not machine
    assert counters(runtime).numbers == {"b": 1}


async def test_a_question_that_raises_changes_nothing(runtime, internal_topic, caplog):
    runtime.on_image(internal_topic.lead())
    waiting = runtime.write("a", wait_for_ever, failed)
    assert runtime.read("a", lambda machine: machine.numbers["a"], failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert told(caplog) == ["a"]
    assert not waiting.done()
    assert counters(runtime).fell_back == []


async def test_an_interruption_is_no_failure(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())

    def interrupt(machine, waiter):
        raise Interruption

    with pytest.raises(Interruption):
        runtime.write("a", interrupt, failed)
    assert counters(runtime).fell_back == []
