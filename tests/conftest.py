"""Settings for all tests, and the diagnosis of a test that hangs."""

from __future__ import annotations

import asyncio
import gc
import io
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.crossed_parameters import Halves
from tests.support.examples import SOAK_EXAMPLES
from tests.support.long_tests import in_pieces, is_long
from tests.support.zookeeper.fixtures import *  # noqa: F403  fixtures, for all tests
from tests.support.zookeeper.fixtures import SERVERS

HERE = Path(__file__).parent

# The machine may be slow: examples have no deadline, and no limit on the time to draw them.
settings.register_profile("any", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# The same examples in every run: a failure in CI is the failure at the desk.
settings.register_profile("ci", settings.get_profile("any"), derandomize=True)
# Other examples in every run, and more of them; a failure prints how to repeat it.
settings.register_profile("soak", settings.get_profile("any"), derandomize=False, max_examples=SOAK_EXAMPLES)
settings.load_profile("ci")

halves = Halves()


class OtherLoop:
    """Runs asynchronous tests on uvloop; a nearer conftest.py may choose for its own tests."""

    def pytest_asyncio_loop_factories(self) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
        import uvloop

        return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """ONCELOG_TEST_LOOP=uvloop; by default, and with `asyncio`, tests run on asyncio's own loop."""
    loop = os.environ.get("ONCELOG_TEST_LOOP", "asyncio")
    if loop not in ("asyncio", "uvloop"):
        raise pytest.UsageError(f"ONCELOG_TEST_LOOP={loop}: asyncio or uvloop")
    if loop == "uvloop":
        config.pluginmanager.register(OtherLoop())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests whose fixture starts a ZooKeeper: `make check` skips them. Leave half of the combinations of crossed
    parameters to a soak.
    """
    if SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("zookeeper")
    halves.mark(item)


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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All the time some workers are to have tests that wait, in tests/cluster and tests/integration, and others tests
    that compute. Each worker gets a piece of the list, so the files of each directory are spread evenly over it. Each
    piece begins with long tests, so that none of them starts last, when the other workers have nothing left to do.
    """
    files: dict[str, dict[Path, int]] = defaultdict(dict)
    for item in items:
        of_directory = files[item.path.relative_to(HERE).parts[0]]
        of_directory[item.path] = of_directory.get(item.path, 0) + 1
    places = {}
    for of_directory in files.values():
        before = accumulate(of_directory.values(), initial=0)
        places |= {path: n / sum(of_directory.values()) for path, n in zip(of_directory, before, strict=False)}
    items.sort(key=lambda item: places[item.path])
    timeout = float(config.getini("timeout"))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = in_pieces(items, [item for item in items if is_long(item, timeout)], workers)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """pytest-timeout shows where each thread is; for an event loop that is only the loop, so this shows what its tasks
    await."""
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
