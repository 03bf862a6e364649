"""What each fail point does, and that there are no fail points unless requested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest

from oncelog.fail_points.point import FAIL_POINTS, VARIABLE

TRANSACTION = "oncelog_broker.coordinator.transaction"
STEPS = {
    "drain": ("oncelog.producer.accumulator", "Accumulator.drain"),
    "send": ("oncelog.producer.sender", "Sender._start"),
    # Of two steps with one point, the one of the fast lanes is declared last.
    "register-partitions": (f"{TRANSACTION}.coordinator", "TransactionCoordinator.log_added"),
    "append": ("oncelog_broker.server.records.transactional_append", "append_in_transaction"),
    "replicate": ("oncelog_broker.replication.replica", "Replica.append_as_follower"),
    "acknowledge": ("oncelog_broker.server.dispatch.dispatcher", "Dispatcher.respond"),
    "offsets-written": ("oncelog_broker.server.transactions.txn_offset_commit", "_write"),
    "prepare-logged": (f"{TRANSACTION}.coordinator", "TransactionCoordinator.log_decided"),
    "reply-sent": ("oncelog_broker.server.dispatch.dispatcher", "Dispatcher.respond"),
    "marker-sent": (f"{TRANSACTION}.markers", "MarkerAppender.append"),
    "marker-written": ("oncelog_broker.replication.partition", "Partition.append_marker"),
    "marker-replicated": ("oncelog_broker.replication.replica", "Replica.append_as_follower"),
    "marker-acknowledged": (f"{TRANSACTION}.marker_sender", "_acknowledged"),
    "complete-logged": (f"{TRANSACTION}.coordinator", "TransactionCoordinator._try_to_complete"),
}

MARKED = """
import json, sys
from importlib import import_module
from oncelog.fail_points.point import ACTIVE_FAULTS
for module in sys.argv[1:]:
    import_module(module)
steps = {point: step.function for point, step in ACTIVE_FAULTS.steps.items()}
print(json.dumps({point: [step.__module__, step.__qualname__] for point, step in steps.items()}))
"""


def found(where: tuple[str, str]) -> Callable[..., Any]:
    module, name = where
    return attrgetter(name)(import_module(module))  # type: ignore[no-any-return]


def test_every_point_is_on_a_step() -> None:
    assert tuple(STEPS) == FAIL_POINTS
    modules = sorted({module for module, _ in STEPS.values()})
    done = subprocess.run(
        [sys.executable, "-c", MARKED, *modules],
        env={**os.environ, VARIABLE: "append = go"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert {point: tuple(where) for point, where in json.loads(done.stdout).items()} == STEPS


@pytest.mark.parametrize("point", STEPS)
def test_a_step_is_its_plain_function_when_nobody_tests(point: str) -> None:
    assert VARIABLE not in os.environ
    where = STEPS[point]
    step = found(where)
    assert not hasattr(step, "__wrapped__")
    assert step.__code__.co_filename == sys.modules[where[0]].__file__
    assert step.__code__.co_qualname == where[1]
