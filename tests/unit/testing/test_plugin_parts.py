"""Of the plugin, what needs no broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import NoReturn

import pytest

from oncelog_testing.broker import Broker
from oncelog_testing.control import BrokerGone
from oncelog_testing.topics import run, topic_name

LOADED = """
import sys
import pytest
before = set(sys.modules)
import oncelog_testing.plugin
print(*sorted(set(sys.modules) - before))
"""


def test_the_plugin_imports_nothing_that_pytest_has_not() -> None:
    """Every run of pytest pays for it."""
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


def test_what_goes_wrong_in_that_loop_is_raised() -> None:
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
