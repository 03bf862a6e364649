"""Tests those functions of the pytest plugin that need no broker."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import oncelog_testing
from oncelog_testing.broker import Broker
from oncelog_testing.cluster import ClusterFault
from oncelog_testing.control import BrokerGone, NotStruck
from oncelog_testing.topics import run, topic_name, wanted_topic

LOADED = """
import sys
import pytest
before = set(sys.modules)
import oncelog_testing.plugin
print(*sorted(set(sys.modules) - before))
"""


def test_the_plugin_imports_nothing_that_pytest_has_not() -> None:
    """Further imports would slow down every run of pytest."""
    done = subprocess.run([sys.executable, "-c", LOADED], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["oncelog_testing", "oncelog_testing.plugin"]


@pytest.mark.parametrize(
    ("test", "beginning"),
    [
        ("test_a[b/c d-ü]", "test_a-b-c-d"),
        ("test_" + "x" * 500, "test_" + "x" * 95),
        ("ü", "test"),
        ("..", "test"),
    ],
)
def test_a_topic_is_named_after_its_test_as_far_as_kafka_allows(test: str, beginning: str) -> None:
    name = topic_name(test)
    assert name.rpartition("-")[0] == beginning
    assert name != topic_name(test)
    assert len(name) < 249


async def test_a_fixture_may_run_a_loop_beside_that_of_the_test() -> None:
    loop = asyncio.get_running_loop()

    async def other() -> bool:
        return asyncio.get_running_loop() is loop

    assert run(other) is False
    assert asyncio.get_running_loop() is loop


def test_an_exception_in_the_second_loop_is_raised() -> None:
    async def fails() -> NoReturn:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        run(fails)


def test_a_broker_that_does_not_run_says_so(tmp_path: object) -> None:
    broker = Broker(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(BrokerGone):
        broker.fail("EndTxn.answer", drop=True)
    assert broker.wait_ended(0)
    assert not broker.is_well


def test_a_broker_needs_at_least_one_worker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers=0: must be at least 1"):
        Broker(tmp_path, workers=0)


class Struck:
    """Replaces a fault; its count is None if its broker is gone."""

    def __init__(self, struck: int | None) -> None:
        self._struck = struck

    @property
    def struck(self) -> int:
        if self._struck is None:
            raise BrokerGone
        return self._struck


def test_a_cluster_counts_as_its_living_brokers_report() -> None:
    faults = [Struck(1), Struck(None), Struck(2)]
    assert ClusterFault(faults).struck == 3  # type: ignore[arg-type]
    with pytest.raises(NotStruck, match="in no broker"):
        ClusterFault([Struck(None)]).wait(0.0)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        ((), {"partition": 3}, "unknown argument 'partition': did you mean 'partitions'?"),
        ((), {"replicas": 3}, "unknown argument 'replicas': the arguments are partitions and configs"),
        ((1,), {"partitions": 3}, "partitions is given twice"),
        ((1, {}, 2), {}, "takes partitions and configs, not 3 values"),
        ((), {"partitions": "3"}, "partitions='3': must be a number from 1"),
        ((), {"partitions": True}, "partitions=True: must be a number from 1"),
        ((), {"configs": ["a=1"]}, "configs=['a=1']: must be a dict of Kafka's keys"),
    ],
)
def test_a_mark_that_is_wrong_says_so(positional: Any, named: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        wanted_topic(*positional, **named)


def test_a_mark_asks_for_partitions_and_configs() -> None:
    assert wanted_topic() == (1, None)
    assert wanted_topic(3, {"a": "1"}) == wanted_topic(configs={"a": "1"}, partitions=3) == (3, {"a": "1"})


OWN_PROCESSES = tuple(f"oncelog_testing.{each}" for each in ("zookeeper_keeper", "container_start", "judge."))
"""Modules that run as programs, which a user's test never imports."""


def test_no_line_of_ours_is_in_the_traceback_of_a_users_test() -> None:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(oncelog_testing.__path__, "oncelog_testing.")
        if not found.ispkg and not found.name.startswith(OWN_PROCESSES)
    ]
    assert len(modules) > 10
    assert [module.__name__ for module in modules if not vars(module).get("__tracebackhide__")] == []
