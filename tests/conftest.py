"""Settings for all tests, and what one that hangs shows."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from tests.support.examples import SOAK_EXAMPLES
from tests.support.zookeeper.fixtures import *  # noqa: F403  fixtures, for all tests

# The same examples in every run: a failure in CI is the failure at the desk. No deadline: the machine may be slow.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
# Other examples in every run, and more; a failure prints what repeats it.
settings.register_profile("soak", derandomize=False, deadline=None, print_blob=True, max_examples=SOAK_EXAMPLES)
settings.load_profile("ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are a million objects, all of which stay: no collection of garbage looks at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """pytest-timeout shows where each thread is; of an event loop that is the loop, so here is what its tasks await."""
    report = yield
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        for task in tasks_of(call.excinfo):
            stack = io.StringIO()
            task.print_stack(file=stack)
            report.sections.append((task.get_name(), stack.getvalue()))
    return report


def tasks_of(raised: pytest.ExceptionInfo[BaseException]) -> Iterator[asyncio.Task[object]]:
    for entry in raised.traceback:
        runner = entry.frame.f_locals.get("self")
        if isinstance(runner, asyncio.Runner):
            yield from asyncio.all_tasks(runner.get_loop())
