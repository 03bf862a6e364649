"""Values are searched by expressions in worker processes, so no value or expression blocks the console."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from oncelog_console.limits import TASK_BYTES
from oncelog_console.lookups.batch_outcomes import Outcome
from oncelog_console.lookups.decoding import Decoding
from oncelog_console.lookups.record_view import RecordView
from oncelog_console.lookups.wanted import Wanted, WantedHeader
from oncelog_console.values.expression import MAX_EXPRESSION_CHARACTERS, Expression
from oncelog_console.values.reader import ValueReader, parts
from oncelog_console.values.reading import Reader
from oncelog_console.values.tasks import Task
from oncelog_console.values.workers import TaskFailed, Workers

MEGABYTE = 1024 * 1024
BRIEF = """
import sys
import oncelog_console.limits as limits
limits.TASK_SECONDS, limits.WORKER_BYTES = 0.3, 256 * 2**20
from oncelog_console.values.worker import main
main()
"""
"""A program for a worker with 256 MiB, whose tasks may take 0.3 s."""


def record(value: bytes | None, **fields: object) -> RecordView:
    given: dict[str, object] = {
        "partition": 0, "offset": 7, "timestamp_ms": 1000, "key": b"k", "headers": (), "fate": Outcome.PLAIN,
        "producer_id": -1, "producer_epoch": -1, "key_size": 1, "value_size": len(value or b""),
    }  # fmt: skip
    return RecordView(value=value, **(given | fields))  # type: ignore[arg-type]


# --- expressions


@pytest.mark.parametrize(
    ("text", "value", "matches"),
    [
        ("$.amount > 10", {"amount": 11}, True),
        ("$.amount > 10", {"amount": 10}, False),
        ("$.amount > 10", {"amount": "11"}, False),
        ("$.amount > 10", "no object", False),
        ("$.amount > 10", None, False),
        ('@.item == "tea" && !$.paid', {"item": "tea"}, True),
        ('@.item == "tea" && !$.paid', {"item": "tea", "paid": False}, False),
        ("$.lines[?@.price > 5]", {"lines": [{"price": 1}, {"price": 6}]}, True),
        ("($.a == 1 || $.b == 2)", {"b": 2}, True),
        ("$ > 3", 4, True),
        ("$..id", {"deep": [{"id": 0}]}, True),
    ],
)
def test_an_expression_is_true_or_false_of_a_value(text: str, value: object, matches: bool) -> None:
    assert Expression(text).matches(value) is matches


@pytest.mark.parametrize(
    "text",
    [
        "$.amount >",
        "true][?1==1",
        "$.a, ?$.b",
        "(" * 400,
        "$." + "a" * MAX_EXPRESSION_CHARACTERS,
        "$[",
        "",
        "$.a =~ /x/",
    ],
)
def test_text_that_is_no_expression_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression"):
        Expression(text)


# --- workers


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def brief() -> AsyncIterator[Workers]:
    made = Workers((sys.executable, "-c", BRIEF))
    yield made
    await made.close()


def test_a_task_tells_which_values_match_and_how_many_cannot_be_read() -> None:
    values = [b'{"n": 2}', b'{"n": 1}', None, b"no json", b"\xff", b"[" * 100_000]
    result = Reader().done(Task(values, expression="$.n > 1"))
    assert list(result.matches) == [True, False, False, False, False, False]
    assert list(result.problems) == [None, None, None, *["it is not JSON"] * 3]


async def test_values_are_searched_in_a_process_that_is_used_again(workers: Workers) -> None:
    for _ in range(2):
        result = await workers.do(Task([b'{"n": 2}', b"{}"], expression="$.n > 1"))
        assert list(result.matches) == [True, False]
    assert len(workers._resting) == 1
    with pytest.raises(TaskFailed, match="not an expression"):
        await workers.do(Task([b"{}"], expression="$.n >"))


async def test_an_expression_that_takes_too_long_ends_its_process_and_not_the_console(brief: Workers) -> None:
    backtracking = Task([json.dumps({"a": "x" * 40}).encode()], expression='search($.a, "(x+x+)+y")')
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    with pytest.raises(TaskFailed, match="takes longer than"):
        await brief.do(backtracking)
    beating.cancel()
    assert beats > 5, "the event loop went on"
    assert list((await brief.do(Task([b'{"n": 2}'], expression="$.n"))).matches) == [True], "by a new process"


async def test_a_value_that_takes_all_memory_matches_nothing(brief: Workers) -> None:
    bomb = b"[" + b"{}," * (5 * MEGABYTE) + b"{}]"
    try:
        result = await brief.do(Task([bomb], expression="$.n"))
    except TaskFailed:
        pass
    else:
        assert not any(result.matches)
    assert list((await brief.do(Task([b'{"n": 2}'], expression="$.n"))).matches) == [True], "the next task is done"


async def test_a_process_that_cannot_be_started_fails_the_task() -> None:
    with pytest.raises(TaskFailed, match="no process can be started"):
        await Workers(("/nowhere/python",)).do(Task([b"{}"], expression="$.n"))


# --- the search expression


def test_a_record_is_wanted_by_key_header_time_and_text() -> None:
    one = record(b'{"item": "tea"}', headers=(("trace", b"1"), ("empty", None)))
    assert Wanted(key=b"k", header=WantedHeader("trace", b"1"), until_ms=1000, value="tea").takes(one)
    for missed in (
        Wanted(key=b"other"),
        Wanted(header=WantedHeader("trace", b"2")),
        Wanted(header=WantedHeader("absent", None)),
        Wanted(until_ms=999),
        Wanted(value="coffee"),
    ):
        assert not missed.takes(one), missed
        assert missed.is_search
    assert Wanted(header=WantedHeader("empty", None)).takes(one)
    assert not Wanted(value="tea").takes(record(None))
    assert not Wanted(value="tea").takes(record(b"tea", fate=Outcome.COMMIT))
    assert Wanted().takes(record(None, fate=Outcome.COMMIT))


async def test_large_values_are_searched_few_at_a_time(workers: Workers) -> None:
    large = [record(b'{"n": %d, "x": "%s"}' % (n, b"x" * TASK_BYTES), offset=n) for n in range(3)]
    assert [len(part) for part in parts([0, 1, 2], [each.value for each in large])] == [1, 1, 1]
    decoding = Decoding(ValueReader(workers), "orders", Wanted(value="$.n > 0"), 100, 100)
    found = await decoding.read([*large, record(b"none", offset=9)])
    assert ([each.offset for each in found.records], found.unread) == ([1, 2], 1)
