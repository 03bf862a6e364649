"""Responses that are ready immediately are combined with responses that become ready later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog_broker.runtime.answers import all_of, settled, then


def later() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def failing(_: object) -> Any:
    raise ValueError("for this test")


def test_a_present_value_needs_neither_future_nor_event_loop() -> None:
    assert then(1, lambda value: value + 1) == 2
    assert all_of([1, 2]) == [1, 2]
    with pytest.raises(ValueError):
        then(1, failing)


async def test_a_function_of_a_late_value_may_answer_late_itself() -> None:
    first, second = later(), later()
    answer = then(then(first, lambda value: value + 1), lambda value: second if value == 2 else None)
    assert isinstance(answer, asyncio.Future)
    first.set_result(1)
    await asyncio.sleep(0)
    assert not answer.done()
    second.set_result("done")
    assert await settled(answer) == "done"


async def test_exceptions_are_the_outcome_wherever_they_are_raised() -> None:
    source, second = later(), later()
    answers = [then(source, failing), then(source, lambda _: then(second, failing)), then(then(second, failing), len)]
    source.set_result(None)
    second.set_result(None)
    third = later()
    answers.append(then(third, lambda _: "never"))
    third.set_exception(ValueError("for this test"))
    for answer in answers:
        with pytest.raises(ValueError):
            await settled(answer)


async def test_all_of_keeps_the_order_whatever_completes_first() -> None:
    first, third = later(), later()
    answer = all_of([first, 2, third])
    third.set_result(3)
    await asyncio.sleep(0)
    first.set_result(1)
    assert await settled(answer) == [1, 2, 3]


async def test_the_first_failure_of_many_is_the_outcome() -> None:
    answers = [later(), later()]
    answer = all_of(answers)
    answers[1].set_exception(ValueError("for this test"))
    with pytest.raises(ValueError):
        await settled(answer)
    answers[0].set_exception(ValueError("nobody waits for this one"))


async def test_cancelling_reaches_the_awaited_future() -> None:
    first, second = later(), later()
    answer = then(first, lambda _: second)
    assert isinstance(answer, asyncio.Future)
    first.set_result(None)
    await asyncio.sleep(0)
    answer.cancel()
    many = [later(), later()]
    all_of_many = all_of(many)
    assert isinstance(all_of_many, asyncio.Future)
    all_of_many.cancel()
    await asyncio.sleep(0)
    assert second.cancelled()
    assert all(each.cancelled() for each in many)


async def test_a_cancelled_wait_yields_no_answer() -> None:
    source = later()
    answer = then(source, lambda _: None)
    assert isinstance(answer, asyncio.Future)
    source.cancel()
    await asyncio.sleep(0)
    assert answer.cancelled()
